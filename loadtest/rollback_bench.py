"""What rollback costs in tokens: those spent for each one delivered, by a real vLLM behind the real gateway.

    python -m loadtest.rollback_bench [--answers N] [--quick] [--out DIR]

It needs what `make vllm-test` installs. A small model is asked the same questions with the same seeds, at temperature
1, first directly and then through policies whose rules roll back. Their words are chosen from what it said directly,
so that a planned share of the answers holds one of them (`answers`), or that one begins at a planned share of all
tokens (`tokens`). The gateway says in each answer's `usage` what was thrown away.

    hit          the share of answers in which a rule matched once at least: the hit rate that the limit is for
    per token    rollbacks for each delivered token
    spent        delivered and discarded tokens
    ratio        spent / delivered
    engine       the tokens that vLLM says it made, for each one delivered: what it was not stopped from in time counts
                 here too, and the few with which the gateway asks whether masks are in force
    given up     answers in which a match was replaced, since no rollback was left, or none is done at all

A word that comes out fails the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from loadtest import process, sections
from loadtest.process import choose_cores
from loadtest.report import environment, verdict_lines
from loadtest.targets import TargetError, free_port, wait_until_ready
from loadtest.verdicts import Figure, Verdict
from tests.support.vllm_server import MODEL, NAME, PYTHON, TIMEOUT, NotStarted, Server, serving

ANSWERS, QUICK_ANSWERS = 400, 40
AT_ONCE = 8  # requests
MAX_TOKENS = 64
SPENT_LIMIT = 1.1  # tokens spent for each one delivered
JUDGED = 0.05  # the hit rate that the limit is for
REPLACEMENT = "[REDACTED]"
NEVER = "zyxwvutsrq"  # nobody says it
SECTION = "Tokens spent by rollback"

# Nothing that the model knows by heart, so that it answers in many ways.
QUESTIONS = tuple(
    form.format(what)
    for what in ("lists", "files", "a river", "numbers", "the weather", "names", "bears", "secrets", "code", "Spain")
    for form in ("Tell me about {}.", "What do you know of {}?", "Explain {} to me.", "Why {}?")
)
_WORD = re.compile(r"\w+")
_MADE = re.compile(r"(?m)^vllm:generation_tokens_total\{.*\} ([0-9.e+]+)$")


@dataclass(frozen=True, slots=True)
class Rung:
    """A policy by how often its words come up where nobody stops them: in a share of the answers, or, where `per` is
    `tokens`, that many times for each token."""

    per: str
    share: float

    @property
    def name(self) -> str:
        return f"{self.per}-{self.share * 100:g}"

    @property
    def judged(self) -> bool:
        return self.per == "answers" and self.share == JUDGED


RUNGS = (
    *(Rung("answers", share) for share in (0.0, 0.01, 0.02, JUDGED, 0.1, 0.2)),
    *(Rung("tokens", share) for share in (0.01, 0.02, 0.05, 0.1, 0.2)),
)
QUICK_RUNGS = (RUNGS[0], Rung("answers", JUDGED), Rung("tokens", JUDGED))


@dataclass(frozen=True, slots=True)
class Answer:
    """`delivered`: its tokens; `discarded`: those that were thrown away for it."""

    text: str
    delivered: int
    discarded: int = 0
    rollbacks: int = 0

    @staticmethod
    def of(document: Mapping[str, Any]) -> Answer:
        """From a whole answer as a client gets it. Raises KeyError where it holds no usage or no choice."""
        usage = document["usage"]
        ours = usage.get("portcullis") or {}
        return Answer(
            text=document["choices"][0]["message"]["content"] or "",
            delivered=usage["completion_tokens"],
            discarded=ours.get("discarded_tokens", 0),
            rollbacks=ours.get("rollbacks", 0),
        )

    @property
    def words(self) -> Counter[str]:
        return Counter(word.casefold() for word in _WORD.findall(self.text))

    @property
    def given_up(self) -> bool:
        return REPLACEMENT in self.text


@dataclass(frozen=True, slots=True)
class Tally:
    """All answers of one policy. `made`: tokens, by the engine's own count; `leaked`: answers with a forbidden word."""

    rung: Rung
    answers: int
    hit: int
    rollbacks: int
    delivered: int
    discarded: int
    made: int
    given_up: int
    leaked: int

    @staticmethod
    def of(rung: Rung, words: Iterable[str], answers: Sequence[Answer], made: int) -> Tally:
        forbidden = {word.casefold() for word in words}
        return Tally(
            rung=rung,
            answers=len(answers),
            hit=sum(bool(answer.rollbacks) or answer.given_up for answer in answers),
            rollbacks=sum(answer.rollbacks for answer in answers),
            delivered=sum(answer.delivered for answer in answers),
            discarded=sum(answer.discarded for answer in answers),
            made=made,
            given_up=sum(answer.given_up for answer in answers),
            leaked=sum(not forbidden.isdisjoint(answer.words) for answer in answers),
        )

    @property
    def hit_rate(self) -> float:
        return self.hit / self.answers

    @property
    def spent(self) -> int:
        return self.delivered + self.discarded

    @property
    def ratio(self) -> float:
        return self.spent / self.delivered

    @property
    def made_ratio(self) -> float:
        return self.made / self.delivered

    @property
    def fault(self) -> str:
        """What cannot be right; empty if nothing."""
        if self.leaked:
            return f"{self.rung.name}: a forbidden word in {self.leaked} answers"
        if self.hit and not self.rollbacks:
            return f"{self.rung.name}: {self.hit} answers were hit and none was rolled back"
        if not self.rung.share and (self.hit or self.discarded):
            return f"{self.rung.name}: {self.hit} answers hit, {self.discarded} tokens discarded by a word never said"
        if self.made < self.spent:
            return f"{self.rung.name}: {self.spent} tokens are said to be spent, of {self.made} that were made"
        return ""


