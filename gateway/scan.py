"""`portcullis scan`: the guard over standard input, text or JSON chunks, released as soon as it is safe."""

from __future__ import annotations

import codecs
import json
import sys
from typing import BinaryIO

from gateway.censor.compile import CompiledPolicy
from gateway.censor.nested import NestedCensor
from gateway.censor.stream import Censor
from gateway.exits import BLOCKED, CHANGED, DONE, USAGE
from gateway.guard.channels import ChannelCounts
from gateway.guard.guardedjson import GuardedJson
from gateway.policy.model import Channel, Direction
from gateway.wire.fences import ContentReader
from gateway.wire.jsonreader import MAX_NESTED, JsonReader
from gateway.wire.jsontext import escaped

_READ = 64 * 1024


class ScannedText:
    """The text of a channel, read as the gateway reads it: arguments of tools as JSON, whose strings and numbers are
    texts of their own, and an answer's content with the escapes of JSON in it. `censor` has the matches, by their
    places in the text as it is written."""

    def __init__(self, compiled: CompiledPolicy, direction: Direction, channel: Channel) -> None:
        program = compiled.program(direction, channel)
        self.censor = Censor(program)
        self._json: GuardedJson | None = None
        if program is not None and channel is Channel.TOOL_ARGUMENTS:
            # What comes out is JSON re-encoded, in which nothing has its old place.
            self._json = GuardedJson(ChannelCounts(compiled, direction), channel)
            self.censor = NestedCensor(program, JsonReader(nested=MAX_NESTED + 1, wanted=True), escaped)
        elif program is not None and channel is Channel.CONTENT and direction is Direction.OUTPUT:
            self.censor = NestedCensor(program, ContentReader(), escaped)

    def feed(self, text: str) -> str:
        out = self.censor.feed(text)
        return out if self._json is None else self._json.feed(text)

    def finish(self) -> str:
        out = self.censor.finish()
        return out if self._json is None else self._json.finish()


def scan(text: ScannedText, source: BinaryIO, sink: BinaryIO, *, chunks: bool) -> int:
    """Returns the exit status: 0 pass, 1 redacted or flagged, 3 blocked, 2 for input that cannot be read."""
    if chunks:
        return _scan_chunks(text, source, sink)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    read = getattr(source, "read1", source.read)
    while data := read(_READ):
        _write(sink, text.feed(decoder.decode(data)))
        if text.censor.ended:
            break
    _write(sink, text.feed(decoder.decode(b"", final=True)) + text.finish())
    if (rule := text.censor.blocked) is not None:
        message = f": {rule.message}" if rule.message else ""
        print(f"portcullis: blocked by rule {rule.id!r}{message}", file=sys.stderr)
    return _status(text)


def _scan_chunks(text: ScannedText, source: BinaryIO, sink: BinaryIO) -> int:
    for number, line in enumerate(source, start=1):
        if not line.strip():
            continue
        try:
            delta = json.loads(line)
        except (ValueError, RecursionError):
            delta = None
        if not isinstance(delta, str):
            print(f"portcullis: standard input line {number}: not a JSON string", file=sys.stderr)
            return USAGE
        _write_line(sink, {"release": text.feed(delta)})
    rest = text.finish()
    matches = [
        {"rule": match.rule, "start": match.start, "end": match.end, "action": match.action}
        for match in sorted(text.censor.matches, key=lambda match: (match.start, match.end))
    ]
    end = {"end": True, "release": rest, "verdict": verdict_of(text.censor), "matches": matches}
    _write_line(sink, {**end, "truncated": text.censor.truncated})
    return _status(text)


def verdict_of(censor: Censor) -> str:
    """What the rules did to a text that has ended: pass, flagged, redacted or blocked."""
    if censor.blocked is not None:
        return "blocked"
    if censor.replaced:
        return "redacted"
    return "flagged" if censor.matches else "pass"


def _status(text: ScannedText) -> int:
    return {"pass": DONE, "blocked": BLOCKED}.get(verdict_of(text.censor), CHANGED)


def _write(sink: BinaryIO, text: str) -> None:
    if text:
        sink.write(text.encode("utf-8"))
        sink.flush()


def _write_line(sink: BinaryIO, value: dict[str, object]) -> None:
    sink.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")
    sink.flush()
