"""The file of banned words for the server that masks them, and the parameters of a request that names them.

    banned_of(config.policies)        # {"strict": ..., "strict/exhausted": ...}

The file is written by the gateway's host and named when the model server starts. Each policy in it has a *digest*, the
SHA-256 of its words and lenses. A request names policy and digest, so a server that has other words than the gateway
refuses it. The file holds the words in clear and is readable by its owner only; a digest of few short words can be
guessed, so it belongs in no log.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gateway.files import write_private
from gateway.policy.model import Action, Decode, Fold, Policy, Rule

FORMAT = 1
MAX_FILE = 64 * 1024 * 1024  # bytes

# Names of a request's arguments (`vllm_xargs` on vLLM).
POLICY, DIGEST, KEPT, NOT_FIRST = "portcullis.policy", "portcullis.digest", "portcullis.kept", "portcullis.not_first"
MAX_NOT_FIRST = 1024
EXHAUSTED = "/exhausted"  # ends the name of a policy's second entry; no policy of a file has a `/` in its name

# Reasons for which a server refuses a request, and the gateway's own message for each: it repeats nothing from outside.
NO_MASKS, NO_POLICY, OTHER_WORDS = "this server has no masks", "in the file of masks of this server", "has other words"
_REFUSALS = {
    NO_MASKS: "the server was started without a file of masks; start it with PORTCULLIS_MASKS=FILE",
    NO_POLICY: "the server's file has no such policy; write it again with `portcullis masks` and restart the server",
    OTHER_WORDS: "the server has other words; write the file again with `portcullis masks` and restart the server",
}


class MaskFileError(ValueError):
    """Not a file of banned words. The message names the file and what is wrong, and quotes no word."""


class MaskRequestError(ValueError):
    """Arguments of a request that cannot be followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordBan:
    """Forbidden words, as seen through the lens of `fold`; `whole_word` as in a rule."""

    words: tuple[str, ...] = field(repr=False)
    fold: frozenset[Fold]
    whole_word: bool = False

    @staticmethod
    def of(rule: Rule) -> WordBan:
        """Raises ValueError for a rule without words: patterns and detectors have no mask."""
        if not rule.words:
            raise ValueError(f"rule {rule.id!r}: only words can be masked; a pattern or detector cannot")
        return WordBan(words=rule.words, fold=rule.fold, whole_word=rule.whole_word)


@dataclass(frozen=True, slots=True)
class BannedPolicy:
    """A policy's banned words and their digest."""

    digest: str = field(repr=False)
    banned: tuple[WordBan, ...]

    @staticmethod
    def of(banned: Sequence[WordBan]) -> BannedPolicy:
        return BannedPolicy(hashlib.sha256(_canonical(_described(banned))).hexdigest(), tuple(banned))


def banned_of(policies: Mapping[str, Policy]) -> dict[str, BannedPolicy]:
    """The banned words of each policy that has some, by its name. One that rolls back has a second entry, under that
    name and `EXHAUSTED`, if other words are banned when rollback has used up its caps."""
    return {
        entry: BannedPolicy.of([WordBan.of(rule) for rule in rules])
        for name, policy in policies.items()
        for entry, rules in ((name, policy.masked), (name + EXHAUSTED, _exhausted_rules(policy)))
        if rules
    }


def _exhausted_rules(policy: Policy) -> tuple[Rule, ...]:
    """Those that are always masked, and all that roll back; patterns and detectors have no mask. Empty where that is no
    more than what is always masked."""
    if not policy.rolls_back:
        return ()
    rules = tuple(
        rule for rule in policy.rules if rule.words and (rule.decode is Decode.MASK or rule.action is Action.ROLLBACK)
    )
    return () if rules == policy.masked else rules


def write_masks(path: Path, policies: Mapping[str, BannedPolicy]) -> None:
    """Write the file again, all or nothing. Raises OSError; MaskFileError if it would be too large to be read."""
    content = {
        "portcullis_masks": FORMAT,
        "policies": {
            name: {"digest": policy.digest, "rules": _described(policy.banned)} for name, policy in policies.items()
        },
    }
    data = _canonical(content) + b"\n"
    if len(data) > MAX_FILE:
        raise MaskFileError(f"{path}: would be larger than {MAX_FILE} bytes")
    write_private(path, data)


