"""Media in messages: pictures, sound and documents, by what they are and not by what they are called.

A part of a message holds media only where its protocol puts them: in a part of such a `type`, in a field for a payload,
and there as a `data:` URL or as bare base64. Everything else in such a part is text: file names, descriptions,
transcripts, addresses; so is a payload that is no base64, or too short to be a file.

A payload that encodes text (`data:text/plain`, SVG, a file in base64 that is UTF-8) is text in an envelope.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

# characters of base64 that may be media; the smallest pictures in use, of one pixel, have 48 and more
MIN_PAYLOAD = 48
_SLICE = 64 * 1024  # bytes that are decoded at once

# The types of parts that hold media. A part without a `type` is one of these if it has a field of such a name.
MEDIA_PARTS = frozenset(
    {
        *("image_url", "input_image", "image", "image_embeds", "video_url", "input_video", "video"),
        *("audio_url", "input_audio", "audio", "audio_embeds", "file", "input_file", "document", "media"),
    }
)
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
# Where in such a part, at any depth, the protocols put a payload.
PAYLOAD_FIELDS = MEDIA_PARTS | {"url", "data", "file_data", "b64_json", "source", "inline_data"}
# The field of a message in which parts stand, and those in which media stand without being a part of a type.
_PARTS = "content"
_MEDIA = frozenset({"images", "audio"})

_PARAMETERS = 200  # characters; a longer head is none
_HEAD = re.compile("data:([a-z]+/[a-z0-9.+-]+)?((?:;[^,;]*)*?)(;base64)?,", re.IGNORECASE)
_USUAL_PARAMETERS = re.compile("(?:; ?(?:charset|codecs)=[a-z0-9._-]{1,20})*", re.IGNORECASE)
_CHARSET = re.compile("charset=[a-z0-9._-]*", re.IGNORECASE)
_BASE64 = re.compile("[A-Za-z0-9+/]+={0,2}")

_MEDIA_TYPES = frozenset({"image", "audio", "video", "font", "model"})
# Of `application`, what is no text by its name; what no list names is judged by its bytes.
_MEDIA_APPLICATIONS = re.compile(
    r"application/(?:pdf|zip|gzip|msword|ogg|x-(?:tar|7z-compressed|bzip2?)|vnd\.(?:ms-|openxmlformats-|oasis\.).*)"
)
_TEXT_SUFFIX = re.compile(r".*\+(?:xml|json|yaml)")
_NOT_IN_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class Envelope(NamedTuple):
    """A text as a payload encodes it: after `head`, in base64 or percent-encoded. `parameters` are those of the head
    that may be anything, such as a file's name: text, too."""

    head: str
    parameters: str
    text: str
    base64: bool

    def encoded(self, parameters: str, text: str) -> str:
        """The payload that encodes `text`, in UTF-8, with these parameters."""
        head = self.head
        if self.parameters:
            head = head.replace(self.parameters, parameters.replace(",", " "), 1)
        # The head's charset may not hold for the new text.
        head = _CHARSET.sub("charset=utf-8", head)
        if not self.base64:
            return head + quote(text, errors="replace")
        return head + binascii.b2a_base64(text.encode("utf-8", "replace"), newline=False).decode("ascii")


def payload_places(message: Any) -> Iterator[tuple[Any, Any]]:
    """Where in a message or delta a payload may stand, as (holder, key); `holder[key]` is a string.

    Names of fields count in any case, as some servers read them. Takes one step for each value in `content`,
    `images` and `audio`, and no recursion. The strings may be changed while it runs.
    """
    if not isinstance(message, dict):
        return
    # An object or list, and whether what is in it is media.
    waiting = [
        (value, field.casefold() in _MEDIA)
        for field, value in message.items()
        if isinstance(value, list | dict) and (field.casefold() == _PARTS or field.casefold() in _MEDIA)
    ]
    while waiting:
        holder, media = waiting.pop()
        if isinstance(holder, dict):
            media = _holds_media(holder, media)
        for key, value in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(value, list | dict):
                waiting.append((value, media))
            elif media and isinstance(value, str) and (isinstance(key, int) or key.casefold() in PAYLOAD_FIELDS):
                yield holder, key


def _holds_media(part: dict[str, Any], within_media: bool) -> bool:
    kind = part.get("type")
    if isinstance(kind, str):
        return kind not in TEXT_PARTS and (within_media or kind in MEDIA_PARTS)
    return within_media or not MEDIA_PARTS.isdisjoint(map(str.casefold, part))


def is_media(value: str) -> bool:
    """Is the string at one of the `payload_places` a picture, sound or document, which must not be changed?

    Linear in the value: some 3 ms for a million characters.
    """
    return classify(value) is True


def envelope(value: str) -> Envelope | None:
    """The text that the string at one of the `payload_places` encodes; None if it is media, or text as it stands."""
    found = classify(value)
    return found if isinstance(found, Envelope) else None


def classify(value: str) -> Envelope | bool:
    """The envelope of a text that the string at one of the `payload_places` is; True for media, False for text."""
    head = _HEAD.match(value, 0, _PARAMETERS)
    if head is None:
        return _is_base64(value, 0) and (_in_envelope(None, "", binascii.a2b_base64(value)) or True)
    media_type = (head[1] or "text/plain").lower()
    start = head.end()
    if head[3] is None:
        # Media are never percent-encoded.
        return _in_envelope(head, media_type, _percent_decoded(value[start:])) or False
    if not _is_media_type(media_type):
        data = _decoded(value[start:])
        if data is not None and (found := _in_envelope(head, media_type, data)) is not None:
            return found
    return _is_base64(value, start) and _USUAL_PARAMETERS.fullmatch(head[2]) is not None


def _is_base64(value: str, start: int) -> bool:
    length = len(value) - start
    return length >= MIN_PAYLOAD and length % 4 == 0 and _BASE64.fullmatch(value, start) is not None


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


def _decoded(payload: str) -> bytes | None:
    """As readers of such URLs do it: white space and missing padding are forgiven, and both alphabets are read."""
    payload = "".join(payload.split()).replace("-", "+").replace("_", "/").rstrip("=")
    if len(payload) % 4 == 1 or (payload and _BASE64.fullmatch(payload) is None):
        return None
    return binascii.a2b_base64(payload + "=" * (-len(payload) % 4))


def _is_media_type(name: str) -> bool:
    if _TEXT_SUFFIX.fullmatch(name):
        return False
    return name.partition("/")[0] in _MEDIA_TYPES or _MEDIA_APPLICATIONS.fullmatch(name) is not None


def _in_envelope(head: re.Match[str] | None, media_type: str, data: bytes) -> Envelope | None:
    """None for bytes that are no text."""
    is_text = media_type.startswith("text/")
    try:
        text = data.decode("utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8")
    except UnicodeError:
        if not is_text:
            return None
        text = data.decode("latin-1")
    if not is_text and _NOT_IN_TEXT.search(text):
        return None
    if head is None:
        return Envelope("", "", text, True)
    usual = _USUAL_PARAMETERS.fullmatch(head[2])
    return Envelope(head[0], "" if usual else head[2], text, head[3] is not None)
