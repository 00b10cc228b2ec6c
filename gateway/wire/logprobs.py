"""Log probabilities of a choice's tokens, in both forms that there are.

    chat              {"content": [{"token", "logprob", "bytes", "top_logprobs": [{"token", "logprob", "bytes"}]}], …}
    text completions  {"tokens": [], "token_logprobs": [], "top_logprobs": [{token: logprob}], "text_offset": []}

What is read is what is known to be re-encoded: other fields are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeGuard

from gateway.wire.json import Json

# The lists of chat's form are named like the texts that they spell.
TEXTS = ("content", "refusal")
MAX_TOKEN = 256  # characters of a token or an alternative
_LEAST = -10_000  # servers write -9999 for what is impossible


class Entry(NamedTuple):
    """A token of the text. `spelled` is what it stands for there, in UTF-8, maybe a part of a character; `offset` is
    its place in the text, where the answer has places. `alternatives` could have stood there: they spell whole
    characters, and have neither alternatives nor places."""

    token: str
    spelled: bytes
    logprob: float | None
    with_bytes: bool = False
    alternatives: tuple[Entry, ...] | None = None
    with_offset: bool = False
    offset: int = 0


def read(logprobs: Any) -> dict[str, list[Entry | None]]:
    """The entries by the text that they spell; None for one that cannot be read."""
    if not isinstance(logprobs, dict):
        return {}
    if are_lists(logprobs):
        return {"content": list(_read_lists(logprobs))}
    return {
        name: [_read_entry(item) for item in items] for name in TEXTS if isinstance(items := logprobs.get(name), list)
    }


def are_lists(logprobs: Any) -> bool:
    """Is this the form of text completions?"""
    return isinstance(logprobs, dict) and isinstance(logprobs.get("tokens"), list)


def write(shown: dict[str, list[Entry]], *, as_lists: bool) -> Json | None:
    """What is shown of the log probabilities; None if that is nothing."""
    if not any(shown.values()):
        return None
    if as_lists:
        return _write_lists(shown.get("content", []))
    return {name: [_write_entry(entry) for entry in shown[name]] if shown.get(name) else None for name in TEXTS}


# -- chat --------------------------------------------------------------------------------------------------------------


def _read_entry(item: Any) -> Entry | None:
    entry = _read_token(item)
    listed = item.get("top_logprobs") if entry is not None else None
    if entry is None or not isinstance(listed, list):
        return entry
    # With other parts of characters an alternative that is one could spell anything.
    read = [each for each in map(_read_token, listed) if each is not None and each.spelled == each.token.encode()]
    return entry._replace(alternatives=tuple([each._replace(with_offset=False) for each in read]))


def _read_token(item: Any) -> Entry | None:
    if not isinstance(item, dict):
        return None
    token, logprob, codes = item.get("token"), item.get("logprob"), item.get("bytes")
    spelled = spelled_by(token, codes)
    if spelled is None or not _is_logprob(logprob):
        return None
    return Entry(str(token), spelled, logprob, codes is not None, with_offset="text_offset" in item)


def spelled_by(token: Any, codes: Any = None) -> bytes | None:
    """The bytes that a token stands for; None where its name and its bytes do not say the same.

    A token that is only a part of a character is named by what OpenAI or vLLM make of its bytes, and by nothing else.
    """
    if not isinstance(token, str) or len(token) > MAX_TOKEN:
        return None
    try:
        written = token.encode()
    except UnicodeEncodeError:  # half a surrogate pair
        return None
    if codes is None:
        return written
    try:
        given = bytes(codes) if isinstance(codes, list) and not {type(code) for code in codes} - {int} else None
    except ValueError:
        return None
    if given is None or given == written or _is_utf8(given):
        return written if given == written else None
    named = given.decode(errors="replace"), "bytes:" + "".join(f"\\x{code:02x}" for code in given)
    return given if token in named else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _is_logprob(value: Any) -> TypeGuard[float]:
    """Numbers of other sizes could be text."""
    return isinstance(value, int | float) and not isinstance(value, bool) and _LEAST <= value <= 0


def _write_entry(entry: Entry) -> Json:
    written: Json = {"token": entry.token, "logprob": entry.logprob}
    if entry.with_bytes:
        written["bytes"] = list(entry.spelled)
    if entry.alternatives is not None:
        written["top_logprobs"] = [_write_entry(each) for each in entry.alternatives]
    if entry.with_offset:
        written["text_offset"] = entry.offset
    return written


# -- text completions --------------------------------------------------------------------------------------------------


def _read_lists(logprobs: Json) -> Iterator[Entry | None]:
    tokens = logprobs["tokens"]
    offsets = isinstance(logprobs.get("text_offset"), list)
    for at, token in enumerate(tokens):
        logprob, listed = _item(logprobs, "token_logprobs", at), _item(logprobs, "top_logprobs", at)
        spelled = spelled_by(token)
        if spelled is None or not (logprob is None or _is_logprob(logprob)):
            yield None
            continue
        alternatives = None
        if isinstance(listed, dict):
            named = [(name, spelled_by(name), value) for name, value in listed.items() if _is_logprob(value)]
            alternatives = tuple([Entry(name, spelled, value) for name, spelled, value in named if spelled is not None])
        yield Entry(token, spelled, logprob, alternatives=alternatives, with_offset=offsets)


def _item(logprobs: Json, name: str, at: int) -> Any:
    items = logprobs.get(name)
    return items[at] if isinstance(items, list) and at < len(items) else None


def _write_lists(entries: list[Entry]) -> Json:
    listed = [
        None if entry.alternatives is None else {each.token: each.logprob for each in entry.alternatives}
        for entry in entries
    ]
    return {
        "text_offset": [entry.offset for entry in entries],
        "token_logprobs": [entry.logprob for entry in entries],
        "tokens": [entry.token for entry in entries],
        "top_logprobs": None if all(each is None for each in listed) else listed,
    }
