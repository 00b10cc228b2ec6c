"""Hugging Face tokenizers → vocabularies: what each token writes, byte for byte.

A `tokenizer.json` is complete, so no tokenizer library is needed: the tokens of its model, each in a spelling of its
own kind, and a decoder that shows which kind it is.

* **byte-level** (GPT-2 and its heirs): every byte is a printable character. The table is the one of GPT-2's encoder:
  printable Latin-1 characters stand for themselves, the rest for U+0100 and on.
* **SentencePiece** (Llama, Gemma, T5): `▁` is a space, `<0x0A>` a byte, and the first space of a text may be dropped.

Tokens that were added stand for their own text; special ones among them write nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gateway.automata.vocabulary import Vocabulary as Vocabulary

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "▁"


class TokenizerError(ValueError):
    """A tokenizer that cannot be read as a vocabulary."""


def read_vocabulary(source: Any, end: Iterable[int | str] = (), size: int | None = None) -> Vocabulary:
    """The vocabulary of a tokenizer.

    `source`: a `tokenizer.json`, the folder of a model, a `tokenizers.Tokenizer`, or a fast tokenizer of transformers.
    `end`: the ids or names of the tokens that end a text; without it, what the model's folder or the tokenizer names.
    `size`: how many tokens the model knows, where that is more than the tokenizer names.
    Raises TokenizerError if it is of another kind, or no token ends a text; OSError if it cannot be read.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        described = _parsed(path / "tokenizer.json" if path.is_dir() else path)
        place = str(path)
        stated = _ends_in(path) if path.is_dir() else []
    else:
        described, stated = _described(source)
        place = type(source).__name__
    spelling = _Spelling(described, place)
    ends = [_number(each, described, place) for each in (list(end) or stated)]
    if not ends:
        raise TokenizerError(f"{place}: nothing says which token ends a text: name it in `end`, as in end=['</s>']")
    tokens: dict[int, bytes | None] = dict(spelling.tokens())
    highest = max([size - 1 if size else -1, *tokens])
    return Vocabulary(
        [tokens.get(token) for token in range(highest + 1)], ends, strips_first_space=spelling.strips_first_space
    )


class _Spelling:
    """How the tokens of one tokenizer are written, by its decoder."""

    def __init__(self, described: dict[str, Any], place: str) -> None:
        self._described = described
        self._place = place
        kinds = _kinds(described.get("decoder"))
        self._byte_level = "ByteLevel" in kinds
        self._byte_fallback = "ByteFallback" in kinds
        if not self._byte_level and not self._is_sentencepiece(kinds):
            named = ", ".join(kinds) or "none"
            raise TokenizerError(
                f"{place}: the decoder is of another kind ({named}): byte-level tokenizers and those of SentencePiece "
                "can be read"
            )
        self.strips_first_space = not self._byte_level and self._strips(kinds)

    def tokens(self) -> Iterator[tuple[int, bytes | None]]:
        """Ids with what they write; an id may come twice, and then the last one holds."""
        for text, token in _named(self._described, self._place):
            yield token, self._bytes(text)
        for added in self._described.get("added_tokens") or ():
            yield added["id"], None if added.get("special") else added["content"].encode()

    def _bytes(self, text: str) -> bytes:
        if self._byte_level:
            try:
                return bytes(map(_BYTE_OF.__getitem__, text))
            except KeyError:
                return text.encode()  # what the decoder does too: an added token among the others
        if self._byte_fallback and (found := _BYTE_TOKEN.fullmatch(text)):
            return bytes([int(found[1], 16)])
        return text.replace(_SPACE, " ").encode()

    def _is_sentencepiece(self, kinds: dict[str, dict[str, Any]]) -> bool:
        if kinds.get("Metaspace", {}).get("replacement", "") == _SPACE:
            return True
        replaced = kinds.get("Replace", {})
        return replaced.get("pattern") == {"String": _SPACE} and replaced.get("content") == " "

    def _strips(self, kinds: dict[str, dict[str, Any]]) -> bool:
        if metaspace := kinds.get("Metaspace"):
            # Files of older versions have `add_prefix_space` in place of the scheme.
            return metaspace.get("prepend_scheme") != "never" and metaspace.get("add_prefix_space") is not False
        strip = kinds.get("Strip", {})
        return strip.get("content") == " " and strip.get("start") == 1


def _kinds(decoder: dict[str, Any] | None) -> dict[str, dict[str, Any]]:
    """The decoder's steps by kind."""
    if decoder is None:
        return {}
    steps = decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]
    return {step["type"]: step for step in steps}


def _byte_of() -> dict[str, int]:
    """The character of each byte in a byte-level vocabulary, the other way round."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


_BYTE_OF = _byte_of()


def _named(described: dict[str, Any], place: str) -> Iterator[tuple[str, int]]:
    """The model's own tokens. A unigram model lists them with their scores, every other kind numbers them."""
    match described.get("model", {}).get("vocab"):
        case dict() as numbered:
            yield from numbered.items()
        case list() as scored:
            yield from ((text, token) for token, (text, _) in enumerate(scored))
        case _:
            raise TokenizerError(f"{place}: model.vocab is missing: not a tokenizer.json")


def _number(end: int | str, described: dict[str, Any], place: str) -> int:
    if isinstance(end, int):
        return end
    added = ((each["content"], each["id"]) for each in described.get("added_tokens") or ())
    for text, token in (*added, *_named(described, place)):
        if text == end:
            return int(token)
    raise TokenizerError(f"{place}: no token is called {end!r}, which is to end a text")


def _described(source: Any) -> tuple[dict[str, Any], list[int | str]]:
    """A tokenizer that is in memory as its `tokenizer.json` would be, and the tokens that end a text."""
    backend = getattr(source, "backend_tokenizer", source)
    if not hasattr(backend, "to_str"):
        raise TokenizerError(
            f"{type(source).__name__} does not list its tokens: give a tokenizer.json, a tokenizers.Tokenizer or a "
            "fast tokenizer of transformers"
        )
    end = getattr(source, "eos_token_id", None)
    described: dict[str, Any] = json.loads(backend.to_str())
    return described, [] if end is None else [end]


def _ends_in(folder: Path) -> list[int | str]:
    """From a model's folder: the tokens that end its generation, or else the one that ends its texts."""
    for name in ("generation_config.json", "config.json"):
        end = _parsed(folder / name).get("eos_token_id") if (folder / name).exists() else None
        if end is not None:
            return list(end) if isinstance(end, list) else [end]
    file = folder / "tokenizer_config.json"
    end = _parsed(file).get("eos_token") if file.exists() else None
    if end is None:
        return []
    return [end["content"] if isinstance(end, dict) else end]


def _parsed(path: Path) -> dict[str, Any]:
    try:
        described = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path}: not JSON ({error})") from None
    if not isinstance(described, dict):
        raise TokenizerError(f"{path}: not an object")
    return described
