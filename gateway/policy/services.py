"""What the gateway keeps elsewhere: the `journal`, `telemetry` and `state` parts of a configuration file."""

from __future__ import annotations

from gateway.policy.files import Files
from gateway.policy.model import Fsync, Journal, Telemetry
from gateway.policy.sizes import read_size
from gateway.policy.upstreams import refuse_default
from gateway.policy.urls import read_http_url
from gateway.policy.value import Value

JOURNAL_KEYS = ("path", "key", "fsync", "max_size", "keep", "required")
TELEMETRY_KEYS = ("endpoint", "service", "sample")

MIN_JOURNAL_KEY = 16  # characters
MAX_KEEP = 1000


def read_journal(value: Value, files: Files) -> Journal:
    """A relative path is one beside the configuration file. Nothing is opened. Raises `ConfigError`."""
    section = value.section(JOURNAL_KEYS)
    default = Journal(path="", key="")
    return Journal(
        path=_path(section["path"], files),
        key=_journal_key(section["key"]),
        fsync=section.get("fsync", lambda fsync: fsync.choice(Fsync), default.fsync),
        max_size=section.get("max_size", read_size, default.max_size),
        keep=section.get("keep", lambda keep: keep.integer(0, MAX_KEEP), default.keep),
        required=section.get("required", Value.boolean, default.required),
    )


def read_telemetry(value: Value) -> Telemetry:
    """Raises `ConfigError`."""
    section = value.section(TELEMETRY_KEYS)
    default = Telemetry(endpoint="")
    example, secrets = "http://127.0.0.1:4318", "credentials do not belong in the address"
    return Telemetry(
        endpoint=read_http_url(section["endpoint"], example, secrets),
        service=section.get("service", Value.nonempty, default.service),
        sample=section.get("sample", Value.share, default.sample),
    )


def _path(value: Value, files: Files) -> str:
    name = value.nonempty()
    if "\0" in name:
        raise value.fail("holds a NUL character, which no path can")
    return str(files.path(name))


def _journal_key(value: Value) -> str:
    value = refuse_default(value.hidden())
    key = value.text()
    if len(key) < MIN_JOURNAL_KEY:
        raise value.wrong(f"at least {MIN_JOURNAL_KEY} characters", "with a short key, matched text could be guessed")
    return key
