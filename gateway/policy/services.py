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
    KeyTable,
    choice,
    integer,
    or_reference,
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


_read_endpoint = partial(
    read_http_url, example="http://127.0.0.1:4318", secrets="credentials do not belong in the address"
)
LIMITS = KeyTable(
    "limits",
    Limits,
    {
        "max_body": BYTES,
        "max_streams": integer(1, MAX_STREAMS),
        "max_event": BYTES,
        "send_timeout": SECONDS,
        "stored_responses": BYTES,
    },
)
JOURNAL = KeyTable(
    "journal",
    Journal,
    {
        "path": PATH,
        "key": Form(
            f"text of {MIN_JOURNAL_KEY} characters or more",
            or_reference({"type": "string", "minLength": MIN_JOURNAL_KEY}),
            _read_journal_key,
        ),
        "fsync": choice(Fsync),
        "max_size": BYTES,
        "keep": integer(0, MAX_KEEP),
        "required": BOOLEAN,
        "chain": BOOLEAN,
    },
)
TELEMETRY = KeyTable(
    "telemetry", Telemetry, {"endpoint": Form("URL", URL, _read_endpoint), "service": NONEMPTY, "sample": SHARE}
)


def read_journal(value: Value, files: Files) -> Journal:
    """A relative path is one beside the configuration file. Nothing is opened. Raises `ConfigError`."""
    return JOURNAL.read(value, path=partial(_read_path, files))


def _read_path(files: Files, value: Value) -> str:
    name = value.nonempty()
    if "\0" in name:
        raise value.fail("holds a NUL character, which no path can")
    return str(files.path(name))
