"""An answer of a model of our own, told again from where it said what it must not. Pure: events in, events out.

It stands between the upstream and the guard. What comes out are the upstream's own events, later and with less text:
text is held back to the start of the token in which a match could begin (CONTRACT §4.14). When a match is certain, the
tokens from there on are dropped, and `resume` says how the upstream is to be asked again: by token ids, on
`/completions`, whose events are turned into those that came before. The client sees one answer.

Decisions are those of `gateway.decode.rollback.Attempts`. Where nothing can be rolled back, everything passes, and the
guard behind does what the rule's `exhausted` says.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from gateway.censor.compile import Program
from gateway.censor.stream import Censor
from gateway.decode.rollback import Attempts, Caps
from gateway.decode.token_offsets import TokenOffsets
from gateway.guard.channels import Finding, OnFinding
from gateway.observe.facts import RolledBack
from gateway.policy.model import Action, Channel, Direction
from gateway.proxy.steering.shapes import Shape
from gateway.wire import chat
from gateway.wire.chat import Json

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary

# What a rollback came to (`RolledBack.outcome`).
RESAMPLED, BANNED, MASKED, EXHAUSTED, UNREADABLE = "resampled", "banned", "masked", "exhausted", "unreadable"

# What is kept of an answer to go back to. One that grows beyond it is told on as it comes.
MAX_TOKENS = 1 << 18
MAX_TEXT = 1 << 20  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What one answer is told under.

    `program`: what ends or rolls back its text (`compile_stops`). `at_once`: the same token would come again, as at
    temperature 0. `max_tokens`: of the answer, if the client has said. `stops`: the client's stop strings, shown if
    `shows_stop`. `bans`: the server can forbid a request's first token (else a request of one token is sent before).
    `maskable`: rules that a mask takes over when the caps are reached. `tells_usage`: the client wants it.
    """

    policy: str
    program: Program
    vocabulary: Vocabulary
    shape: Shape
    at_once: bool
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    shows_stop: bool = False
    bans: bool = False
    maskable: frozenset[str] = frozenset()
    tells_usage: bool = False
    caps: Caps = field(default_factory=Caps)


