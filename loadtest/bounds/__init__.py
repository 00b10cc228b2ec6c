"""An adversarial run against the bounds: every construct of JSON in every place, size and count that the limits allow.

    python -m loadtest.bounds [--cases N] [--seed S] [--out DIR]

A scripted upstream and a client, both hostile, and a gateway with a probe of its event loop (`probe`). For each case
the run records how long a callback kept the loop, how far the resident memory rose, and how many bytes were written
for those that were read. `constructs` is the JSON, `cases` where it stands, `connections` what a client without a key
can do below HTTP, `drive` the two ends, `__main__` the run and its page.
"""
