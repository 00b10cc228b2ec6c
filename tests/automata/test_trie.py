"""Every array of the trie against its definition, for every node."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.automata.trie import ROOT, Trie
from tests.support.examples import examples

WORDS = st.sets(st.text("ab_. é字", min_size=1, max_size=6), min_size=1, max_size=12)


def is_word_char(char: str) -> bool:
    return char not in " ."


@settings(max_examples=examples(300), deadline=None)
@given(WORDS, st.randoms(use_true_random=False))
def test_the_arrays_say_what_they_are_defined_to_say(words: set[str], chance: object) -> None:
    texts = sorted(words)
    free = {word for word in texts if chance.random() < 0.6}  # type: ignore[attr-defined]
    edged = {word for word in texts if chance.random() < 0.4}  # type: ignore[attr-defined]
    trie = Trie(texts, bytes(w in free for w in texts), bytes(w in edged for w in texts), is_word_char)
    nodes = {trie.path(node): node for node in range(len(trie.labels))}
    assert nodes.keys() == {word[:size] for word in texts for size in range(len(word) + 1)}
    for path, node in nodes.items():
        suffixes = [path[start:] for start in range(len(path)) if path[start:] in nodes]
        assert trie.length[node] == len(path)
        children = range(trie.first[node], trie.first[node + 1])
        assert {trie.path(child) for child in children} == {p for p in nodes if p[:-1] == path and p}
        assert all(
            trie.labels.find(p[-1], children.start, children.stop) == nodes[p] for p in nodes if p[:-1] == path and p
        )
        assert trie.path(trie.out[node]) == next((s for s in suffixes if s in words), "")
        assert trie.live[node] == next((len(s) for s in suffixes if continues(s, free)), 0)
        assert trie.edged[node] == continues(path, edged)
        if node == ROOT:
            continue
        fallback = next((s for s in suffixes if s != path), "")
        assert trie.path(trie.fail[node]) == fallback
        assert trie.before[node] == is_word_char(path[-len(fallback) - 1])
    assert trie.root == {path: node for path, node in nodes.items() if len(path) == 1}


def continues(path: str, words: set[str]) -> bool:
    return any(word.startswith(path) and word != path for word in words)


def test_a_word_of_a_hundred_thousand_letters() -> None:
    word = "a" * 100_000
    trie = Trie([word], b"\1", b"\0", None)
    assert trie.fail[100_000] == 99_999
    assert trie.path(trie.out[100_000]) == word
