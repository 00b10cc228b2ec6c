"""Verification: repeats the audit through word masks or a gateway, and reports what still matches a rule."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass

from gateway.audit.cli.gateway_client import GatewayClient, GatewaySampling
from gateway.audit.cli.plan import Plan
from gateway.audit.matcher import RuleMatcher
from gateway.audit.models.masked import MaskedModel
from gateway.audit.query.model import Query
from gateway.audit.run.interrupts import AuditStopped, Ended, Interrupts
from gateway.audit.run.lines import LineWriter
from gateway.audit.run.progress import FoundString
from gateway.audit.run.runner import LocalRunner, Outcome, SamplingOutcome, run_sampling
from gateway.audit.run.scheduler import TaskRunner
from gateway.policy.model import Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """`still`: the number of texts that still match a rule. `summary`: for the last line of the output."""

    summary: Mapping[str, object]
    still: int = 0
    ended: Ended = Ended.FINISHED
    error: Exception | None = None


def through_masks(
    plan: Plan,
    rules: tuple[Rule, ...],
    runner: TaskRunner,
    lines: LineWriter,
    interrupts: Interrupts,
    least: float,
) -> Verification:
    """Repeats the audit with the rules' words masked, and writes each match as a line. `least`: a log-probability, as
    in the audit itself."""
    matcher = _matcher(plan, rules)
    nothing = LineWriter(lines.meter)
    outcome: Outcome | SamplingOutcome
    if plan.sampling is not None and isinstance(runner, LocalRunner):
        masked = MaskedModel.of(runner.model, rules, plan.queries[0])
        outcome = run_sampling(plan.sampling, masked, nothing, interrupts)
    else:
        outcome = runner.perform(plan.tasks, nothing, interrupts, None, least, rules)
    found, ended = outcome.found, outcome.ended
    still = [each for each in found if _is_violation(matcher, each, plan.query_of(each), runner.end)]
    for each in still:
        lines.write({"still": each.fields()})
    summary = {"through": "mask", "still": len(still), "others": len(found) - len(still), "ended": str(ended)}
    return Verification(still=len(still), ended=ended, summary=summary, error=outcome.error)


def _matcher(plan: Plan, rules: tuple[Rule, ...]) -> RuleMatcher:
    return RuleMatcher(rules) if plan.policy is None else RuleMatcher(rules, plan.policy.max_hold)


def _is_violation(matcher: RuleMatcher, found: FoundString, query: Query, end: Container[int]) -> bool:
    """Is the match certain? One at the end may depend on what comes next, unless the text ends there or is cut."""
    result = found.result
    matched_rules = matcher.matched_rules(result.text[result.prefix :].encode())
    ended = result.tokens[-1:] and result.tokens[-1] in end
    cut = query.prefix is None and len(result.tokens) >= query.decoding.max_tokens
    return (matched_rules.at_end if ended or cut else matched_rules.certain) is not None


def through_gateway(
    plan: Plan, found: Iterable[FoundString], rules: tuple[Rule, ...], gateway: GatewayClient,
    sampling: Callable[[Query], GatewaySampling], lines: LineWriter, interrupts: Interrupts,
) -> Verification:  # fmt: skip
    """Sends what led to the findings to a gateway, and writes each answer that matches a rule as a line. `sampling`:
    how answers are drawn for a query. When it is stopped, the answers received by then count. Raises
    GatewayError."""
    matcher = _matcher(plan, rules)
    questions = {}
    for each in found:
        question, drawn = plan.question(each), sampling(plan.query_of(each))
        questions[str(question.prompt), question.begun, drawn] = question, drawn
    asked = answers = still = 0
    stopped: AuditStopped | None = None
    for question, drawn in questions.values():
        texts = []
        try:
            with interrupts.interruptible():
                # One by one: what came before a stop is kept.
                for text in gateway.answers(question, drawn):
                    texts.append(text)
            asked += 1
        except AuditStopped as stop:
            stopped = stop
        for text in texts:
            answers += 1
            if matches := matcher.matches(text):
                still += 1
                lines.write({"still": {"begun": question.begun, "text": text, "rule": matches[0].rule}})
        if stopped is not None:
            break
    ended = Ended.FINISHED if stopped is None else stopped.ended
    summary: dict[str, object] = {"through": "gateway", "still": still, "questions": asked, "texts": answers}
    if stopped is not None:
        summary["ended"] = str(ended)
    return Verification(still=still, ended=ended, summary=summary)
