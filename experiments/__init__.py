"""The audit's experiments: those of ReLM, at a size that two cores train and measure.

    python -m experiments measure DATA [NAME ...]   # where torch and transformers are
    python -m experiments write DATA                # tables and charts of what was measured, to loadtest/results

Every experiment is a module, or a package of what is read, asked and shown, with three functions: `measure(folder)`
trains its model in the folder, or finds it there, and returns what it saw as plain values for JSON; `section(data)`
makes a section of the page from that; `draw(data, folder)` its charts. What a model was taught, and how often, is part
of what is shown.
"""
