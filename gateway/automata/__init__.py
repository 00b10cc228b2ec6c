"""Automata over text. Imports nothing of ours and nothing asynchronous.

    words       literals, the lazily determinised automaton of many words, over a trie with failure links
    patterns    regex, with escapes and charset → tree; positions → Glushkov's automaton, with contexts; patterns, the
                lazily determinised automaton, and nfa, which follows every beginning; analysis of a pattern as a whole
    whole text  bytes, the automaton over UTF-8; vocabulary, a model's tokens; unparse, a tree as an expression

`states` is what the determinised ones share.
"""
