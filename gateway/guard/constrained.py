"""Constraints on the form of answers: conflicting formats in requests, and the check of each answer.

What is checked is the `content` of each choice, as the upstream wrote it: before the censor changes it, and before
pseudonyms become values again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gateway.censor.compile import CompiledRule
from gateway.decode.constraints import ConstraintAcceptor, compiled
from gateway.guard.channels import ChannelCounts, GuardedText
from gateway.guard.findings import Finding
from gateway.observe.facts import HELD, LEFT, UNFINISHED
from gateway.policy.model import Action, Channel, Conflict, Language, Mode, Policy, Violation
from gateway.wire.json import Json
from gateway.wire.names import named, reasons

RULE = "constrain"  # what a violation is filed under, where a rule's match has the rule's id
VIOLATION = CompiledRule(RULE, -1, Action.BLOCK, replacement="", mask=None, message=None, drops_marks=False)

# Finish reasons of an answer that was cut short. With any other the model had finished.
CUT_SHORT = frozenset({"length", "content_filter", "abort", "error"})


# -- requests ----------------------------------------------------------------------------------------------------------

# A client's own formats. docs/semantics.md prints this table.
FORMATS = reasons("requests", "formats")
_GUIDED = "guided_"
# What means nothing, or is refused, without the choice that is removed.
_WITH_CHOICE = {
    "tool_choice": ("tools", "parallel_tool_calls"),
    "function_call": ("functions",),
}


def remove_formats(body: Json, policy: Policy) -> tuple[str, str] | None:
    """Under a constraint, take the client's own formats out of a request, in place; where the policy rejects such a
    request, why, and the field that it is about."""
    constrain = policy.constrain
    if constrain is None or policy.mode is not Mode.ENFORCE:
        return None
    for field in [field for field in body if _is_format(field.casefold(), body[field])]:
        if constrain.on_conflict is Conflict.REJECT:
            return f"`{field}` is not accepted here: the policy says what form an answer has.", field
        for taken in (field, *_WITH_CHOICE.get(field.casefold(), ())):
            body.pop(taken, None)
    return None


def _is_format(field: str, value: Any) -> bool:
    if value is None or not (field in FORMATS or field.startswith(_GUIDED)):
        return False
    if field in _WITH_CHOICE:
        return value not in ("none", "auto")
    return not (field == "response_format" and value == {"type": "text"})


# How requests to the servers in use name JSON. In some of these fields it is one format of several.
_JSON_FIELDS = frozenset({"guided_json", "json_schema", "json", "json_object", "schema"})
_FORMAT_FIELDS = named("requests", "format_fields")
_SCHEMA_TYPES = frozenset({"object", "array"})
_FORMAT_DEPTH = 2  # objects around a format


def asks_for_json(body: Json, policy: Policy) -> bool:
    """Does the client, or a policy that is enforced, want JSON as the content of answers?

    In doubt it is: content that turns out to be no JSON is read as the text that it is.
    """
    constrain = policy.constrain
    if constrain is not None and policy.mode is Mode.ENFORCE and constrain.language is Language.JSON_SCHEMA:
        return True
    return _names_json(body, _FORMAT_DEPTH)


def _names_json(holder: Json, depth: int) -> bool:
    for field, value in holder.items():
        name = field.casefold()
        if name in _JSON_FIELDS and value is not None and value is not False:
            return True
        if name in _FORMAT_FIELDS:
            kind = value.get("type") if isinstance(value, dict) else value
            if isinstance(kind, str) and ("json" in kind.casefold() or kind in _SCHEMA_TYPES):
                return True
            if isinstance(value, dict) and depth and _names_json(value, depth - 1):
                return True
    return False


# -- answers -----------------------------------------------------------------------------------------------------------


class ConstraintCheck:
    """The content of one choice, read in the language of its policy's constraint.

    A text ends `held` (it is whole), `left` (it is none of the language) or `unfinished` (it was cut short while it
    could still become one).
    """

    __slots__ = ("_blocks", "_choice", "_counts", "_language", "_outcome", "_reading", "ends_badly")

    def __init__(self, counts: ChannelCounts, choice: int) -> None:
        policy = counts.compiled.policy
        assert policy.constrain is not None
        self._counts = counts
        self._choice = choice
        self._blocks = policy.mode is Mode.ENFORCE and policy.constrain.on_violation is Violation.BLOCK
        self._language = compiled(policy.constrain)
        self._reading = ConstraintAcceptor(self._language)
        self._outcome: str | None = None
        self.ends_badly = False  # of a whole answer: it will be blocked, although no character of it is wrong

    @staticmethod
    def of(counts: ChannelCounts, choice: int) -> ConstraintCheck | None:
        """None for a policy without a constraint."""
        return None if counts.compiled.policy.constrain is None else ConstraintCheck(counts, choice)

    def foresee(self, texts: Iterable[str], calls_tools: bool, reason: Any) -> None:
        """Before a whole answer is read: how will it end?"""
        if not self._blocks:
            return
        reading = ConstraintAcceptor(self._language)
        if all(reading.feed(text) is None for text in texts):
            self.ends_badly = calls_tools or (_is_complete(reason) and not reading.accepting())

    def read(self, text: str) -> int | None:
        """Read a piece; how much of it comes out if the choice ends in it, None if it continues."""
        if self._outcome is not None:
            return None
        stands = self._reading.feed(text)
        if stands is None or self._blocks:
            return stands
        self.leave()
        return None

    def leave(self) -> CompiledRule | None:
        """The answer leaves the language here; what blocks it, if something does."""
        if self._outcome is None:
            self._outcome = LEFT
            action = Action.BLOCK if self._blocks else Action.FLAG
            at = self._reading.characters
            found = Finding(RULE, action, self._counts.direction, Channel.CONTENT, self._choice, at, 0, "")
            self._counts.note_constraint(LEFT, found)
            if self._blocks and self._counts.blocked_by is None:
                self._counts.blocked_by = RULE
        return VIOLATION if self._blocks else None

    def conclude(self, reason: Any = None) -> CompiledRule | None:
        """The answer ends, for this reason, or breaks off for none; what blocks it, if something does."""
        if self._outcome is not None:
            return None
        if self._reading.accepting():
            self._outcome = HELD
        elif _is_complete(reason):
            return self.leave()
        else:
            self._outcome = UNFINISHED
        self._counts.note_constraint(self._outcome)
        return None


def _is_complete(reason: Any) -> bool:
    return bool(reason) and not (isinstance(reason, str) and reason in CUT_SHORT)


class ConstrainedText:
    """A text of the content under both: the constraint sees it first, then the censor."""

    __slots__ = ("_constrained", "_left", "_text")

    def __init__(self, text: GuardedText, constrained: ConstraintCheck) -> None:
        self._text = text
        self._constrained = constrained
        self._left: CompiledRule | None = None

    def feed(self, text: str) -> str:
        stands = self._constrained.read(text)
        if stands is None:
            return self._text.feed(text)
        shown = self._text.feed(text[:stands])
        if self._text.rule is None:  # else a rule has ended the text before it left the language
            self._left = self._constrained.leave()
            shown += self._text.abandon()
        return shown

    def finish(self) -> str:
        return self._text.abandon() if self._constrained.ends_badly else self._text.finish()

    def abandon(self) -> str:
        return self._text.abandon()

    @property
    def rule(self) -> CompiledRule | None:
        return self._text.rule or self._left

    @property
    def censored(self) -> GuardedText:
        """The text as the censor has it."""
        return self._text
