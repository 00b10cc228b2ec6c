"""Text in, released text and findings out: what the rules of a policy do to one text, character by character.

`compile` turns rules into machines, one for each lens; `stream` runs them over a text as it arrives. Pure: no clock, no
network, nothing asynchronous.
"""