def read_masks(path: Path) -> dict[str, BannedPolicy]:
    """The policies of a file, at least one. Raises MaskFileError, also for words that do not have the digest that they
    claim; OSError if the file cannot be read."""
    with path.open("rb") as file:
        data = file.read(MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise MaskFileError(f"{path}: larger than {MAX_FILE} bytes")
    try:
        content: Any = json.loads(data)
    except ValueError:
        raise MaskFileError(f"{path}: not JSON, so not a mask file") from None
    if not isinstance(content, dict) or content.get("portcullis_masks") != FORMAT:
        raise MaskFileError(f"{path}: not a mask file of format {FORMAT}; write it again with this version")
    if not isinstance(content.get("policies"), dict) or not content["policies"]:
        raise MaskFileError(f"{path}: no policy in it; name one with `decode: mask` when it is written")
    policies: dict[str, BannedPolicy] = {}
    for name, described in content["policies"].items():
        try:
            policy = BannedPolicy.of(msgspec.convert(described["rules"], list[WordBan]))
            claimed = described["digest"]
        except (KeyError, TypeError, msgspec.ValidationError):
            raise MaskFileError(
                f"{path}: policy {name!r} is not described as in this version: write it again"
            ) from None
        if policy.digest != claimed:
            raise MaskFileError(f"{path}: policy {name!r} was changed after it was written: its digest is another")
        policies[name] = policy
    return policies


def _described(banned: Sequence[WordBan]) -> list[dict[str, Any]]:
    return [
        {"words": list(each.words), "fold": sorted(each.fold), "whole_word": each.whole_word} for each in banned
    ]  # fmt: skip


def _canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskRequest:
    """The mask that a request asks for: the words of `policy`, which must have `digest`.

    `kept`: so many tokens at the end of its prompt are the beginning of the answer, which is resumed. `not_first`: ids
    of tokens that must not come first.
    """

    policy: str
    digest: str = field(repr=False)
    kept: int = 0
    not_first: tuple[int, ...] = ()

    def arguments(self) -> dict[str, str | int | list[int]]:
        """The arguments of the request."""
        arguments: dict[str, str | int | list[int]] = {POLICY: self.policy, DIGEST: self.digest}
        if self.kept:
            arguments[KEPT] = self.kept
        if self.not_first:
            arguments[NOT_FIRST] = list(self.not_first)
        return arguments

    @staticmethod
    def of(arguments: Mapping[str, Any] | None) -> MaskRequest | None:
        """From a request's arguments; None if they want no mask. Raises MaskRequestError."""
        given = {name: value for name, value in (arguments or {}).items() if name.startswith("portcullis.")}
        if not given:
            return None
        if unknown := sorted(given.keys() - {POLICY, DIGEST, KEPT, NOT_FIRST}):
            raise MaskRequestError(f"{unknown[0]} is an unknown argument of the masks in this version")
        for name in (POLICY, DIGEST):
            if not isinstance(given.get(name), str):
                raise MaskRequestError(f"{name} must be a string; {POLICY} and {DIGEST} go together")
        kept, not_first = given.get(KEPT, 0), given.get(NOT_FIRST, [])
        if type(kept) is not int or kept < 0:
            raise MaskRequestError(f"{KEPT} must be a number of tokens, 0 or more")
        if not isinstance(not_first, list) or not all(type(token) is int and token >= 0 for token in not_first):
            raise MaskRequestError(f"{NOT_FIRST} must be a list of token ids")
        if len(not_first) > MAX_NOT_FIRST:
            raise MaskRequestError(f"{NOT_FIRST} has {len(not_first)} token ids; {MAX_NOT_FIRST} are allowed")
        return MaskRequest(policy=given[POLICY], digest=given[DIGEST], kept=kept, not_first=tuple(not_first))


def select(policies: Mapping[str, BannedPolicy], request: MaskRequest) -> BannedPolicy:
    """The policy that a request names. Raises MaskRequestError if it is unknown or another."""
    policy = policies.get(request.policy)
    if policy is None:
        raise MaskRequestError(f"{POLICY}: no policy {request.policy!r} {NO_POLICY}")
    if policy.digest != request.digest:
        raise MaskRequestError(
            f"{DIGEST}: policy {request.policy!r} {OTHER_WORDS} on this server; write the file of masks again and "
            "restart the server"
        )
    return policy


def refusal(answer: str) -> str:
    """Why a server refused a request, by the text of its answer, in words of ours."""
    for reason, message in _REFUSALS.items():
        if reason in answer:
            return message
    return "the server refuses a request with a mask"
