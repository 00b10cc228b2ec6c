"""Vocabularies against the naive way to ask for them, and against what the tokenizers library decodes."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from gateway.decode.vocabulary import TokenizerError, Vocabulary, read_vocabulary
from tests.support.examples import examples

TEXTS = ["the talk of the town", "listen, talk and listen!", "naïve café 😀 日本", "  two  spaces\n\ttab", "a" * 40] * 5
TOKENS = st.lists(st.none() | st.binary(max_size=4) | st.text("ab", max_size=5).map(str.encode), max_size=12)


# -- sorted tokens and trie --------------------------------------------------------------------------------------------


@settings(max_examples=examples(300), deadline=None)
@given(TOKENS)
def test_the_trie_knows_every_beginning(tokens: list[bytes | None]) -> None:
    vocabulary = Vocabulary(tokens)
    trie, texts = vocabulary.trie, [tokens[token] for token in vocabulary.order]
    assert texts == sorted(text for text in tokens if text)
    nodes = [(0, b"")]
    for node, string in nodes:
        places = range(len(texts))
        assert [*range(trie.begin[node], trie.stop[node])] == [at for at in places if texts[at].startswith(string)]
        assert [*range(trie.begin[node], trie.exact[node])] == [at for at in places if texts[at] == string]
        children = range(trie.first[node], trie.first[node + 1])
        nodes += [(child, string + bytes([trie.byte[child]])) for child in children]
    assert len(nodes) == len(trie.byte)
    assert {string for _, string in nodes} == {b"", *(text[:at] for text in texts for at in range(1, len(text) + 1))}


@settings(max_examples=examples(100), deadline=None)
@given(TOKENS, st.binary(max_size=3) | st.text("ab", max_size=4).map(str.encode))
def test_the_tokens_that_begin_with_a_string_are_one_range(tokens: list[bytes | None], prefix: bytes) -> None:
    vocabulary = Vocabulary(tokens)
    low, high = vocabulary.beginning_with(prefix)
    expected = {token for token, text in enumerate(tokens) if text and text.startswith(prefix)}
    assert set(vocabulary.order[low:high].tolist()) == expected


def test_ends_write_nothing_and_belong_to_the_vocabulary() -> None:
    vocabulary = Vocabulary([b"a", b"</s>", None, b""], end=[1])
    assert vocabulary.tokens == (b"a", None, None, b"")
    assert vocabulary.order.tolist() == [0]
    with pytest.raises(ValueError, match="token 4 is not in the vocabulary, which has 4"):
        Vocabulary([b"a"] * 4, end=[4])


def test_every_text_can_be_spelled_where_every_byte_is_a_token() -> None:
    every = [bytes([byte]) for byte in range(256)]
    assert Vocabulary(every).spells_all
    assert Vocabulary([text for text in every if text not in (b"\xc0", b"\xff")]).spells_all
    assert not Vocabulary([text for text in every if text != b"z"]).spells_all


def test_the_digest_tells_vocabularies_apart() -> None:
    alike = Vocabulary([b"a", b"bc", None], [2])
    assert alike.digest() == Vocabulary([b"a", b"bc", b"x"], [2]).digest()
    others = [
        Vocabulary([b"ab", b"c", None], [2]),
        Vocabulary([b"a", b"bc", None]),
        Vocabulary([b"a", b"bc", None], [2], strips_first_space=True),
    ]
    assert len({each.digest() for each in (alike, *others)}) == 4


# -- tokenizers --------------------------------------------------------------------------------------------------------


def byte_level() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=["<end>"], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens(["café ☕"])
    return tokenizer


def sentencepiece_bpe(strips: bool) -> tokenizers.Tokenizer:
    """As Llama's is made, and Gemma's without the strip."""
    trained = tokenizers.Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trainer = trainers.BpeTrainer(vocab_size=80, special_tokens=["<unk>"])
    trained.train_from_iterator(TEXTS, trainer)
    described = json.loads(trained.to_str())
    pieces = ["<unk>", "<end>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += [piece for piece in described["model"]["vocab"] if piece not in pieces]
    described["model"]["vocab"] = {piece: token for token, piece in enumerate(pieces)}
    described["model"]["byte_fallback"] = True
    described["added_tokens"] = []
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(described))
    tokenizer.add_special_tokens(["<unk>", "<end>"])
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    return tokenizer


def unigram() -> tokenizers.Tokenizer:
    tokenizer = tokenizers.Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=60, special_tokens=["<end>", "<unk>"], unk_token="<unk>")
    tokenizer.train_from_iterator(TEXTS, trainer)
    return tokenizer


TOKENIZERS = {
    "byte-level": byte_level,
    "sentencepiece, stripped": lambda: sentencepiece_bpe(strips=True),
    "sentencepiece, whole": lambda: sentencepiece_bpe(strips=False),
    "unigram": unigram,
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokens_write_what_the_library_decodes(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    vocabulary = read_vocabulary(tokenizer, end=["<end>"])
    assert len(vocabulary) == tokenizer.get_vocab_size()
    compared = 0
    for seed in range(600):
        tokens = random.Random(seed).choices(range(len(vocabulary)), k=seed % 6 + 1)
        written = b"".join(vocabulary.pieces(tokens, at_text_start=True))
        try:
            expected = written.decode()
        except UnicodeDecodeError:
            continue  # each library has its own way to show what is no text
        if expected.startswith(" ") and name == "unigram":
            continue  # only the first token's spaces are dropped there, however many they are
        compared += 1
        assert tokenizer.decode(tokens) == expected, [tokenizer.id_to_token(token) for token in tokens]
    assert compared > 100


@pytest.mark.parametrize("name", TOKENIZERS)
def test_texts_come_back(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    vocabulary = read_vocabulary(tokenizer, end=["<end>"])
    for text in ("the talk", "talk of the town"):
        prefixed = f" {text}" if name == "sentencepiece, stripped" else text
        assert vocabulary.text(tokenizer.encode(prefixed).ids, at_text_start=True) == text


def test_tokens_that_stand_for_their_own_text(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    described = {
        "model": {"vocab": {"Ġa": 0, "Ċ": 1, "日本": 2, "<0x41>": 3}},
        "decoder": {"type": "ByteLevel"},
        "added_tokens": [{"id": 4, "content": "Ġ▁", "special": False}, {"id": 5, "content": "<end>", "special": True}],
    }
    file.write_text(json.dumps(described))
    vocabulary = read_vocabulary(file, end=["<end>"])
    assert vocabulary.tokens == (b" a", b"\n", "日本".encode(), b"<0x41>", "Ġ▁".encode(), None)


def test_a_stripped_space_is_the_first_of_the_text_only() -> None:
    vocabulary = read_vocabulary(sentencepiece_bpe(strips=True), end=["<end>"])
    space = vocabulary.tokens.index(b" ")
    assert vocabulary.text([space, space]) == "  "
    assert vocabulary.text([space, space], at_text_start=True) == " "
    assert vocabulary.text([0, space, space], at_text_start=True) == " "  # what writes nothing is no beginning


def test_spellings_of_a_byte_are_several_tokens() -> None:
    vocabulary = read_vocabulary(sentencepiece_bpe(strips=False), end=["<end>"])
    low, high = vocabulary.beginning_with(b"\xe6\x97\xa5")
    assert {vocabulary.tokens[token] for token in vocabulary.order[low:high]} >= {"日".encode()}
    assert vocabulary.tokens.count(b"a") == 2  # the letter and its byte


def test_a_models_folder_names_the_ends(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match=r"nothing says which token ends a text: name it in `end`"):
        read_vocabulary(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}}))
    assert read_vocabulary(tmp_path).end == (0,)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 0]}))
    assert read_vocabulary(tmp_path).end == (0, 3)
    assert read_vocabulary(tmp_path / "tokenizer.json", end=[7]).end == (7,)


def test_the_model_may_know_more_tokens_than_the_tokenizer() -> None:
    tokenizer = byte_level()
    vocabulary = read_vocabulary(tokenizer, end=["<end>"], size=512)
    assert len(vocabulary) == 512
    assert vocabulary.tokens[tokenizer.get_vocab_size() :] == (None,) * (512 - tokenizer.get_vocab_size())


@pytest.mark.parametrize(
    "described, reason",
    [
        ({"model": {"vocab": {"a": 0}}, "decoder": {"type": "WordPiece"}}, r"of another kind \(WordPiece\)"),
        ({"model": {"vocab": {"a": 0}}, "decoder": None}, r"of another kind \(none\)"),
        ({"decoder": {"type": "ByteLevel"}}, "model.vocab is missing"),
        ({"model": {"vocab": {"a": 0}}, "decoder": {"type": "ByteLevel"}}, "no token is called '</s>'"),
    ],
)
def test_what_cannot_be_read_is_refused(described: dict[str, Any], reason: str, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(json.dumps(described))
    with pytest.raises(TokenizerError, match=reason):
        read_vocabulary(file, end=["</s>"])


def test_files_and_objects_of_other_kinds_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text("no")
    with pytest.raises(TokenizerError, match="not JSON"):
        read_vocabulary(file)
    file.write_text("[]")
    with pytest.raises(TokenizerError, match="not an object"):
        read_vocabulary(file)
    with pytest.raises(TokenizerError, match="int does not list its tokens"):
        read_vocabulary(7)
