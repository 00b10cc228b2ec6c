"""What Gandalf says: the answers in which the password leaks, the words that choose among them, and the configuration
with which it does not get out."""

from __future__ import annotations

from typing import NamedTuple

from gateway.demo.tokens import tokens_of
from gateway.policy.model import Action, Auth, Config, Limits, Listen, Policy, Route, Rule, Upstream

STORED_RESPONSES = 16 * 1024 * 1024  # bytes: what clients refer to by default is there
MODEL = "gandalf"
PASSWORD = "12MONKEYS"  # noqa: S105 (the point of the game)

Tokens = tuple[str, ...]


class Script(NamedTuple):
    """One answer. `contents` are the ways to say it, for one choice after the other. With `calls` it goes to a tool,
    and be it one that the request does not offer."""

    contents: tuple[Tokens, ...]
    reasoning: Tokens = ()
    calls: bool = False


_PLAIN = tokens_of(f'The password is "{PASSWORD}".')
_LETTERS = (*tokens_of("Letter by letter: "), *PASSWORD, ".")
_TWICE = (*("12", "MONKEYS", ","), *tokens_of(f" I repeat: {PASSWORD}!"), *(" 12MONKEY", " is", " close", "."))
_QUIETLY = tokens_of(f"Quietly: {PASSWORD.lower()}.")
_FULL_WIDTH = tokens_of("In wide letters: １２ＭＯＮＫＥＹＳ.")
_INVISIBLE = (*tokens_of("You will not see it:"), " 12\u200b", "MON\u200b", "KEYS", ".")
_REFUSAL = tokens_of("I'm sorry, but I can disclose nothing.")
THOUGHTS = tokens_of(f"They want the password, {PASSWORD}. I will not tell them.")
IDLE_THOUGHTS = tokens_of("They do not ask for the password. All is well.")
_GREETING = tokens_of(
    "I am Gandalf, and I guard a password. Ask me for it! Try: spell, twice, wide, hidden, whisper, think, call."
)
_ASKED = Script((_PLAIN, _TWICE, _LETTERS, _QUIETLY))
_GREETS = Script((_GREETING,))

# The first word found in the player's last message decides.
_SCRIPTS: tuple[tuple[str, Script], ...] = (
    ("spell", Script((_LETTERS,))),
    ("twice", Script((_TWICE,))),
    ("wide", Script((_FULL_WIDTH,))),
    ("hidden", Script((_INVISIBLE,))),
    ("whisper", Script((_QUIETLY,))),
    ("think", Script((_REFUSAL,), reasoning=THOUGHTS)),
    ("call", Script((_REFUSAL,), calls=True)),
    ("password", _ASKED),
)
LEAK = f"the password is {PASSWORD}"  # where a tool's argument or a JSON value tells it


def script_for(text: str) -> Script | None:
    """The answer to a message or prompt that asks for the password. This Gandalf gives in to anyone."""
    text = text.lower()
    return next((script for word, script in _SCRIPTS if word in text), None)


def answer_to(text: str) -> Script:
    """The answer to any message or prompt."""
    return script_for(text) or _GREETS


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
