"""Configuration lint: warnings about what is valid but probably a mistake."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from urllib.parse import urlsplit

from gateway.policy.checks import Checks, Finds, PatternFacts
from gateway.policy.listen import is_loopback
from gateway.policy.model import (
    DEFAULT_MAX_HOLD,
    DEFAULT_REPLACEMENT,
    DISGUISES,
    Action,
    Balance,
    Config,
    Exhausted,
    Fold,
    Mode,
    Policy,
    Rule,
    UpstreamType,
)
from gateway.policy.routes import routed_pairs
from gateway.policy.servers import is_deployment

# Characters in the words of a rule from which the time to compile them is reported. Measured on one core: 1,000,000
# words with 9.2 million characters take 15 seconds to read and compile, and 270 MB; 100,000 of them 1 s and 30 MB.
LARGE_LIST = 2_000_000
SECONDS_A_MILLION, MEGABYTES_A_MILLION = 1.6, 30
SHORT_WORD = 4  # letters; longer words are rarely a part of others by chance
MAX_SHORT_WORDS = 1000  # are counted in prose: some 10 ms
# What a pattern means otherwise, or not at all.
YAML_ESCAPES = {r"\b": "\b", r"\P": "\u2029", r"\N": "\x85", r"\L": "\u2028"}
OPENING_QUOTES, CLOSING_QUOTES = "“„”‘‚«»", "”“’‘»«"
VERSION = re.compile(r"/v[0-9]+[a-z0-9.]*(/|$)")


def warnings(config: Config, checks: Checks) -> tuple[str, ...]:
    """One `key.path: text` for each finding, in the order of the file's parts; no word and no key is in them."""
    found = [*_listen_warnings(config), *_key_warnings(config), *_upstream_warnings(config), *_route_warnings(config)]
    for policy in config.policies.values():
        found += _policy_warnings(config, policy, checks)
    found += _state_warnings(config)
    found += _steering_warnings(config)
    return tuple(found)


def _listen_warnings(config: Config) -> Iterator[str]:
    admin = config.listen.admin
    if admin is not None and not is_loopback(admin.host):
        yield "listen.admin: metrics are readable by everybody who reaches this address; no key is asked for there"
    if admin is None and not is_loopback(config.listen.host):
        yield (
            "listen.host: /metrics, with the names of keys, rules and upstreams, is readable by everybody who reaches "
            "this address; no key is asked for there: move it with listen.admin"
        )


def _key_warnings(config: Config) -> Iterator[str]:
    used = {route.policy for route in config.routes}
    for i, key in enumerate(config.auth.keys):
        if key.policies is not None and not key.policies & used:
            yield f"auth.keys[{i}].policies: no route uses any of these policies, so the key is of no use"


def _state_warnings(config: Config) -> Iterator[str]:
    limits = ((key.rpm, key.tpm, key.max_streams) for key in config.auth.keys)
    if config.state is not None and all(limit is None for limited in limits for limit in limited):
        yield f"{config.state_key}: no key has a limit (rpm, tpm, max_streams), so there is nothing to share"


def _upstream_warnings(config: Config) -> Iterator[str]:
    used = {name for route in config.routes for name in route.upstreams}
    for name, upstream in config.upstreams.items():
        if name not in used:
            yield f"upstreams.{name}: no route uses this upstream"
        parts = urlsplit(upstream.base_url)
        if is_deployment(upstream.base_url):
            if upstream.api_version is None:
                yield f"upstreams.{name}.base_url: is that of Azure's deployments, which ask for an api_version"
        elif upstream.base_url and not VERSION.search(parts.path):
            yield (
                f"upstreams.{name}.base_url: has no version in its path, and most servers answer below /v1: write it, "
                "as in https://api.openai.com/v1, unless /chat/completions is directly below this address"
            )
        if upstream.passes_key and config.auth.keys:
            yield (
                f"upstreams.{name}.api_key: passthrough: clients send their own key for it as Authorization, and the "
                "gateway's as x-portcullis-key; the key of a request without x-portcullis-key is not forwarded"
            )
        if upstream.api_key is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield f"upstreams.{name}.base_url: http to another machine sends api_key unencrypted; use https"


