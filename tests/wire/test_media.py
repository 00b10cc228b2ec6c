"""Media in messages: what is a picture, what is text, and what is text in an envelope."""

from __future__ import annotations

import base64
import tracemalloc
from typing import Any

import pytest

from gateway.wire.media import MIN_PAYLOAD, Envelope, classify, envelope, foresee, payload_places

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"  # one pixel
PDF = base64.b64encode(b"%PDF-1.4\n" + b"1 0 obj << /Type /Catalog >> endobj\n" * 3).decode()


def encoded(text: str, encoding: str = "utf-8") -> str:
    return base64.b64encode(text.encode(encoding)).decode()


MEDIA = {
    "base64": PNG,
    "one pixel": GIF,
    "url": f"data:image/png;base64,{PNG}",
    "sound with a codec": f"data:audio/webm;codecs=opus;base64,{PNG}",
    "capitals": f"DATA:Image/PNG;BASE64,{PNG}",
    "a document of plain characters": f"data:application/pdf;base64,{PDF}",
    "no type that a list names": f"data:application/octet-stream;base64,{PNG}",
    "without padding": PNG.rstrip("="),
    "in lines": "\n".join(PNG[at : at + 76] for at in range(0, len(PNG), 76)),
    "the other alphabet": base64.urlsafe_b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(130, 255))).decode(),
    "of no known format": f"data:audio/pcm;base64,{base64.b64encode(bytes(range(130, 230))).decode()}",
    "with texts in it": "data:image/jpeg;base64," + encoded("\xff\xd8\xff\xe1 xmp\0" + "12MONKEYS " * 9, "latin-1"),
}
TEXT = {
    "a word": "12MONKEYS",
    "words": "12MONKEYS and what they did " * 10,
    "an address": "https://example.org/" + "a" * 60,
    "too short": PNG[: MIN_PAYLOAD - 4],
    "too short, url": f"data:image/png;base64,{PNG[: MIN_PAYLOAD - 4]}",
    "no whole bytes": PNG[:61],
    "both alphabets": "/" + PNG[:59] + "-" + PNG[60:],
    "a line break": PNG[:40] + "\n" + PNG[40:128],
    "lines of several lengths": PNG[:64] + "\n" + PNG[64:124] + "\n" + PNG[124:],
    "blanks": PNG[:64] + " " + PNG[64:128],
    "bytes of no known format": base64.b64encode(bytes(range(130, 230))).decode(),
    "words without blanks": "/files/12MONKEYS/" + "a" * 43,
    "padding within": PNG[:62] + "==" + PNG[:64],
    "not base64": f"data:image/png,{PNG}!",
    "a head too long": f"data:image/{'a' * 300};base64,{PNG}",
    "empty": "",
    "empty url": "data:image/png;base64,",
    "a lone surrogate": "data:,\ud800",
}
# What it encodes, and the value.
ENVELOPES = {
    "plain": ("12MONKEYS", "data:text/plain,12MONKEYS"),
    "no type": ("12MONKEYS", "data:,12MONKEYS"),
    "percent": ("12MONKEYS", "data:text/plain,12%4DONKEYS"),
    "base64": ("12MONKEYS", f"data:text/plain;base64,{encoded('12MONKEYS')}"),
    "base64 without padding": ("12MONKEY", f"data:text/plain;base64,{encoded('12MONKEY').rstrip('=')}"),
    "base64 of another alphabet": ("???>>>", "data:text/plain;base64,Pz8_Pj4-"),
    "base64 in lines": ("12MONKEYS", "data:text/plain;base64,MTJN\nT05LRVlT"),
    "charset": ("12MONKÉYS", f"data:text/plain;charset=iso-8859-1;base64,{encoded('12MONKÉYS', 'latin-1')}"),
    "utf-16": ("12MONKEYS", f"data:text/plain;base64,{encoded('12MONKEYS', 'utf-16')}"),
    "svg": ("<svg>12MONKEYS</svg>", f"data:image/svg+xml;base64,{encoded('<svg>12MONKEYS</svg>')}"),
    "svg, plain": ("<svg>12MONKEYS</svg>", "data:image/svg+xml;utf8,<svg>12MONKEYS</svg>"),
    "json": ("[12]", f"data:application/json;base64,{encoded('[12]')}"),
    "a name": ("12MONKEYS", f"data:text/plain;name=a.txt;base64,{encoded('12MONKEYS')}"),
    "no type that a list names": ("12MONKEYS", f"data:application/octet-stream;base64,{encoded('12MONKEYS')}"),
    "bare": ("12MONKEYS, " * 12, encoded("12MONKEYS, " * 12)),
    "text that calls itself a picture": ("12MONKEYS", f"data:image/png;base64,{encoded('12MONKEYS')}"),
    "sound of characters": ("12MONKEYS " * 9, f"data:audio/mpeg;base64,{encoded('12MONKEYS ' * 9)}"),
    "utf-16 without its mark": ("12MONKEYS", f"data:image/png;base64,{encoded('12MONKEYS', 'utf-16-le')}"),
    "utf-16, the other way": ("12MONKEYS", f"data:image/png;base64,{encoded('12MONKEYS', 'utf-16-be')}"),
    "with a control character": ("12MONKEYS\0", f"data:image/png;base64,{encoded('12MONKEYS' + chr(0))}"),
    "cyrillic": ("\0пароль", f"data:image/png;base64,{encoded(chr(0) + 'пароль')}"),
    "behind a picture's signature": ("GIF89a 12MONKEYS", f"data:image/gif;base64,{encoded('GIF89a 12MONKEYS')}"),
    "a document of characters, undeclared": ("%PDF-1.4 " * 9, encoded("%PDF-1.4 " * 9)),
}


