"""Rules that mask or roll back, and a configuration with them."""

from __future__ import annotations

from typing import Any

from gateway.decode.maskfile import BannedPolicy
from gateway.decode.masks import WordBan
from gateway.policy.model import Action, Config, Decode, Policy, Route, Rule, Upstream

MASKED = Rule(id="masked", words=("swordfish",), decode=Decode.MASK)
BACK = Rule(id="back", words=("listen",), action=Action.ROLLBACK)
OTHER = Rule(id="other", words=("other",), decode=Decode.MASK)


def config_of(*rules: Rule, base_url: str = "http://127.0.0.1:9/v1", **route: Any) -> Config:
    policy = Policy(name="strict", rules=rules)
    return Config(
        upstreams={"local": Upstream(name="local", type="vllm", base_url=base_url)},
        routes=(Route(**{"model": "*", "upstream": "local", "policy": "strict", **route}),),
        policies={"strict": policy},
    )


def banning(*words: str, whole_word: bool = False) -> BannedPolicy:
    rule = Rule(id="r", words=words, whole_word=whole_word)
    return BannedPolicy.of([WordBan.of(rule)])
