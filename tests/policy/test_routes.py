"""Requested model → route: the first glob that matches, case-sensitively, in linear time."""

from __future__ import annotations

import pytest

from gateway.policy.model import Config, Policy, Route, Upstream
from gateway.policy.routes import Router


def routes(*globs: str) -> tuple[Route, ...]:
    return tuple(Route(model=glob, upstream="u", policy="p") for glob in globs)


GLOBS = {
    ("gpt-4", "gpt-4"): True,
    ("gpt-4", "gpt-4o"): False,
    ("gpt-4", "xgpt-4"): False,
    ("gpt-4", "GPT-4"): False,
    ("gpt-4", "gpt-4\n"): False,
    ("gpt-*", "gpt-"): True,
    ("gpt-*", "gpt-4\no"): True,
    ("gpt-?", "gpt-4"): True,
    ("gpt-?", "gpt-"): False,
    ("[ab]*", "beta"): True,
    ("[!ab]*", "beta"): False,
    ("[a-c]x", "bx"): True,
    ("[ab", "[ab"): True,
    ("a.b", "axb"): False,
    ("(a|b)+", "(a|b)+"): True,
    ("*/*", "meta/llama"): True,
    ("*", ""): True,
    ("*", "\ud800"): True,
}


@pytest.mark.parametrize(("glob", "model", "matches"), [(*case, matches) for case, matches in GLOBS.items()])
def test_globs(glob: str, model: str, matches: bool) -> None:
    assert (Router(routes(glob)).match(model) is not None) is matches


def test_the_first_match_wins() -> None:
    table = routes("gpt-4", "gpt-*", "claude-*")
    router = Router(table)
    assert router.match("gpt-4") is table[0]
    assert router.match("gpt-5") is table[1]
    assert router.match("claude-x") is table[2]
    assert router.match("llama") is None


def test_a_router_reads_the_routes_of_a_configuration() -> None:
    table = routes("gpt-*", "*")
    config = Config(upstreams={"u": Upstream(name="u")}, routes=table, policies={"p": Policy(name="p")})
    router = Router(config.routes)
    assert router.match("gpt-4") is table[0]
    assert router.match("other") is table[1]


def test_a_glob_of_many_stars_ends_on_a_megabyte() -> None:
    """A matcher that goes back over its choices would need about 10^40 steps here."""
    router = Router(routes("*a" * 8 + "*b", "*[!a]?b*c"))
    assert router.match("a" * 1_000_000) is None
    assert router.match("a" * 1_000_000 + "b") is not None
