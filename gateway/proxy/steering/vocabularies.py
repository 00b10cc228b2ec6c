"""The vocabularies of upstreams' models, read from their tokenizers when a configuration is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.policy.errors import ConfigError
from gateway.policy.model import Config
from gateway.version import missing_part

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary


def read_vocabularies(config: Config) -> Mapping[str, Vocabulary]:
    """By upstream, for those whose answers are rolled back. Raises ConfigError."""
    used = {name for route in config.routes if config.policies[route.policy].rolls_back for name in route.upstreams}
    found: dict[str, Vocabulary] = {}
    for name in sorted(used):
        path = config.upstreams[name].tokenizer
        if path is None:
            continue
        try:
            found[name] = _read(path, _modified_at(Path(path)))
        except ImportError:
            raise ConfigError(config.source, f"upstreams.{name}.tokenizer", missing_part("decode")) from None
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise ConfigError(config.source, f"upstreams.{name}.tokenizer", f"cannot be read: {reason}") from None
    return found


# A reload reads only tokenizers that have changed: a large vocabulary takes half a second.
@lru_cache(maxsize=8)
def _read(path: str, modified_at: int) -> Vocabulary:
    from gateway.decode.vocabulary import read_vocabulary  # needs numpy, which is optional

    return read_vocabulary(path)


def _modified_at(path: Path) -> int:
    file = path / "tokenizer.json" if path.is_dir() else path
    return file.stat().st_mtime_ns
