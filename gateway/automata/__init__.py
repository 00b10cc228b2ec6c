"""Automata over text. Imports nothing of ours but `gateway.native`, and nothing asynchronous.

    words       literals, the lazily determinised automaton of many words, over a trie with failure links;
                walk, a part of it in C (_walk.c)
    patterns    regex, with escapes and charset → tree; positions → Glushkov's automaton, with contexts; patterns, the
                lazily determinised automaton, and nfa, which follows every beginning; analysis of a pattern as a whole
    disguises   obfuscation, words in disguise and with edits, whose positions are word_places in a word_trie;
                coded_words, in codes, with encodings; native_words and native_codes, the same in C (_ways.c)
    whole text  bytes, the automaton over UTF-8; vocabulary, a model's tokens; unparse, a tree as an expression

`states` is what the determinised ones share.
"""