@dataclass(frozen=True, slots=True)
class Said:
    """What was said where nobody stopped it: the words of each answer, and all tokens together."""

    words: tuple[Counter[str], ...]
    tokens: int

    @staticmethod
    def of(answers: Sequence[Answer]) -> Said:
        return Said(tuple(answer.words for answer in answers), sum(answer.delivered for answer in answers))

    def in_answers(self, words: Iterable[str]) -> float:
        """The share of answers that hold one of these words."""
        wanted = set(words)
        return sum(not wanted.isdisjoint(each) for each in self.words) / len(self.words)

    def in_tokens(self, words: Iterable[str]) -> float:
        """How many of these words there are for each token."""
        wanted = set(words)
        return sum(each[word] for each in self.words for word in wanted) / self.tokens


def choose(said: Said, rung: Rung) -> tuple[str, ...]:
    """Words that come up as often as the rung wants, as nearly as adding one after another can come from below."""
    if not rung.share:
        return (NEVER,)
    share = {"answers": said.in_answers, "tokens": said.in_tokens}[rung.per]
    candidates = [word for word in sorted(set().union(*said.words)) if word.isalpha()]
    return _add(candidates, rung.share, share) or (NEVER,)


def _add(candidates: Sequence[str], wanted: float, share: Callable[[Iterable[str]], float]) -> tuple[str, ...]:
    """The commonest first: large steps, then small ones."""
    chosen: list[str] = []
    reached = 0.0
    for word in sorted(candidates, key=lambda word: share((word,)), reverse=True):
        if reached < (with_it := share((*chosen, word))) <= wanted:
            chosen.append(word)
            reached = with_it
    return tuple(chosen)


