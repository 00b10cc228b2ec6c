"""Rolls back a streamed answer to before a match and resumes it. Pure: events in, events out.

It stands between the upstream and the guard. What comes out are the upstream's own events, later and with less text:
text is held back to the start of the token in which a match could begin (semantics rule 14). When a match is certain,
the tokens from there on are dropped, and `resume` is the request that continues the answer: by token ids, on
`/completions`, whose events are converted to those of the first response. The client sees one answer.

The decisions are those of `gateway.decode.rollback.Attempts`. Where nothing can be rolled back, everything passes, and
the guard behind applies the rule's `exhausted`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.censor.compile import Program
from gateway.censor.stream import Censor
from gateway.decode.rollback import Attempts, Caps
from gateway.guard.findings import Finding, OnFinding
from gateway.observe.facts import RolledBack
from gateway.policy.model import Action, Channel, Direction
from gateway.proxy.steering.answer_tokens import AnswerTokens
from gateway.wire import chunks
from gateway.wire.dialect import ContentPlace
from gateway.wire.json import Json

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary

# Outcomes of a rollback (`RolledBack.outcome`).
RESAMPLED, BANNED, MASKED, EXHAUSTED, UNREADABLE = "resampled", "banned", "masked", "exhausted", "unreadable"

# What is kept of an answer to go back to. A longer one passes from there on.
MAX_TOKENS = 1 << 18
MAX_TEXT = 1 << 20  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackParams:
    """The parameters of one answer.

    `program`: what ends or rolls back its text (`compile_stops`). `deterministic`: the same token would be drawn again,
    as at temperature 0. `max_tokens`: of the answer, if the client gave it. `stops`: the client's stop strings, part of
    the answer if `include_stop`. `server_bans`: the server can forbid a request's first token (else a request of one
    token is sent before). `maskable`: rules that a mask replaces when the caps are reached. `include_usage`: the client
    wants usage.
    """

    policy: str
    program: Program
    vocabulary: Vocabulary
    shape: ContentPlace
    deterministic: bool
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    server_bans: bool = False
    maskable: frozenset[str] = frozenset()
    include_usage: bool = False
    caps: Caps = field(default_factory=Caps)


class Resume(NamedTuple):
    """The next request: these tokens as the prompt, of which the last `kept` are the answer so far.

    `banned` must not come first. `one`: only the first token is wanted. `masked`: under the mask of all the rules that
    roll back. `most`: tokens that may still come. `attempt` counts from 1.
    """

    tokens: tuple[int, ...]
    kept: int
    banned: tuple[int, ...]
    one: bool
    masked: bool
    most: int
    attempt: int


class UnreadableAnswer(Exception):
    """A resumed answer that cannot be continued."""


class _StopStrings:
    """Finds the client's stop strings in a resumed answer: its server does not get them. `held` could begin one."""

    def __init__(self, stops: tuple[str, ...], include: bool) -> None:
        self.longest = max(map(len, stops), default=1)
        self.held = ""
        self._stops = stops
        self._include = include

    def split(self, before: str, given: str, *, ended: bool) -> tuple[str, str | None]:
        """What of new text (which follows `before`) is part of the answer, and the stop string that ends it, if any."""
        text, self.held = self.held + given, ""
        reach = self.longest - 1
        before = before[max(len(before) - reach, 0) :] if reach else ""
        joined = before + text
        found = [(at, stop) for stop in self._stops if (at := joined.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            return joined[len(before) : at + len(stop) if self._include else at], stop
        sure = len(text) if ended else max(len(text) - reach, 0)
        self.held = text[sure:]
        return text[:sure], None


class RollbackStream:
    """`feed` it each event, `finish` it at the end of the upstream's stream; both return the events to pass on.

    After either, `facts` are to be recorded. If `resume` is not None, the response is to be closed and that request
    sent; if `done`, it is only to be closed. `context_length` (tokens of prompt and answer) is to be set first where
    `needs_context_length`.
    """

    def __init__(self, params: RollbackParams, on_finding: OnFinding | None = None) -> None:
        self.context_length: int | None = None
        self.needs_context_length = params.max_tokens is None
        self.resume: Resume | None = None
        self.done = False
        self.facts: list[RolledBack] = []
        self._params = params
        self._on_finding = on_finding
        self._ledger = Attempts(params.caps, at_once=params.deterministic)
        self._tokens = AnswerTokens(params.vocabulary)
        self._stops = _StopStrings(params.stops, params.include_stop)
        self._head: Json = {}
        self._text = ""
        self._passed = 0  # characters of the text that were passed on
        self._released = 0  # characters of the text before anything that could be a match
        self._censor: Censor | None = Censor(params.program)  # None: everything passes
        self._attempts = 0  # requests that resumed the answer
        self._one = False  # the last of them is for one token
        self._masked = False
        self._discarded = 0
        self._usage_sent = False

    # -- events --------------------------------------------------------------------------------------------------------

    def feed(self, event: Json) -> list[Json]:
        """The events to pass on for one that came, which is changed."""
        choices = event.get("choices")
        if event.get("error") is not None:
            return [*self._release_held(), event]
        if not isinstance(choices, list) or not choices:  # usage, mostly
            if isinstance(event.get("usage"), dict):
                event["usage"] = self._usage(event["usage"])
                self._usage_sent = True
            return [event]
        if len(choices) != 1 or not isinstance(choices[0], dict):
            self._give_up()
            return [*self._release_held(), event]
        return self._resumed(choices[0]) if self._attempts else self._first(event, choices[0])

    def finish(self) -> list[Json]:
        """The upstream's stream has ended, completely or not."""
        sent = self._release_held()
        if self._attempts and self._params.include_usage and not self._usage_sent:
            sent.append({**self._head, "choices": [], "usage": self._usage({})})
        return sent

    def _release_held(self) -> list[Json]:
        """The held text as an event."""
        self._text, self._stops.held = self._text + self._stops.held, ""
        text, self._passed = self._text[self._passed :], len(self._text)
        self._censor = None
        return [{**self._head, "choices": [self._params.shape.choice(text)]}] if text else []

    def _usage(self, given: Json) -> Json:
        """Tokens of the answer that the client got, and what was discarded."""
        steering = {"rollbacks": self._ledger.rollbacks, "discarded_tokens": self._discarded}
        prompt, answer = len(self._tokens.prompt or ()), self._tokens.count
        if not self._attempts or self._tokens.prompt is None:
            return {**given, "portcullis": steering}
        counts = {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        return {**counts, "portcullis": steering}

    def _first(self, event: Json, choice: Json) -> list[Json]:
        """An event of the first response."""
        self._head = chunks.head_of(event)
        tokens = _token_ids(choice.pop("token_ids", None) or [])
        for holder in (event, choice):
            prompt = _token_ids(holder.pop("prompt_token_ids", None))
            self._tokens.prompt = prompt if prompt is not None else self._tokens.prompt
        shape, given = self._params.shape, self._params.shape.text(choice)
        if tokens is None or not isinstance(given, str | None) or choice.get("index", 0) != 0:
            self._give_up()
        elif self._censor is not None:
            text = given or ""
            too_long = self._tokens.count + len(tokens) > MAX_TOKENS or len(self._text) + len(text) > MAX_TEXT
            if too_long or not self._tokens.align(tokens, text, others=shape.others(choice)):
                self._give_up()
        finished = choice.get("finish_reason") is not None
        text, rolled_back = self._scan(given if isinstance(given, str) else "", ended=finished)
        if rolled_back:
            finished, choice["finish_reason"] = False, None
        if isinstance(given, str) or text:
            shape.put(choice, text)
        passes = text or finished or not (given or rolled_back) or not shape.empty(choice)
        return [event] if passes else []

    def _give_up(self) -> None:
        """The tokens are not known: nothing can be rolled back any more."""
        if self._censor is not None:
            self._censor = None
            self.facts.append(RolledBack(self._params.policy, None, UNREADABLE))

    def _resumed(self, choice: Json) -> list[Json]:
        """An event of a further response, of which only the tokens count."""
        tokens = _token_ids(choice.get("token_ids") or [])
        reason = choice.get("finish_reason")
        if tokens is None:
            raise UnreadableAnswer("the upstream resumed an answer without its token ids")
        given = ""
        for at, token in enumerate(tokens):
            # The token that ends a text is not part of it.
            given += self._tokens.spelled.add(token, silent=reason == "stop" and at == len(tokens) - 1)
        stop: Any = choice.get("stop_reason")
        if self._one and reason == "length" and self._left() > 0:
            reason = None
            self.resume = self._next_request((), one=False)
        text, found = self._stops.split(self._text, given, ended=reason is not None)
        if found is not None:
            self.resume, self.done, reason, stop = None, True, "stop", found
        shown, rolled_back = self._scan(text, ended=reason is not None)
        if rolled_back:
            reason = None
        if not shown and reason is None:
            return []
        sent = self._params.shape.choice(shown)
        if reason is not None:
            sent |= {"finish_reason": reason, "stop_reason": stop}
        return [{**self._head, "choices": [sent]}]

    # -- matches -------------------------------------------------------------------------------------------------------

    def _scan(self, text: str, *, ended: bool) -> tuple[str, bool]:
        """What may be passed on with more text, at the end all of it; and whether the answer is rolled back.

        The text is scanned token by token, however many came together: what is passed on does not depend on it.
        """
        before, start = self._passed, len(self._text)
        self._text += text
        censor = self._censor
        if censor is not None:
            self._scan_tokens(censor, start, ended)
            if censor.blocked is not None:
                shown = self._text[before : self._passed]
                if censor.blocked.action is Action.ROLLBACK and self._roll_back(censor):
                    return shown, True
                self._censor = None
        if self._censor is None or ended:
            self._passed = len(self._text)
        shown = self._text[before : self._passed]
        if self._censor is None:
            # No rollback any more: only the beginning of a stop string can matter.
            self._text = self._text[-self._stops.longest :]
            self._passed = len(self._text)
        return shown, False

    def _scan_tokens(self, censor: Censor, start: int, ended: bool) -> None:
        """Feed the text from `start` on, up to a match; what precedes the token in which the next match could begin is
        passed on."""
        spelled = self._tokens.spelled
        for end in spelled.ends(start, len(self._text)):
            self._released += len(censor.feed(self._text[start:end]))
            start = end
            if ended and end == len(self._text) and censor.blocked is None:
                self._released += len(censor.finish())
            elif censor.blocked is None:
                self._passed = max(self._passed, spelled.chars_before(spelled.place(self._released)))
            if censor.blocked is not None:
                return

    def _roll_back(self, censor: Censor) -> bool:
        """A match that begins behind the released text is certain. False: it stays, for the guard."""
        assert censor.blocked is not None
        rule, start, spelled = censor.blocked.id, self._released, self._tokens.spelled
        place = spelled.place(start)
        outcome, ledger = EXHAUSTED, None
        if self._tokens.prompt is None:
            outcome = UNREADABLE
        elif spelled.chars_before(place) >= self._passed and not self._masked and self._left(place) > 0:
            ledger = self._ledger.after_match(place, spelled.tokens[place])
            if ledger is not None:
                outcome = BANNED if ledger.banned(place) else RESAMPLED
            elif rule in self._params.maskable:
                outcome, self._masked = MASKED, True
        self._report(censor, rule, start, outcome)
        if outcome in (EXHAUSTED, UNREADABLE):
            return False
        self._ledger = ledger or self._ledger
        banned = tuple(sorted(ledger.banned(place))) if ledger is not None else ()
        self._discarded += self._tokens.cut(place)
        self._text = self._text[: spelled.chars_before(place)]
        self._stops.held = ""
        self._censor = Censor(self._params.program)
        self._released = len(self._censor.feed(self._text))
        self._attempts += 1
        self.done = False
        self._one = bool(banned) and not self._params.server_bans
        self.resume = self._next_request(banned, one=self._one)
        return True

    def _next_request(self, banned: tuple[int, ...], *, one: bool) -> Resume:
        tokens = self._tokens
        return Resume(tokens.all, tokens.count, banned, one, self._masked, self._left(), self._attempts)

    def _report(self, censor: Censor, rule: str, start: int, outcome: str) -> None:
        self.facts.append(RolledBack(self._params.policy, rule, outcome))
        if self._on_finding is None or outcome in (EXHAUSTED, UNREADABLE):
            return  # a match that stays is reported by the guard
        for match, seen in zip(censor.matches, censor.seen, strict=True):
            if match.action is Action.ROLLBACK and (match.rule, match.start) == (rule, start):
                length = match.end - match.start
                self._on_finding(Finding(rule, match.action, Direction.OUTPUT, Channel.CONTENT, 0, start, length, seen))
                return

    def _left(self, place: int | None = None) -> int:
        """How many tokens may still come, after those before a token of the text, or after all."""
        kept = self._tokens.count if place is None else self._tokens.count_before(place)
        prompt = len(self._tokens.prompt or ())
        by_context = None if self.context_length is None else self.context_length - prompt
        return min((most - kept for most in (self._params.max_tokens, by_context) if most is not None), default=0)


def _token_ids(given: Any) -> list[int] | None:
    """Token ids as the upstream gives them; None if they are none."""
    if not isinstance(given, list) or not all(type(token) is int for token in given):
        return None
    return given