@pytest.mark.parametrize("value", MEDIA.values(), ids=MEDIA)
def test_e2_media_are_no_text(value: str) -> None:
    assert classify(value) is True
    assert envelope(value) is None


@pytest.mark.parametrize("value", TEXT.values(), ids=TEXT)
def test_e3_what_is_no_media_is_text(value: str) -> None:
    assert classify(value) is not True
    opened = envelope(value)
    assert opened is None or opened.text in ("?", PNG + "!"), "percent-encoded text at most"


@pytest.mark.parametrize(("text", "value"), ENVELOPES.values(), ids=ENVELOPES)
def test_e3_text_in_an_envelope(text: str, value: str) -> None:
    opened = envelope(value)
    assert isinstance(opened, Envelope)
    assert opened.text == text
    assert classify(value) is not True
    again = envelope(opened.encoded(opened.parameters, opened.text))
    assert again is not None
    assert again.text == text, "it can be sealed again"


def test_e3_the_parameters_of_an_envelope_are_text() -> None:
    opened = envelope(f"data:text/plain;name=12MONKEYS.txt;base64,{encoded('secret')}")
    assert opened is not None
    assert opened.parameters == ";name=12MONKEYS.txt"
    sealed = opened.encoded(";name=[CENSORED].txt", "fixed")
    assert sealed == f"data:text/plain;name=[CENSORED].txt;base64,{encoded('fixed')}"


def test_a_name_beside_a_picture_is_the_only_text() -> None:
    opened = envelope(f"data:image/png;name=12MONKEYS.png;base64,{PNG}")
    assert opened is not None and (opened.parameters, opened.text) == (";name=12MONKEYS.png", "")
    assert opened.encoded(";name=[CENSORED].png", "") == f"data:image/png;name=[CENSORED].png;base64,{PNG}"


NOISE = base64.b64encode(bytes(range(130, 230))).decode()
DECLARED: dict[str, tuple[Any, bool]] = {
    "nothing": ({"data": NOISE}, True),
    "nothing, an address": ({"url": NOISE}, False),
    "a media type": ({"url": NOISE, "media_type": "audio/L16; rate=24000"}, True),
    "in other letters": ({"url": NOISE, "mimeType": "Audio/L16"}, True),
    "a format": ({"url": NOISE, "format": "pcm16"}, True),
    "no format": ({"url": NOISE, "format": "12MONKEYS"}, False),
    "text": ({"data": NOISE, "media_type": "text/plain"}, False),
}


@pytest.mark.parametrize(("given", "expected"), DECLARED.values(), ids=DECLARED)
def test_bytes_of_no_known_format_are_media_where_no_address_stands(given: Any, expected: bool) -> None:
    (place,) = payload_places({"content": [{"type": "input_audio", "input_audio": given}]})
    assert (classify(NOISE, place.declared) is True) == expected
    if given.get("media_type") == "text/plain":
        assert envelope("MTJNT05LRVlT", place.declared) == Envelope("", "", "12MONKEYS", True, doubtful=True)


@pytest.mark.parametrize("value", [*MEDIA.values(), *(value for _, value in ENVELOPES.values()), *TEXT.values(), NOISE])
@pytest.mark.parametrize("declared", ["", "image/png", "text/plain"])
def test_what_is_foreseen_of_a_beginning_is_what_the_whole_is(value: str, declared: str) -> None:
    for more in ("", "QUFB" * 500, NOISE * 20):
        whole = value + more
        for length in (*range(40, 100), *range(100, len(whole), 97)):
            foreseen = foresee(whole[:length], declared)
            holds = foreseen is None or classify(whole, declared) in (foreseen, False)
            assert holds, f"{length} of {whole[:80]}"


