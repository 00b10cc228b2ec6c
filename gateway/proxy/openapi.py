"""The endpoints as an OpenAPI document, `openapi.yaml`, as the configuration has it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from gateway.version import __version__
from gateway.wire import json
from gateway.wire.json import Json

PATH = "/openapi.json"
ADMIN_PATHS = ("/healthz", "/readyz", "/metrics")


@cache
def document(*, keys: bool, admin: bool) -> bytes:
    """As JSON. `keys`: clients need one; `admin`: there is an admin listener."""
    described: Json = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
    described["info"]["version"] = __version__
    if keys:
        described["security"] = [{name: []} for name in described["components"]["securitySchemes"]]
    else:
        del described["components"]["securitySchemes"]
    if admin:
        for path in ADMIN_PATHS:
            del described["paths"][path]
    return json.encode(described)