def configuration(port: int, base_url: str, policies: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """A gateway with a policy for each rung, chosen by the name of the model; JSON is YAML."""
    rule = {
        "id": "words", "action": "rollback", "exhausted": "redact", "replacement": REPLACEMENT, "whole_word": True
    }  # fmt: skip
    return {
        "listen": {"host": "127.0.0.1", "port": port},
        "auth": "none",
        "upstreams": {"local": {"type": "vllm", "base_url": base_url, "tokenizer": str(MODEL)}},
        "routes": [{"model": name, "upstream": "local", "policy": name, "rename": NAME} for name in policies],
        "policies": {name: {"rules": [{**rule, "words": list(words)}]} for name, words in policies.items()},
    }


@contextmanager
def gateway(directory: Path, base_url: str, policies: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """A gateway in a process of its own; its URL. Raises `TargetError` if it does not start or does not answer."""
    port = free_port()
    path = directory / "portcullis.yaml"
    path.write_text(json.dumps(configuration(port, base_url, policies), indent=2), encoding="utf-8")
    log = directory / "gateway.log"
    command = process.python("gateway.cli", "serve", "--config", str(path), "--port", str(port), "--no-watch")
    started = process.start(command, cores=frozenset(), log=log)
    try:
        # Not /readyz: that may ask for masks at the server, of which there are none here.
        wait_until_ready("portcullis", started, port, "/healthz", log)
        yield f"http://127.0.0.1:{port}"
    except httpx2.HTTPError as error:
        output = log.read_text(errors="replace")[-800:].strip()
        raise TargetError(f"{error}; the end of the gateway's output: {output or 'nothing'}") from error
    finally:
        process.stop(started)


async def request_answers(url: str, model: str, count: int) -> list[Answer]:
    """The answers to all questions, `AT_ONCE` at a time. Raises `httpx2.HTTPError` for one that is none."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(client: httpx2.AsyncClient, number: int) -> Answer:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}],
            "temperature": 1,
            "seed": number,
            "max_tokens": MAX_TOKENS,
            "stream": False,
        }
        async with gate:
            answer = await client.post("/v1/chat/completions", json=body)
        return Answer.of(answer.raise_for_status().json())

    async with httpx2.AsyncClient(base_url=url, timeout=TIMEOUT, trust_env=False) as client:
        return await asyncio.gather(*(one(client, number) for number in range(count)))


def measure(rungs: Sequence[Rung], count: int) -> list[Tally]:
    """Start a server and a gateway, ask, and end both. Raises `NotStarted` or `TargetError` if one does not start."""
    with tempfile.TemporaryDirectory(prefix="portcullis-bench-") as temporary:
        directory = Path(temporary)
        with serving(directory / "vllm.log", free_port()) as server:
            said = Said.of(asyncio.run(request_answers(server.url, NAME, count)))
            policies = {rung.name: choose(said, rung) for rung in rungs}
            tallies = []
            with gateway(directory, f"{server.url}/v1", policies) as url:
                for rung in rungs:
                    before = made(server)
                    answers = asyncio.run(request_answers(url, rung.name, count))
                    tallies.append(Tally.of(rung, policies[rung.name], answers, made(server) - before))
            return tallies


def made(server: Server) -> int:
    """How many tokens the engine has made so far, as its own metrics say."""
    return tokens_in(httpx2.get(f"{server.url}/metrics", timeout=TIMEOUT).raise_for_status().text)


def tokens_in(metrics: str) -> int:
    """The counter of tokens in a scrape of vLLM, over all its engines."""
    return sum(round(float(found[1])) for found in _MADE.finditer(metrics))


def verdicts(tallies: Sequence[Tally]) -> list[Verdict]:
    """The limit, for the rung that it is for, by the gateway's count and by the engine's; not measured where fewer than
    half or more than twice as many answers as meant are hit, or nothing was rolled back."""
    return [
        Verdict(
            f"tokens {what} / delivered where {JUDGED:.0%} of answers are hit (here {tally.hit_rate:.1%})",
            SPENT_LIMIT,
            Figure(ratio, ratio, ratio) if _meant(tally) else None,
        )
        for tally in tallies
        if tally.rung.judged
        for what, ratio in (("spent", tally.ratio), ("made by the engine", tally.made_ratio))
    ]


def _meant(tally: Tally) -> bool:
    return tally.rollbacks > 0 and JUDGED / 2 <= tally.hit_rate <= JUDGED * 2


def table(tallies: Sequence[Tally]) -> str:
    """One line a policy."""
    lines = [
        "planned        answers     hit  rollbacks  per token  delivered  discarded   spent  ratio  engine  given up"
    ]
    for tally in tallies:
        planned = f"{tally.rung.share:.0%} of {tally.rung.per}"
        lines.append(
            f"{planned:<13}  {tally.answers:7,}  {tally.hit_rate:6.1%}  {tally.rollbacks:9,}  "
            f"{tally.rollbacks / tally.delivered:9.2%}  {tally.delivered:9,}  {tally.discarded:9,}  {tally.spent:6,}  "
            f"{tally.ratio:5.3f}  {tally.made_ratio:6.3f}  {tally.given_up:8,}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and the verdict. Exit status 1 if the limit is missed or was not measured, or if something came
    out wrong; 2 if there is no vLLM."""
    options = _parser().parse_args(arguments)
    if not PYTHON.exists() or not MODEL.exists():
        print("rollback_bench: no vLLM here; `make vllm-test` installs one", file=sys.stderr)
        return 2
    # As an exception it passes through every `finally` that ends a child.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    # Everything is on this machine; a proxy in the environment is not meant for it.
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = "*"
    count = options.answers or (QUICK_ANSWERS if options.quick else ANSWERS)
    facts = environment(choose_cores())  # before it runs: a checkout can change in the minutes that it takes
    try:
        tallies = measure(QUICK_RUNGS if options.quick else RUNGS, count)
    except (NotStarted, TargetError, httpx2.HTTPError, OSError) as error:
        print(f"WRONG  {error}", file=sys.stderr)
        return 1
    judged = verdicts(tallies)
    page = f"{table(tallies)}\n\n{verdict_lines(judged)}"
    print(page)
    faults = [tally.fault for tally in tallies if tally.fault]
    for fault in faults:
        print(f"WRONG  {fault}", file=sys.stderr)
    if options.out or not (options.quick or faults):
        sections.put((options.out or sections.RESULTS.parent) / sections.RESULTS.name, SECTION, written(page, facts))
    return 1 if faults or any(verdict.holds is not True for verdict in judged) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m loadtest.rollback_bench", description="Tokens spent for each one delivered."
    )
    parser.add_argument("--answers", type=_count, metavar="N", help=f"answers for each policy ({ANSWERS})")
    parser.add_argument("--quick", action="store_true", help=f"three policies and {QUICK_ANSWERS} answers")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where decode.md goes (loadtest/results; with --quick, or where something is wrong, nowhere)",
    )
    return parser


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 100_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of answers from 1 to 100,000")
    return int(text)


def written(page: str, facts: Mapping[str, str]) -> str:
    """The section of the page of results; `facts` as in `report.environment`."""
    head = "\n".join(f"{key:<9} {facts[key]}" for key in ("machine", "commit"))
    return (
        "`python -m loadtest.rollback_bench`, a model of 650,000 parameters on vLLM's CPU build. The hit rate is the\n"
        "share of answers in which a rule matched once at least. `per token` are the rollbacks for each delivered\n"
        "token, `engine` the tokens that vLLM says it made for each one, with those it made before it was stopped.\n\n"
        f"```text\n{head}\n\n{page}\n```"
    )


if __name__ == "__main__":
    sys.exit(main())
