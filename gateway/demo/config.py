"""The configuration without a file: Gandalf's password does not get out."""

from __future__ import annotations

from gateway.demo.gandalf import PASSWORD
from gateway.policy.model import Action, Auth, Config, Limits, Listen, Policy, Route, Rule, Upstream

STORED_RESPONSES = 16 * 1024 * 1024  # bytes: what clients refer to by default is there


def demo_policy() -> Policy:
    """What `portcullis demo` enforces: the password does not get out, however Gandalf spells it."""
    rule = Rule(id="password", words=(PASSWORD,), action=Action.REDACT, replacement="[CENSORED]", secret=True)
    return Policy(name="default", rules=(rule,))


def demo_config(upstream: Upstream | None, listen: Listen, auth: Auth) -> Config:
    """The configuration without a file: the demo policy in front of the demo upstream, or of `upstream`."""
    behind = upstream if upstream is not None else Upstream(name="demo", type="demo")
    policy = demo_policy()
    limits = Limits(stored_responses=STORED_RESPONSES)
    return Config(
        upstreams={behind.name: behind},
        routes=(Route(model="*", upstream=behind.name, policy=policy.name),),
        policies={policy.name: policy},
        listen=listen,
        auth=auth,
        limits=limits,
        source="<demo>",
    )