class Resume(NamedTuple):
    """Ask again with these tokens as the prompt, of which the last `kept` are the answer so far.

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


class Retelling:
    """See the module. `take` what comes, `end` when no more does. After either, `facts` are to be recorded; if `resume`
    is not None, the upstream is to be let go and asked again; if `done`, it is only to be let go."""

    def __init__(self, terms: Terms, on_finding: OnFinding | None = None) -> None:
        # Tokens that prompt and answer may have together; to be said where the client has not said how many it wants.
        self.room: int | None = None
        self.wants_room = terms.max_tokens is None
        self.resume: Resume | None = None
        self.done = False
        self.facts: list[RolledBack] = []
        self._terms = terms
        self._on_finding = on_finding
        self._ledger = Attempts(terms.caps, at_once=terms.at_once)
        self._head: Json = {}
        self._prompt: list[int] | None = None
        self._before: list[int] = []  # tokens before the text: what a model thought first
        self._loose: list[int] = []  # tokens of which it is not known yet whether they belong to the text
        self._spelled = TokenOffsets(terms.vocabulary)
        self._begun = False
        self._ahead = ""  # what tokens wrote and the upstream has not told yet
        self._unsure = ""  # what could begin a stop string, once nobody else looks for them
        self._text = ""
        self._passed = 0  # characters of the text that were passed on
        self._watch: Censor | None = Censor(terms.program)  # None: everything passes
        self._released = 0  # characters of the text before what could be a match
        self._again = False  # has the upstream been asked again?
        self._masked = False
        self._one = False
        self._attempts = 0
        self._discarded = 0
        self._usage_told = False

    # -- events --------------------------------------------------------------------------------------------------------

    def take(self, event: Json) -> list[Json]:
        """The events to pass on for one that came; it is used up."""
        choices = event.get("choices")
        if event.get("error") is not None:
            return [*self._rest(), event]
        if not isinstance(choices, list) or not choices:
            return self._beside(event)
        if len(choices) != 1 or not isinstance(choices[0], dict):
            self._lose()
            return [*self._rest(), event]
        return self._continued(choices[0]) if self._again else self._first(event, choices[0])

    def end(self) -> list[Json]:
        """The upstream has no more to say, well or badly."""
        sent = self._rest()
        if self._again and self._terms.tells_usage and not self._usage_told:
            sent.append({**self._head, "choices": [], "usage": self._usage({})})
        return sent

    def _rest(self) -> list[Json]:
        """What is held, as an event of its own."""
        text = self._text[self._passed :] + self._unsure
        self._passed, self._text, self._unsure = len(self._text) + len(self._unsure), self._text + self._unsure, ""
        self._watch = None
        return [{**self._head, "choices": [self._terms.shape.choice(text)]}] if text else []

    def _beside(self, event: Json) -> list[Json]:
        """An event without choices: usage, mostly."""
        if isinstance(event.get("usage"), dict):
            event["usage"] = self._usage(event["usage"])
            self._usage_told = True
        return [event]

    def _usage(self, told: Json) -> Json:
        """What the client has got for its tokens, and what it cost beside."""
        steering = {"rollbacks": self._ledger.rollbacks, "discarded_tokens": self._discarded}
        if not self._again or self._prompt is None:
            return {**told, "portcullis": steering}
        asked, said = len(self._prompt), self._count
        counts = {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said}
        return {**counts, "portcullis": steering}

    @property
    def _count(self) -> int:
        """Tokens of the answer so far."""
        return len(self._before) + len(self._loose) + len(self._spelled.tokens)

    # -- the first request, as the upstream tells it -------------------------------------------------------------------

    def _first(self, event: Json, choice: Json) -> list[Json]:
        self._head = chat.head_of(event)
        tokens = _tokens(choice.pop("token_ids", None) or [])
        for holder in (event, choice):
            prompt = _tokens(holder.pop("prompt_token_ids", None))
            self._prompt = prompt if prompt is not None else self._prompt
        shape, given = self._terms.shape, self._terms.shape.text(choice)
        if tokens is None or not isinstance(given, str | None) or choice.get("index", 0) != 0:
            self._lose()
        elif self._watch is not None:
            self._align(tokens, given or "", shape.others(choice))
        finished = choice.get("finish_reason") is not None
        text, rolled_back = self._judge(given if isinstance(given, str) else "", ended=finished)
        if rolled_back:
            finished, choice["finish_reason"] = False, None
        if isinstance(given, str) or text:
            shape.put(choice, text)
        told = text or finished or not (given or rolled_back) or not shape.empty(choice)
        return [event] if told else []

    def _align(self, tokens: list[int], given: str, others: bool) -> None:
        """Do the tokens write what the upstream says that they do? If not, no place in its text is that of a token."""
        if self._count + len(tokens) > MAX_TOKENS or len(self._text) + len(given) > MAX_TEXT:
            self._lose()
            return
        if not self._begun:
            tokens, self._loose = self._loose + tokens, []
            if not given:
                known = self._before if others else self._loose
                known += tokens
                return
            begin = self._beginning(tokens, given) if self._before or others else 0
            if begin is None:
                self._lose()
                return
            self._before, tokens = self._before + tokens[:begin], tokens[begin:]
            self._begun = True
        elif others:
            self._lose()
            return
        self._ahead += "".join(map(self._spelled.add, tokens))
        if not self._ahead.startswith(given):
            self._lose()
            return
        self._ahead = self._ahead[len(given) :]

    def _beginning(self, tokens: list[int], given: str) -> int | None:
        """Which of the tokens behind a model's thoughts is the first that writes `given`?"""
        for begin in range(len(tokens)):
            spelled = TokenOffsets(self._terms.vocabulary)
            if "".join(map(spelled.add, tokens[begin:])).startswith(given):
                return begin
        return None

    def _lose(self) -> None:
        if self._watch is not None:
            self._watch = None
            self.facts.append(RolledBack(self._terms.policy, None, UNREADABLE))

    # -- further requests, whose tokens are what counts ----------------------------------------------------------------

    def _continued(self, choice: Json) -> list[Json]:
        tokens = _tokens(choice.get("token_ids") or [])
        reason = choice.get("finish_reason")
        if tokens is None:
            raise UnreadableAnswer("the upstream resumed an answer without its token ids")
        given = ""
        for at, token in enumerate(tokens):
            # The token that ends a text is not part of it.
            given += self._spelled.add(token, silent=reason == "stop" and at == len(tokens) - 1)
        stop: Any = choice.get("stop_reason")
        if self._one and reason == "length" and (most := self._left()) > 0:
            reason = None
            self.resume = Resume(self._prompt_so_far(), self._count, (), False, self._masked, most, self._attempts)
        text, found = self._until_stop(given, ended=reason is not None)
        if found is not None:
            self.resume, self.done, reason, stop = None, True, "stop", found
        shown, rolled_back = self._judge(text, ended=reason is not None)
        if rolled_back:
            reason = None
        if not shown and reason is None:
            return []
        told = self._terms.shape.choice(shown)
        if reason is not None:
            told |= {"finish_reason": reason, "stop_reason": stop}
        return [{**self._head, "choices": [told]}]

    def _until_stop(self, given: str, *, ended: bool) -> tuple[str, str | None]:
        """What of new text is no part of a stop string, and the one that ends the answer, if one does."""
        text, self._unsure = self._unsure + given, ""
        reach = max(map(len, self._terms.stops), default=1) - 1
        before = self._text[max(len(self._text) - reach, 0) :] if reach else ""
        whole = before + text
        found = [(at, stop) for stop in self._terms.stops if (at := whole.find(stop)) >= 0]
        if found:
            at, stop = min(found)
            end = at + len(stop) if self._terms.shows_stop else at
            return whole[len(before) : end], stop
        sure = len(text) if ended else max(len(text) - reach, 0)
        self._unsure = text[sure:]
        return text[:sure], None

    # -- matches -------------------------------------------------------------------------------------------------------

    def _judge(self, text: str, *, ended: bool) -> tuple[str, bool]:
        """What may be passed on with more text, at the end all of it; and whether the answer is rolled back.

        It is looked at token by token, however many came together: what is passed on does not depend on it.
        """
        before, begin = self._passed, len(self._text)
        self._text += text
        watch = self._watch
        if watch is not None:
            self._look(watch, begin, ended)
            if watch.blocked is not None:
                shown = self._text[before : self._passed]
                if watch.blocked.action is Action.ROLLBACK and self._roll_back(watch):
                    return shown, True
                self._watch = None
        if self._watch is None or ended:
            self._passed = len(self._text)
        shown = self._text[before : self._passed]
        if self._watch is None:
            # Nobody goes back any more: only the beginning of a stop string can matter.
            self._text = self._text[-max(map(len, self._terms.stops), default=1) :]
            self._passed = len(self._text)
        return shown, False

    def _look(self, watch: Censor, begin: int, ended: bool) -> None:
        """Feed the text from `begin` on, up to a match; what stands before the token in which the next one could begin
        is passed on."""
        for end in self._spelled.ends(begin, len(self._text)):
            self._released += len(watch.feed(self._text[begin:end]))
            begin = end
            if ended and end == len(self._text) and watch.blocked is None:
                self._released += len(watch.finish())
            elif watch.blocked is None:
                self._passed = max(self._passed, self._spelled.chars_before(self._spelled.place(self._released)))
            if watch.blocked is not None:
                return

    def _roll_back(self, watch: Censor) -> bool:
        """A match that begins behind the released text is certain. False: it stays, and the guard sees it."""
        assert watch.blocked is not None
        rule, start = watch.blocked.id, self._released
        place = self._spelled.place(start)
        outcome, ledger = EXHAUSTED, None
        if self._prompt is None:
            outcome = UNREADABLE
        elif self._spelled.chars_before(place) >= self._passed and not self._masked and self._left(place) > 0:
            ledger = self._ledger.after_match(place, self._spelled.tokens[place])
            if ledger is not None:
                outcome = BANNED if ledger.banned(place) else RESAMPLED
            elif rule in self._terms.maskable:
                outcome, self._masked = MASKED, True
        self._note(watch, rule, start, outcome)
        if outcome in (EXHAUSTED, UNREADABLE):
            return False
        self._ledger = ledger or self._ledger
        banned = tuple(sorted(ledger.banned(place))) if ledger is not None else ()
        self._cut(place)
        self._attempts += 1
        self._again, self.done = True, False
        self._one = bool(banned) and not self._terms.bans
        self.resume = Resume(
            self._prompt_so_far(), self._count, banned, self._one, self._masked, self._left(), self._attempts
        )
        return True

    def _cut(self, place: int) -> None:
        self._discarded += len(self._spelled.tokens) - place
        self._spelled.cut(place)
        self._text = self._text[: self._spelled.chars_before(place)]
        self._ahead = self._unsure = ""
        self._watch = Censor(self._terms.program)
        self._released = len(self._watch.feed(self._text))

    def _note(self, watch: Censor, rule: str, start: int, outcome: str) -> None:
        self.facts.append(RolledBack(self._terms.policy, rule, outcome))
        if self._on_finding is None or outcome in (EXHAUSTED, UNREADABLE):
            return  # what stays is the guard's to report
        for match, seen in zip(watch.matches, watch.seen, strict=True):
            if match.action is Action.ROLLBACK and (match.rule, match.start) == (rule, start):
                length = match.end - match.start
                self._on_finding(Finding(rule, match.action, Direction.OUTPUT, Channel.CONTENT, 0, start, length, seen))
                return

    def _prompt_so_far(self) -> tuple[int, ...]:
        assert self._prompt is not None
        return (*self._prompt, *self._before, *self._spelled.tokens)

    def _left(self, place: int | None = None) -> int:
        """How many tokens may still come, after those before a place of the text, or after all."""
        kept = self._count if place is None else len(self._before) + place
        room = None if self.room is None else self.room - len(self._prompt or ())
        return min((most - kept for most in (self._terms.max_tokens, room) if most is not None), default=0)


class UnreadableAnswer(Exception):
    """A resumed answer that cannot be gone on with."""


def _tokens(given: Any) -> list[int] | None:
    """Token ids as the upstream gives them; None if they are none."""
    if not isinstance(given, list) or not all(type(token) is int for token in given):
        return None
    return given