def test_a_sealed_text_has_the_charset_that_the_head_gives_it() -> None:
    opened = envelope(f"data:text/plain;charset=iso-8859-1;base64,{encoded('é', 'latin-1')}")
    assert opened is not None
    assert opened.encoded("", "é!") == f"data:text/plain;charset=utf-8;base64,{encoded('é!')}"


HOLDING: dict[str, Any] = {
    "image_url": {"content": [{"type": "image_url", "image_url": {"url": "HERE", "detail": "x", "alt": "x"}}]},
    "image_url, as a string": {"content": [{"type": "image_url", "image_url": "HERE"}]},
    "video_url": {"content": [{"type": "video_url", "video_url": {"url": "HERE"}}]},
    "audio_url": {"content": [{"type": "audio_url", "audio_url": {"url": "HERE"}}]},
    "input_audio": {"content": [{"type": "input_audio", "input_audio": {"data": "HERE", "transcript": "x"}}]},
    "file": {"content": [{"type": "file", "file": {"file_data": "HERE", "filename": "x"}}]},
    "image": {"content": [{"type": "image", "source": {"type": "base64", "media_type": "x", "data": "HERE"}}]},
    "document": {"content": [{"type": "document", "source": {"type": "base64", "data": "HERE"}, "title": "x"}]},
    "no type": {"content": [{"image_url": {"url": "HERE"}}]},
    "one part": {"content": {"type": "image_url", "image_url": {"url": "HERE"}}},
    "nested": {"content": [{"type": "tool_result", "content": [{"type": "image", "source": {"data": "HERE"}}]}]},
    "audio": {"audio": {"id": "x", "data": "HERE", "transcript": "x"}},
    "beside the parts": {"image_url": {"url": "HERE"}, "file": {"data": "HERE"}},
    "images": {"images": ["HERE", {"type": "image_url", "image_url": {"url": "HERE"}}, {"url": "HERE"}]},
}
HOLDING_NONE: dict[str, Any] = {
    "text": {"content": "x", "file": "x", "url": "x"},
    "a text part": {"content": [{"type": "text", "text": "x", "file": "x", "image_url": {"url": "x"}}]},
    "another part": {"content": [{"type": "other", "data": "x", "url": "x"}]},
    "a text in a document": {"content": [{"type": "document", "source": {"type": "text", "data": "x"}}]},
    "texts in images": {"images": [{"type": "text", "text": "x", "url": "x"}]},
    "a type that is no string": {"content": [{"type": {"image": 1}, "data": "x"}, {"type": ["image"], "url": "x"}]},
    "no object": ["x"],
    "nothing": {},
}


@pytest.mark.parametrize("message", HOLDING.values(), ids=HOLDING)
def test_e2_the_places_of_media(message: Any) -> None:
    found = [holder[key] for holder, key, _ in payload_places(message)]
    assert found
    assert set(found) == {"HERE"}
    assert len(found) == repr(message).count("HERE")


@pytest.mark.parametrize("message", HOLDING_NONE.values(), ids=HOLDING_NONE)
def test_e3_no_places_of_media(message: Any) -> None:
    assert list(payload_places(message)) == []


def test_deep_parts_are_walked_without_recursion() -> None:
    part: Any = {"type": "image", "data": "HERE"}
    for _ in range(5000):
        part = [part]
    assert [key for _, key, _ in payload_places({"content": part})] == ["data"]


def test_every_length_at_the_edge() -> None:
    lengths = [length for length in range(4, 80) if classify(PNG[:length]) is True]
    assert lengths == [length for length in range(MIN_PAYLOAD, 80) if length % 4 != 1]


@pytest.mark.parametrize("before", range(4))
def test_e3_an_escape_is_read_wherever_a_slice_ends(before: int) -> None:
    text = "a" * before + "é%" * 60_000
    spelled = "data:text/plain," + "a" * before + "%C3%A9%" * 60_000
    assert envelope(spelled) == Envelope("data:text/plain,", "", text, False)


def test_d26_a_text_of_escapes_takes_little_more_memory_than_it_is_long() -> None:
    value = "data:text/plain," + "%41" * 200_000
    tracemalloc.start()
    try:
        assert envelope(value) is not None
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 12 * len(value)