def _route_warnings(config: Config) -> Iterator[str]:
    seen: dict[str, int] = {}
    for i, route in enumerate(config.routes):
        shadows = [seen[glob] for glob in ("*", route.model) if glob in seen]
        if shadows:
            yield f"routes[{i}]: is never reached, since routes[{min(shadows)}] comes first and matches the same models"
        if route.balance is not Balance.FIRST and not route.others:
            yield f"routes[{i}].balance: has no effect with one upstream"
        # `**` and the like mean the same as `*`.
        seen.setdefault("*" if set(route.model) == {"*"} else route.model, i)


def _steering_warnings(config: Config) -> Iterator[str]:
    """Policies that need steering on upstreams that do not support it."""
    for at, policy, upstream in routed_pairs(config):
        if upstream.type == UpstreamType.VLLM:
            continue
        who = f"{at}: upstream {upstream.name} is not of type: vllm"
        if policy.constrain is not None and policy.mode is Mode.ENFORCE:
            yield f"{who}, so answers under policy {policy.name} are checked against its constraint, not held to it"
        if policy.rolls_back:
            yield f"{who}, so rules of policy {policy.name} with action: rollback act as their exhausted says"
        if policy.masked:
            yield f"{who}, so decode: mask has no effect there; the rules of policy {policy.name} act on what is said"


def _policy_warnings(config: Config, policy: Policy, checks: Checks) -> Iterator[str]:
    at = f"policies.{policy.name}"
    if not policy.on_request and all(route.policy != policy.name for route in config.routes):
        yield f"{at}: no route uses this policy"
    folded = [tuple(checks.fold_word(word, rule.fold) for word in rule.words) for rule in policy.rules]
    for i, (rule, words) in enumerate(zip(policy.rules, folded, strict=True)):
        if (cost := large_list(rule)) is not None:
            yield f"{at}.rules[{i}]: {cost}, at every start, in each worker and at every reload that changes the policy"
        too_long = sum(len(word) > policy.max_hold for word in words)
        if too_long:
            yield (
                f"{at}.rules[{i}]: {too_long} of the {len(words)} words of rule {rule.id} are longer than "
                f"max_hold ({policy.max_hold}), the longest match there can be"
            )
        if any(word[0] in OPENING_QUOTES and word[-1] in CLOSING_QUOTES for word in rule.words):
            yield (
                f"{at}.rules[{i}]: words of rule {rule.id} stand in typographic quotation marks, which are looked for "
                "with them; YAML's are ' and \", and a file of words needs none"
            )
        if rule.pattern is not None:
            yield from _read_by_yaml(f"{at}.rules[{i}].pattern", rule.pattern)
            facts = checks.read_pattern(rule.pattern, rule.fold)
            yield from _pattern_warnings(f"{at}.rules[{i}].pattern", facts, rule, policy)
        yield from _without_effect(f"{at}.rules[{i}]", rule)
        yield from _undisguised(f"{at}.rules[{i}]", rule)
        if (hits := short_words(rule, words, checks)) is not None:
            yield f"{at}.rules[{i}]: {hits}"
    longest = max((len(word) for words in folded for word in words), default=0)
    if any(not rule.words for rule in policy.rules):
        longest = max(longest, min(policy.max_hold, DEFAULT_MAX_HOLD))
    finders = [_finder(rule, words, checks) for rule, words in zip(policy.rules, folded, strict=True)]
    yield from _inserted_warnings(at, policy, longest, finders)


def large_list(rule: Rule) -> str | None:
    """The cost of compiling the words of a rule; None below `LARGE_LIST`."""
    characters = sum(map(len, rule.words)) / 1_000_000
    if characters * 1_000_000 < LARGE_LIST:
        return None
    seconds, megabytes = characters * SECONDS_A_MILLION, characters * MEGABYTES_A_MILLION
    return f"to compile {len(rule.words)} words takes about {seconds:.0f} seconds of a core and {megabytes:.0f} MB"


def short_words(rule: Rule, words: Collection[str], checks: Checks) -> str | None:
    """What the rule's short words, folded, would replace in ordinary prose because other words have them in them; None
    if nothing."""
    if rule.whole_word:
        return None
    short = sorted({word for word in words if 1 < len(word) <= SHORT_WORD and word.isalpha()})[:MAX_SHORT_WORDS]
    prose = checks.fold_word("".join(checks.prose()), rule.fold) if short else ""
    count = max(len(prose.split()), 1)
    anywhere = sum(prose.count(word) for word in short)
    whole = sum(len(re.findall(rf"\b{re.escape(word)}\b", prose)) for word in short if word in prose)
    if anywhere == whole:
        return None
    every, apart = (f"{10_000 * hits / count:.0f}" for hits in (anywhere, whole))
    return (
        f"words of rule {rule.id} with 2 to {SHORT_WORD} letters are found inside other words: {every} hits in 10,000 "
        f"words of prose, and {apart} with whole_word: true"
    )


