"""Media in messages: images, audio and documents, recognised by content and not by declared type.

A payload stands where protocols put one: in a field of such a name, in an object that is a part of such a `type` or has
such a field, as a `data:` URL or as bare base64. Everything else there is text: file names, descriptions, transcripts,
addresses. A payload is

    media              base64 of bytes that no text has, at least `MIN_PAYLOAD` characters of it: those of a known file
                       format, in any field that the protocols do not name, too; or any, if a media type is declared or
                       the field is none for addresses
    text in an envelope   percent-encoded, or base64 of text, whatever type is declared; of what follows a format's
                       signature, too, but for documents that consist of characters (PDF)
    text as it stands  all else
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

from gateway.wire.message import KNOWN_NAMES
from gateway.wire.names import named

# characters of base64 that may be media by their type alone; the smallest pictures in use have 48 and more
MIN_PAYLOAD = 48
JUDGED = 1024  # bytes of a payload of no known format that tell whether most of it is text
_SLICE = 64 * 1024  # bytes that are decoded at once

# The types of parts that hold media. A part of a `type` that is not known, or without one, is one of these if it has a
# field of such a name.
MEDIA_PARTS = named("media", "parts")
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
# Where in such a part, at any depth, the protocols put a payload.
_PICTURES = frozenset({"b64_json", "image_base64", "screenshot", "thumbnail"})
PAYLOAD_FIELDS = MEDIA_PARTS | _PICTURES | {"url", "data", "file_data", "source", "blob", "base64"}
# Fields of a message itself in which a known format stands without anything that says so. A document may be a text.
_OF_MESSAGES = (MEDIA_PARTS | _PICTURES) - {"document", "file", "media"}
_ADDRESSES = frozenset({"url", "image_url", "video_url", "audio_url"})  # of these; a path looks like base64
# Fields of a message in which media stand without being a part of a type, and those that hold none.
_MEDIA = MEDIA_PARTS | {"images"}
_NO_MEDIA = frozenset({"tool_calls", "function_call", "annotations"})
# Fields beside a payload that say what it is: by its media type, or by its format.
_TYPES = ("media_type", "mime_type", "mimetype")
_DECLARING = (*_TYPES, "content_type", "format", "file_type")
_TELLING = MEDIA_PARTS.union(_TYPES)  # an object with such a field holds media
_FORMATS = named("media", "formats")
OPAQUE = "application/octet-stream"  # bytes that are no text
ONLY_KNOWN = "*"  # is declared where nothing but a `data:` URL or a known format is a payload

_URL = "data:"
_PARAMETERS = 200  # characters; a longer head is none
_HEAD = re.compile("data:([a-z]+/[a-z0-9.+-]+)?((?:;[^,;]*)*?)(;base64)?,", re.IGNORECASE)
_USUAL_PARAMETERS = re.compile("(?:; ?(?:charset|codecs)=[a-z0-9._-]{1,20})*", re.IGNORECASE)
_CHARSET = re.compile("charset=[a-z0-9._-]*", re.IGNORECASE)
_MEDIA_TYPE = re.compile(r"[a-z]+/[a-z0-9.+-]{1,80}")
_BASE64 = re.compile("(?:[A-Za-z0-9+/]+|[A-Za-z0-9_-]+)={0,2}")
_OF_ADDRESSES = str.maketrans("-_", "+/")
_LINE = range(60, 81)  # characters of base64 that is written in lines

_TEXT_TYPES = re.compile(
    r"text/.*|.*\+(?:xml|json|yaml)"
    r"|application/(?:json|xml|yaml|toml|rtf|sql|graphql|javascript|ecmascript|x-(?:sh|yaml|ndjson|javascript)|jsonl)"
)
_OF_CHARACTERS = frozenset({"application/pdf", "application/postscript"})  # media that need no other bytes
_NOT_IN_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_BOMS = (b"\xff\xfe", b"\xfe\xff")
# How files of the formats in use begin.
_SIGNATURE = re.compile(
    rb"\x89PNG\r\n\x1a\n|\xff\xd8\xff|GIF8[79]a|RIFF....(?:WEBP|WAVE|AVI )|BM....\0\0\0\0|II\*\0|MM\0\*"
    rb"|\0\0[\x01\x02]\0|....ftyp|\0\0\0\x0cJXL |ID3[\x02-\x04]|OggS\0|fLaC|\x1aE\xdf\xa3|FORM....AIF|\.snd|FLV\x01"
    rb"|\0\0\x01[\xb3\xba]|%PDF-|%!PS-|PK\x03\x04|\x1f\x8b\x08|\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1|7z\xbc\xaf\x27\x1c|BZh[1-9]1AY|Rar!\x1a\x07"
    rb"|\xfd7zXZ\0|\x28\xb5\x2f\xfd|wOF[F2]|OTTO|\0\x01\0\0|glTF|\x93NUMPY",
    re.DOTALL,
)
_FORM_OF_MP4 = (binascii.b2a_base64(bytes((0, 0, 0, size)) + b"ftyp")[:10].decode() for size in range(16, 68, 4))
# How base64 of the most usual ones begins, where nothing says that it is media, by the first character.
_BEGINNINGS: dict[str, tuple[str, ...]] = {}
for _each in (
    "iVBORw0KGg", "/9j/", "R0lGODdh", "R0lGODlh", "UklGR", "SUkqA", "TU0AK", "SUQz", "T2dnUw", "ZkxhQ", "GkXfo",
    "JVBERi0", "UEsDB", "H4sI", "0M8R4KGxGu", "N3q8rycc", "/Td6WFo", "KLUv/", "UmFyIRoH", "d09GR", "d09GMg", "Z2xURg",
    *_FORM_OF_MP4,
):  # fmt: skip
    _BEGINNINGS[_each[0]] = (*_BEGINNINGS.get(_each[0], ()), _each)
_MOSTLY = 0.75  # of the characters; of bytes at random some 0.4 can be printed


class PayloadPlace(NamedTuple):
    """`holder[key]` is a string that may be a payload; `declared` the media type that it is said to have, if any."""

    holder: Any
    key: Any
    declared: str


class Envelope(NamedTuple):
    """A text as a payload encodes it: after `head`, in base64 or percent-encoded. `parameters` are those of the head
    that may be anything, such as a file's name: text, too. With `media`, the payload itself, they are the only text.
    `doubtful`: the payload as it stands may be text that happens to decode to something."""

    head: str
    parameters: str
    text: str
    base64: bool
    media: str = ""
    doubtful: bool = False

    def encoded(self, parameters: str, text: str) -> str:
        """The payload that encodes `text`, in UTF-8, with these parameters."""
        head = self.head
        if self.parameters:
            head = head.replace(self.parameters, parameters.replace(",", " "), 1)
        if self.media:
            return head + self.media
        # The head's charset may not hold for the new text.
        head = _CHARSET.sub("charset=utf-8", head)
        if not self.base64:
            return head + quote(text, errors="replace")
        return head + binascii.b2a_base64(text.encode("utf-8", "replace"), newline=False).decode("ascii")


def payload_places(message: Any) -> Iterator[PayloadPlace]:
    """Where in a message or delta, or in the fields of a request, a payload may stand.

    Names of fields count in any case, as some servers read them. A `data:` URL may stand in every field that the
    protocol does not name. Takes one step for each value, and no recursion. The strings may be changed while it runs.
    """
    if not isinstance(message, dict):
        return
    kind = message.get("type")
    # An object or list, and whether what is in it is media.
    waiting: list[tuple[Any, bool]] = [(message, True)] if isinstance(kind, str) and kind in MEDIA_PARTS else []
    for field, value in message.items() if not waiting else ():
        name = field.casefold()
        if isinstance(value, list | dict):
            waiting += [(value, name in _MEDIA)] * (name not in _NO_MEDIA)
        elif isinstance(value, str) and (name in _OF_MESSAGES or (name not in KNOWN_NAMES and may_be_payload(value))):
            yield PayloadPlace(message, field, "" if name in _OF_MESSAGES else ONLY_KNOWN)
    while waiting:
        holder, media = waiting.pop()
        if isinstance(holder, dict):
            media = _holds_media(holder, media)
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, list | dict):
                waiting.append((value, media))
            elif not isinstance(value, str):
                continue
            elif media and (isinstance(key, int) or key.casefold() in PAYLOAD_FIELDS):
                yield PayloadPlace(holder, key, declared_at(holder, key))
            elif may_be_payload(value) and (isinstance(key, int) or is_unnamed(holder, key.casefold())):
                yield PayloadPlace(holder, key, ONLY_KNOWN)


def may_be_payload(value: str) -> bool:
    """A `data:` URL or base64 of a known format, or the first characters of one."""
    if not value:
        return False
    begun = _BEGINNINGS.get(value[0], ())
    return _URL.startswith(value[: len(_URL)].lower()) or any(each.startswith(value[: len(each)]) for each in begun)


def is_unnamed(holder: dict[str, Any], name: str) -> bool:
    """Is it a field that the protocols do not name? `content` of a file is none of a message or a part."""
    return name not in KNOWN_NAMES or (name == "content" and holder.keys().isdisjoint(("type", "role")))


def _holds_media(part: dict[str, Any], within_media: bool) -> bool:
    kind = part.get("type")
    if isinstance(kind, str) and (kind in TEXT_PARTS or kind in MEDIA_PARTS):
        return kind in MEDIA_PARTS
    return within_media or not _TELLING.isdisjoint(map(str.casefold, part))


def payload_at(holder: dict[str, Any], name: str, undeclared: str = OPAQUE) -> str | None:
    """What is declared of a string in an object that is complete; None where no payload stands."""
    kind = holder.get("type")
    if name.casefold() in PAYLOAD_FIELDS and not (isinstance(kind, str) and kind in TEXT_PARTS):
        return declared_at(holder, name, undeclared)
    return ONLY_KNOWN if may_be_payload(holder[name]) else None


def declared_at(holder: Any, key: Any, undeclared: str = OPAQUE) -> str:
    """The media type of a payload: the one that stands beside it, or `undeclared` where no address stands."""
    for name, value in holder.items() if isinstance(holder, dict) else ():
        if isinstance(value, str) and name.casefold() in _DECLARING:
            value = value.partition(";")[0].strip().lower()
            if _MEDIA_TYPE.fullmatch(value):
                return value
            if value in _FORMATS:
                return OPAQUE
    return "" if isinstance(key, str) and key.casefold() in _ADDRESSES else undeclared


def is_opaque(value: str) -> bool:
    """Is a payload that says nothing to a client one that cannot be read as text?"""
    return classify(value, OPAQUE) is True


def envelope(value: str, declared: str = "") -> Envelope | None:
    """The text that the string at one of the `payload_places` encodes; None if it is media, or text as it stands."""
    found = classify(value, declared)
    return found if isinstance(found, Envelope) else None


def classify(value: str, declared: str = "") -> Envelope | bool:
    """The envelope of a text that the string at one of the `payload_places` is; True for media, False for text.
    `declared` is the media type that it is said to have. Linear in the value: some 3 ms for a million characters."""
    head = _HEAD.match(value, 0, _PARAMETERS)
    start, media_type, parameters = 0, declared, ""
    if head is not None:
        start, media_type = head.end(), (head[1] or "text/plain").lower()
        parameters = "" if _USUAL_PARAMETERS.fullmatch(head[2]) else head[2]
        if head[3] is None:
            # Media are never percent-encoded.
            text = _plain(_percent_decoded(value[start:]))
            return False if text is None else Envelope(head[0], parameters, text, False)
    is_text = _TEXT_TYPES.fullmatch(media_type) is not None
    payload = value[start:]
    if head is None and media_type == ONLY_KNOWN:
        media_type = ""
        if not may_be_payload(value):
            return False
    if head is None and not is_text and len(payload) < MIN_PAYLOAD:
        return False
    data = _decoded(payload, forgiving=is_text)
    if not data:
        return False
    text = _text_of(data, media_type)
    if text is not None:
        return Envelope(value[:start], parameters, text, True, doubtful=len(payload) < MIN_PAYLOAD)
    is_known = _SIGNATURE.match(data) is not None
    if not is_known and media_type.startswith("text/"):
        return Envelope(value[:start], parameters, data.decode("latin-1"), True, doubtful=True)
    if len(payload) < MIN_PAYLOAD or not (is_known or (media_type and not is_text)):
        return False
    return Envelope(value[:start], parameters, "", True, payload) if parameters else True


def foresee(value: str, declared: str = "") -> bool | None:
    """What `classify` will say, however the value continues in base64: True for media, False for plain text, None
    if it is not certain yet."""
    head = _HEAD.match(value, 0, _PARAMETERS)
    start, media_type = 0, "" if declared == ONLY_KNOWN else declared
    if head is not None:
        start, media_type = head.end(), (head[1] or "text/plain").lower()
        if head[3] is None or not _USUAL_PARAMETERS.fullmatch(head[2]):
            return None
    payload = "".join(value[start:].split())
    data = _decoded(payload[: len(payload) // 4 * 4]) if len(payload) >= MIN_PAYLOAD else None
    if not data:
        return None
    signature = _SIGNATURE.match(data)
    if signature is not None:
        return True if media_type in _OF_CHARACTERS or _breaks_text(data[signature.end() :]) else None
    if len(data) < JUDGED or not _breaks_text(data) or _is_mostly_text(data):
        return None
    return None if media_type.startswith("text/") else media_type != "" and not _TEXT_TYPES.fullmatch(media_type)


# -- bytes -------------------------------------------------------------------------------------------------------------


def _percent_decoded(payload: str) -> bytes:
    """In slices: the library makes an object for each escape, some hundred bytes large."""
    data, decoded, at = payload.encode("utf-8", "replace"), bytearray(), 0
    while at < len(data):
        end = at + _SLICE
        cut = data.rfind(b"%", end - 2, end)  # no escape is cut in two
        end = cut if cut > at else end
        decoded += unquote_to_bytes(data[at:end])
        at = end
    return bytes(decoded)


def _decoded(payload: str, forgiving: bool = False) -> bytes | None:
    """The bytes that base64 of either alphabet says, with or without padding, in one line or in lines of one length;
    None if it is none. With `forgiving` white space may stand anywhere, as readers of texts in such URLs take it."""
    if forgiving or _is_in_lines(payload):
        payload = "".join(payload.split())
    digits = payload.rstrip("=")
    if len(digits) % 4 == 1 or (payload and _BASE64.fullmatch(payload) is None):
        return None
    if "-" in digits or "_" in digits:
        digits = digits.translate(_OF_ADDRESSES)
    return binascii.a2b_base64(digits + "=" * (-len(digits) % 4))


def _is_in_lines(payload: str) -> bool:
    length = payload.find("\n")
    if length < 0:
        return False
    *lines, last = payload.split("\n")
    is_regular = set(map(len, lines)) == {length} and len(last) <= length
    return is_regular and length - payload[:length].endswith("\r") in _LINE


# -- texts -------------------------------------------------------------------------------------------------------------


def _text_of(data: bytes, media_type: str) -> str | None:
    """The text that bytes say, whatever they are declared to be; None for those of media."""
    signature = _SIGNATURE.match(data)
    if signature is not None:
        body = data[signature.end() :]
        is_text = media_type not in _OF_CHARACTERS and body and _plain(body) is not None
        return data.decode("utf-8", "replace") if is_text else None
    text = _plain(data)
    if text is not None or not _is_mostly_text(data):
        return text
    text = data.decode("utf-8", "replace")
    unread = text.count("\ufffd")
    return data.decode("latin-1") if 2 * unread > sum(char > "\x7f" for char in text) else text


def _plain(data: bytes) -> str | None:
    """A text in UTF-8 or UTF-16 without control characters."""
    for encoding in (_utf_16_of(data), "utf-8"):
        if encoding:
            try:
                text = data.decode(encoding)
            except UnicodeError:
                continue
            if not _NOT_IN_TEXT.search(text):
                return text
    return None


def _utf_16_of(data: bytes) -> str:
    """Which UTF-16 bytes may be: by their mark, or by the zeros in every other place; empty if none."""
    if data.startswith(_BOMS):
        return "utf-16"
    beginning = data[: min(len(data) // 2 * 2, 64)]
    for encoding, zeros in (("utf-16-le", data[1:64:2]), ("utf-16-be", data[:64:2])):
        is_likely = len(zeros) > 1 and zeros.count(0) >= _MOSTLY * len(zeros)
        if is_likely and not _NOT_IN_TEXT.search(beginning.decode(encoding, "replace")):
            return encoding
    return ""


def _breaks_text(data: bytes) -> bool:
    """Are these the first bytes of something that `_plain` takes for no text?"""
    if _utf_16_of(data):
        return False
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        if error.reason != "unexpected end of data":
            return True
        text = data[: error.start].decode()
    return _NOT_IN_TEXT.search(text) is not None


def _is_mostly_text(data: bytes) -> bool:
    beginning = data[:JUDGED].decode("utf-8", "replace")
    printed = sum(char.isprintable() or char in "\t\n\r" for char in beginning) - beginning.count("\ufffd")
    return bool(beginning) and printed >= _MOSTLY * len(beginning)
