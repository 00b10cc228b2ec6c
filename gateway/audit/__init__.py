"""Audits a language model: searches it for the strings of a regular expression, the most likely first (as ReLM does,
Kuchnik and others 2023), or for what breaks a policy's rules.

Each folder imports only those below it:

    cli         the command: options, plan, perform, verify, rules from findings, the HTML report, exit statuses
    run         tasks run here, in processes or on Ray; interrupts, progress files, JSON lines
    searches    best-first and random search, prefixes, canonical encodings, checkpoints, policy violations
    models      what is searched: Hugging Face, vLLM, a toy, a model behind a word mask
    query       a query as frozen data, read from a file, compiled to automata
    language    languages as automata over bytes: preprocessors, counting, product with a vocabulary
    model.py    the interface of models, next-token distributions and sampling parameters
    matcher.py  a policy's rules matched against texts

    for result in gateway.audit.search(model, query):
        print(result.text, result.logprob)
"""

try:
    from gateway.audit.searches.best_first import search as search
    from gateway.audit.searches.sample import sample as sample
except ModuleNotFoundError as error:
    # Without numpy, which comes with an extra, a language can still be counted.
    if error.name != "numpy":
        raise