def _read_by_yaml(at: str, pattern: str) -> Iterator[str]:
    for escape, character in YAML_ESCAPES.items():
        if character in pattern:
            yield (
                f"{at}: holds the character U+{ord(character):04X}, which YAML makes of {escape} in double quotes; "
                "write the pattern in single quotes"
            )


def _pattern_warnings(at: str, facts: PatternFacts, rule: Rule, policy: Policy) -> Iterator[str]:
    if facts.unseen:
        folds = ", ".join(fold for fold in Fold if fold in rule.fold)
        yield (
            f"{at}: a class in it can never match, because fold ({folds}) changes or removes each of its characters "
            "before they are compared; write what is left of them, or narrow fold"
        )
    if facts.longest is None:
        yield (
            f"{at}: its matches can be of any length; where one would be longer than max_hold ({policy.max_hold}), "
            f"on_overflow ({policy.on_overflow}) decides"
        )
    elif facts.longest == 0:
        yield f"{at}: can match nothing; look at what it asks for on the two sides of a \\b, ^ or $"
    elif facts.longest > policy.max_hold:
        yield (
            f"{at}: its longest match needs {facts.longest} characters, which is more than max_hold "
            f"({policy.max_hold}), the longest match there can be"
        )
    if facts.reopens:
        yield (
            f"{at}: what ends one match can begin the next, and every substring counts: "
            "the text between two matches is a match, too"
        )


def _finder(rule: Rule, words: tuple[str, ...], checks: Checks) -> Finds:
    if not rule.words:
        return checks.finder(rule)

    def finds(text: str) -> bool:
        target = checks.fold_word(text, rule.fold)
        return any(word and word in target for word in words)

    return finds


def _inserted_warnings(at: str, policy: Policy, longest: int, finders: list[Finds]) -> Iterator[str]:
    """Text that rules put into an answer is not scanned, and may match other rules."""
    empty_seen = False
    for i, rule in enumerate(policy.rules):
        key, text = _inserted(rule, longest)
        if key == "replacement" and not text and not empty_seen:
            empty_seen = True
            yield f"{at}.rules[{i}].replacement: an empty replacement can join the text around it into a match"
        for other, finds in zip(policy.rules, finders, strict=True):
            if finds(text):
                what = "a word" if other.words else "a match"
                yield f"{at}.rules[{i}].{key}: contains {what} of rule {other.id}"


def _without_effect(at: str, rule: Rule) -> Iterator[str]:
    """Keys that the rule's action ignores, or what it looks for."""
    if rule.pattern is not None and Fold.SPACE in rule.fold:
        yield f"{at}.fold: space has no effect in a pattern; write \\s+ there"
    acts, said = rule.acts_as, f"action: {rule.action}"
    if rule.action is Action.ROLLBACK:
        said += f" and exhausted: {rule.exhausted}"
    elif rule.exhausted is not Exhausted.REDACT:
        yield f"{at}.exhausted: has no effect with action: {rule.action}; it is for action: rollback"
    if acts is not Action.REDACT:
        if rule.replacement != DEFAULT_REPLACEMENT:
            yield f"{at}.replacement: has no effect with {said}"
        if rule.mask is not None:
            yield f"{at}.mask: has no effect with {said}"
    if acts is not Action.BLOCK and rule.message is not None:
        yield f"{at}.message: has no effect with {said}; only action: block shows a message"


def _undisguised(at: str, rule: Rule) -> Iterator[str]:
    """Keys that look for words as they are, whatever else the rule sees through."""
    if not (rule.fold & DISGUISES or rule.variants or rule.edits):
        return
    if rule.carry:
        yield f"{at}.carry: sees through no disguise, code or edit; across answers a word is found as it is"
    if rule.decode is not None:
        yield f"{at}.decode: the mask sees through no disguise, code or edit; a word so written is left to the action"


def _inserted(rule: Rule, longest: int) -> tuple[str, str]:
    """The key and the text of what the rule adds to an answer; a mask comes as often as a match is long."""
    if rule.acts_as is Action.BLOCK:
        return "message", rule.message or ""
    if rule.acts_as is not Action.REDACT:
        return "action", ""
    return ("replacement", rule.replacement) if rule.mask is None else ("mask", rule.mask * longest)
