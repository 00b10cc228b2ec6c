"""`portcullis scan`: the censor over standard input, text or JSON chunks, released as soon as it is safe."""

from __future__ import annotations

import codecs
import json
import sys
from typing import BinaryIO

from gateway.censor.compile import Program
from gateway.censor.stream import Censor
from gateway.exits import BLOCKED, CHANGED, DONE, USAGE

_READ = 64 * 1024


def scan(program: Program | None, source: BinaryIO, sink: BinaryIO, *, chunks: bool) -> int:
    """Returns the exit status: 0 pass, 1 redacted or flagged, 3 blocked, 2 for input that cannot be read."""
    censor = Censor(program)
    if chunks:
        return _scan_chunks(censor, source, sink)
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    read = getattr(source, "read1", source.read)
    while data := read(_READ):
        _write(sink, censor.feed(decoder.decode(data)))
        if censor.ended:
            break
    _write(sink, censor.feed(decoder.decode(b"", final=True)) + censor.finish())
    if censor.blocked is not None:
        message = f": {censor.blocked.message}" if censor.blocked.message else ""
        print(f"portcullis: blocked by rule {censor.blocked.id!r}{message}", file=sys.stderr)
    return _status(censor)


def _scan_chunks(censor: Censor, source: BinaryIO, sink: BinaryIO) -> int:
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
        _write_line(sink, {"release": censor.feed(delta)})
    rest = censor.finish()
    matches = [
        {"rule": match.rule, "start": match.start, "end": match.end, "action": match.action}
        for match in sorted(censor.matches, key=lambda match: (match.start, match.end))
    ]
    verdict = verdict_of(censor)
    _write_line(
        sink,
        {"end": True, "release": rest, "verdict": verdict, "matches": matches, "truncated": censor.truncated},
    )
    return _status(censor)


def verdict_of(censor: Censor) -> str:
    """What the rules did to a text that has ended: pass, flagged, redacted or blocked."""
    if censor.blocked is not None:
        return "blocked"
    if censor.replaced:
        return "redacted"
    return "flagged" if censor.matches else "pass"


def _status(censor: Censor) -> int:
    return {"pass": DONE, "blocked": BLOCKED}.get(verdict_of(censor), CHANGED)


def _write(sink: BinaryIO, text: str) -> None:
    if text:
        sink.write(text.encode("utf-8"))
        sink.flush()


def _write_line(sink: BinaryIO, value: dict[str, object]) -> None:
    sink.write(json.dumps(value, ensure_ascii=False).encode("utf-8") + b"\n")
    sink.flush()
