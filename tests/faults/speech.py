"""What an upstream says in a fault, drawn from the seed: filler with the forbidden word in it, spelled and cut at
random; and in the most naive way what a client may get of it."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise
from random import Random

from tests.support.upstream import DONE, END, Call, chunk, completion, delta, event, plain, stream_head

LENGTH = 10  # characters of a forbidden word
TAIL = 6  # of them at the end of an answer are held to be the word: 60 %
REPLACEMENT = "[GONE]"
FILLER = [
    "the",
    "tram",
    "left",
    "at",
    "noon",
    "and",
    "nobody",
    "on",
    "the",
    "platform",
    "saw",
    "where",
    "it",
    "went",
    "after",
    "the",
    "bridge",
]
_LETTERS = "QXZJKV0123456789"
INVISIBLE = "\u200b\u2060\ufeff"


def draw_word(rng: Random) -> str:
    """A word of which no part is in the filler."""
    return rng.choice("QXZJKV") + "".join(rng.choice(_LETTERS) for _ in range(LENGTH - 1))


@dataclass(frozen=True, slots=True)
class Speech:
    """`pieces` are the deltas of an answer whose `text` ends in the beginning of the word, too short to be held."""

    word: str
    text: str
    pieces: tuple[str, ...]

    @property
    def events(self) -> list[bytes]:
        return [event(delta(piece)) for piece in self.pieces]

    @property
    def begun(self) -> bytes:
        """Some of it, as the chunks of a response whose head was sent."""
        half = self.events[: max(1, len(self.pieces) // 2)]
        return b"".join(chunk(each) for each in half)

    @property
    def rest(self) -> bytes:
        """What follows `begun`, to the end."""
        half = self.events[max(1, len(self.pieces) // 2) :]
        return b"".join(chunk(each) for each in [*half, event(delta(finish="stop")), DONE])

    @property
    def censored(self) -> str:
        return censored(self.text, self.word)

    def may_get(self) -> set[str]:
        """What a client may have got, wherever the answer broke off."""
        return {censored(self.text[:end], self.word) for end in range(len(self.text) + 1)}


def draw_speech(rng: Random, word: str) -> Speech:
    said = [rng.choice(FILLER) for _ in range(rng.randint(12, 30))]
    for at in sorted(rng.sample(range(1, len(said)), 3)):
        said.insert(at, _spelled(rng, word))
    text = " ".join(said) + " " + word[: rng.randint(1, 3)]
    cuts = sorted({0, len(text), *(rng.randrange(len(text)) for _ in range(rng.randint(4, 40)))})
    return Speech(word, text, tuple(text[a:b] for a, b in pairwise(cuts)))


def _spelled(rng: Random, word: str) -> str:
    """As the default lens sees it: in any case, full width, with characters that are not seen."""
    letters = []
    for letter in word:
        letter = rng.choice((letter, letter.lower()))
        if rng.random() < 0.1:
            letter = chr(ord(letter) + 0xFEE0)
        letters.append(letter + (rng.choice(INVISIBLE) if rng.random() < 0.1 else ""))
    return "".join(letters).rstrip(INVISIBLE)


def seen(text: str) -> str:
    """A text as a reader takes it in: every character by itself, so that offsets stay."""
    return "".join(unicodedata.normalize("NFKC", each).casefold()[:1] or each for each in text)


def censored(text: str, word: str) -> str:
    shown, hidden = seen(text), f"[{INVISIBLE}]*"
    spelled = [re.escape(letter) for letter in word.casefold()]
    whole = hidden.join(spelled)
    tails = (hidden.join(spelled[:length]) + f"(?={hidden}$)" for length in range(LENGTH - 1, TAIL - 1, -1))
    out, end = "", 0
    for found in re.finditer("|".join([whole, *tails]), shown):
        out += text[end : found.start()] + REPLACEMENT
        end = found.end()
    return out + text[end:]


def leaks(text: str, word: str) -> int:
    """How often the word is in a text, or so much of its beginning that it counts as the word."""
    bare = re.sub(f"[{INVISIBLE}]", "", seen(text))
    return bare.count(word.casefold()[:TAIL])


async def whole_answer(call: Call, speech: Speech) -> None:
    """A scene: an upstream that answers as it is asked to."""
    if call.body["stream"]:
        await call.send(stream_head() + speech.begun + speech.rest + END)
    else:
        await call.send(plain(completion(speech.text)))
