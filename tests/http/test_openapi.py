"""The OpenAPI document names the endpoints that there are, and no others. `make services` asks them by it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from starlette.routing import Route

from gateway.app import build_app
from gateway.guard.prompt import read_request
from gateway.observe.log import RequestLog
from gateway.policy.model import ListenAddress
from gateway.proxy import openapi
from gateway.proxy.routes import DEPLOYMENT, PREFIXES
from gateway.wire.dialect import BadRequest, Dialect
from gateway.wire.dialects import SERVED
from tests.support.gateway import before, config_for
from tests.support.upstream import completion, plain, sending

ANSWER = sending(plain(completion("fine")))


def _operations(document: Any) -> set[tuple[str, str]]:
    methods = ("get", "post", "delete", "head")
    paths = document["paths"].items()
    return {(path, name) for path, item in paths for name in item if name in methods}


def _routed(app: Any) -> set[tuple[str, str]]:
    """Of the aliases of /v1 only /v1, with the names of parameters that the document has."""
    found = set()
    for route in app.router.routes:
        assert isinstance(route, Route)
        if not route.path.startswith((*PREFIXES[1:], DEPLOYMENT)):
            path = route.path.replace("resp_{name}", "{response_id}").replace(":path", "")
            found |= {(path, method.lower()) for method in route.methods or ()}
    return found


@pytest.mark.parametrize("keys", [(), ("sk-client",)])
async def test_it_describes_every_endpoint_and_asks_for_no_key(keys: tuple[str, ...]) -> None:
    async with before(ANSWER, keys=keys) as (gateway, _):
        answer = await gateway.client.get("/openapi.json")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        document = answer.json()
    config = config_for("http://127.0.0.1:1/v1")
    assert _operations(document) == _routed(build_app(config, RequestLog("json")))
    assert ("security" in document) == bool(keys)
    assert "sk-client" not in answer.text


def test_an_admin_listener_has_paths_that_the_document_then_has_not() -> None:
    config = config_for("http://127.0.0.1:1/v1")
    config = replace(config, listen=replace(config.listen, admin=ListenAddress(port=0)))
    app = build_app(config, RequestLog("json"))
    described = _operations(json.loads(openapi.document(keys=False, admin=True)))
    assert described == _routed(app)
    assert {path for path, _ in _routed(app.state.portcullis.admin)} == set(openapi.ADMIN_PATHS)


@pytest.mark.parametrize("dialect", SERVED, ids=lambda dialect: dialect.path)
def test_a_request_that_lacks_what_is_required_is_refused(dialect: Dialect) -> None:
    """And one that has nothing else is not: by the document's own words. Others are tried by `make services`."""
    described = json.loads(openapi.document(keys=False, admin=False))["paths"]["/v1" + dialect.path]["post"]
    schema = described["requestBody"]["content"]["application/json"]["schema"]
    required = [*schema["required"], *(schema["anyOf"][0]["required"] if "anyOf" in schema else ())]
    whole = {name: {"messages": [{}]}.get(name, "x") for name in required}
    assert read_request(dict(whole), dialect).model == "x"
    for name in required:
        with pytest.raises(BadRequest):
            read_request({field: value for field, value in whole.items() if field != name}, dialect)
