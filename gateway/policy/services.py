"""The sections `limits`, `journal` and `telemetry`."""

from __future__ import annotations

from functools import partial

from gateway.policy.files import Files
from gateway.policy.key_table import (
    BOOLEAN,
    BYTES,
    NONEMPTY,
    PATH,
    SECONDS,
    SHARE,
    Form,
    Key,
    KeyTable,
    choice,
    or_reference,
    whole,
)
from gateway.policy.model import Fsync, Journal, Limits, Telemetry
from gateway.policy.urls import URL, read_http_url
from gateway.policy.value import Value

MIN_JOURNAL_KEY = 16  # characters
MAX_KEEP = 1000
MAX_STREAMS = 1_000_000


def _read_journal_key(value: Value) -> str:
    value = value.hidden().no_default()
    key = value.text()
    if len(key) < MIN_JOURNAL_KEY:
        raise value.wrong(f"at least {MIN_JOURNAL_KEY} characters", "with a short key, matched text could be guessed")
    return key


def _read_endpoint(value: Value) -> str:
    return read_http_url(value, "http://127.0.0.1:4318", "credentials do not belong in the address")


LIMITS = KeyTable(
    Limits,
    (
        Key("max_body", BYTES, "the largest request, and the largest answer that has to be read whole"),
        Key(
            "max_streams",
            whole(1, MAX_STREAMS),
            "requests for answers in flight, plain ones too; further ones get 503 with `Retry-After`",
        ),
        Key("max_event", BYTES, "the largest event of an upstream's stream"),
        Key(
            "send_timeout",
            SECONDS,
            "how long a client may take nothing of its answer before it is disconnected, to half a second. What counts "
            "is what its system acknowledges, which a slow reader's does in steps, of up to 64 KiB over loopback",
        ),
    ),
)
JOURNAL = KeyTable(
    Journal,
    (
        Key("path", PATH, "the file, relative to the configuration file; its directory must exist"),
        Key(
            "key",
            Form(
                f"text of {MIN_JOURNAL_KEY} characters or more",
                or_reference({"type": "string", "minLength": MIN_JOURNAL_KEY}),
                _read_journal_key,
            ),
            "authenticates matched text (HMAC), so that only the owner of the key can search for it",
        ),
        Key(
            "fsync",
            choice(Fsync),
            "when lines are forced to the disk: with every batch, once a second, when the system does",
        ),
        Key("max_size", BYTES, "at this size the file is closed and a new one begun"),
        Key("keep", whole(0, MAX_KEEP), "how many closed files stay"),
        Key(
            "required",
            BOOLEAN,
            "`true`: no answer without its lines; `false`: a disk that is full or slow loses lines and stops nothing",
        ),
    ),
)
TELEMETRY = KeyTable(
    Telemetry,
    (
        Key(
            "endpoint",
            Form("URL", URL, _read_endpoint),
            "the collector's address for OTLP over HTTP; without user name, query and fragment",
        ),
        Key("service", NONEMPTY, "the name that the traces carry"),
        Key("sample", SHARE, "the share of requests that begin a trace; one that comes with a trace follows that"),
    ),
)


def read_journal(value: Value, files: Files) -> Journal:
    """A relative path is one beside the configuration file. Nothing is opened. Raises `ConfigError`."""
    return JOURNAL.read(value, path=partial(_read_path, files))


def _read_path(files: Files, value: Value) -> str:
    name = value.nonempty()
    if "\0" in name:
        raise value.fail("holds a NUL character, which no path can")
    return str(files.path(name))
