"""Text in, released text and findings out: what the rules of a policy do to one text, character by character.

    compile    rules → an automaton of words and one of patterns for each lens; detectors are named patterns
    stream     the censor of one text: what a certain match does
    scanner    where matches are certain and text is live, by literal_cursor and pattern_cursor, each within its window
    releaser   what is held, replaced and released
    spelled    the same for a text spelled with escapes; joins, for labels that a client may append to each other
    passing    whole short texts in which nothing is found
    explain    what a rule compiled to, in one line; checks, the same for the loader

Pure: no clock, no network, nothing asynchronous.
"""
