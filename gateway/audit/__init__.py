"""What would a model say? A regular expression is searched in the model itself, the likeliest strings first.

    query        what is asked, as frozen data, and its language; reading makes it from a file
    automaton    languages as deterministic automata over bytes, worked out state by state
    preprocess   languages from languages: edits, unwanted words, synonyms; installed has those that packages bring
    parts        keeps changes before or behind a prefix
    count        how many strings a language has
    product      a language × a vocabulary → the tokens that can come next, and where they lead
    law          what a model says next, and what a decoding rule leaves of it; models and endpoint ask one
    search       the likeliest strings first: prefixes begins it, steps and frontier go on, checkpoint keeps it
    sample       strings at random, with weights
    prompts      would an answer break a policy's rules? judge asks the censor; masked is a model without their words
    command      the command line: options and plans, running and attended, performing, verifying and deployed
    saved        what was found and where it stands, as a file; posting is how servers are asked
    tasks        what is asked, as plain data: here, or by workers, among whom spread divides it: processes, or on_ray
    report       what was found as lines and as a page, aligned with what was edited; rules makes word rules of it

A query goes through the first six from top to bottom, and after that to a model:

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
