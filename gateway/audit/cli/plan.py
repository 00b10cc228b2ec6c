"""Plans an audit: the model and the tasks for files of queries, or for prompts and a policy."""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial

from gateway.audit.cli.gateway_client import Question
from gateway.audit.cli.options import decoding_of
from gateway.audit.cli.report import ReportRow
from gateway.audit.language.aligned import edited_at
from gateway.audit.language.automaton import Dfa
from gateway.audit.matcher import RuleMatcher
from gateway.audit.model import LanguageModel, ModelError
from gateway.audit.models.loading import with_credentials
from gateway.audit.query.load import load_query
from gateway.audit.query.model import (
    Edits,
    Filter,
    LocalModel,
    Message,
    PrefixRegex,
    PrefixText,
    Query,
    Random,
    ServedModel,
    compile,
)
from gateway.audit.run.progress import FoundString
from gateway.audit.run.runner import PolicyTask, Task, matcher_of
from gateway.audit.searches.best_first import Result, digest
from gateway.audit.searches.policy import output_rules, policy_digest, prompt_query
from gateway.audit.searches.sample import RandomSearch, sample
from gateway.audit.searches.steps import Canonical
from gateway.config import ConfigError, load
from gateway.policy.files import read_text
from gateway.policy.model import Config, Policy, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The model and the work. `tasks` are searches, replaced by `sampling` where strings are drawn. `shown`: fields for
    the report. `policy` and `matcher`: of an audit of prompts."""

    model: LocalModel | ServedModel
    queries: tuple[Query, ...]
    tasks: tuple[Task, ...] = ()
    sampling: Callable[[LanguageModel], RandomSearch] | None = None
    shown: Mapping[str, object]
    policy: Policy | None = None
    matcher: RuleMatcher | None = None

    @property
    def digest(self) -> str:
        """Identifies the audit, for its checkpoints."""
        matcher = self.matcher
        each = [digest(query) if matcher is None else policy_digest(query, matcher) for query in self.queries]
        return hashlib.sha256(" ".join(each).encode()).hexdigest()

    @property
    def has_edits(self) -> bool:
        return any(map(_has_edits, self.queries))

    @property
    def ranks(self) -> bool:
        """Are the strings ordered, the most likely first?"""
        return self.sampling is None and self.matcher is None and len(self.queries) == 1

    def query_of(self, found: FoundString) -> Query:
        """The query that led to a string; of prompts the first, for they differ in nothing else."""
        named = found.more.get("query")
        return self.queries[0] if named is None else next(query for query in self.queries if query.source == named)

    def words(self, found: Iterable[FoundString]) -> list[str]:
        """The generated texts: after the prefix, or the match of a rule."""
        return [each.more.get("match", each.result.text[each.result.prefix :]) for each in found]

    def question(self, found: FoundString) -> Question:
        """The prompt or messages that led to a string."""
        prompt = self.query_of(found).prompt
        if self.matcher is not None:
            said = found.more["prompt"]
            prompt = said if isinstance(prompt, str) else (Message("user", said),)
        messages = prompt if isinstance(prompt, str) else tuple({"role": m.role, "content": m.content} for m in prompt)
        return Question(messages, found.result.text[: found.result.prefix])

    def enforced(self, rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        """What a served model must not write: `rules`, and the policy's own words that are masked."""
        return (*rules, *(self.policy.masked if self.policy is not None else ()))

    def rows(self, found: Iterable[FoundString], model: LanguageModel) -> list[ReportRow]:
        """The rows of the report."""
        canonical = {begins_text: Canonical(model, begins_text) for begins_text in (True, False)}
        before = {query.source: _before_edits(query) for query in self.queries if _has_edits(query)}
        rows = []
        for each in found:
            query = self.query_of(each)
            base, most = before.get(query.source, (None, 0))
            rows.append(
                ReportRow(
                    result=each.result,
                    canonical=_is_canonical(canonical[not query.prompt], each.result, model),
                    edits=() if base is None else edited_at(base, each.result.text, most) or (),
                    more=each.more,
                )
            )
        return rows


def _has_edits(query: Query) -> bool:
    return any(isinstance(step, Edits) for step in query.preprocess)


def _before_edits(query: Query) -> tuple[Dfa, int]:
    """The strings before they were edited, and how many edits there may be. A filter may have left out what
    an edited string came from."""
    others = tuple(step for step in query.preprocess if not isinstance(step, Edits | Filter))
    most = sum(step.most for step in query.preprocess if isinstance(step, Edits))
    return compile(replace(query, preprocess=others)).language, most


def _is_canonical(canonical: Canonical, result: Result, model: LanguageModel) -> bool | None:
    tokens = [token for token in result.tokens if token not in model.vocabulary.end]
    try:
        return canonical.is_canonical(tokens, result.text)
    except ModelError:
        return None  # a report can do without


def plan_of(options: argparse.Namespace) -> Plan:
    """Raises ConfigError for invalid files, before any model is loaded."""
    return _plan_of_queries(options) if options.policy is None else _plan_of_prompts(options)


# -- queries -----------------------------------------------------------------------------------------------------------


def _plan_of_queries(options: argparse.Namespace) -> Plan:
    queries = tuple(map(load_query, dict.fromkeys(options.queries)))
    models: list[LocalModel | ServedModel] = []
    for query in queries:
        model = options.model or query.model
        if model is None:
            raise ConfigError(query.source, "model", "is required, here or as --model")
        models.append(model)
        if model != models[0]:
            raise ConfigError(query.source, "model", f"differs from that of {queries[0].source}; give --model")
        compile(query)  # whatever is wrong with it shows before a model is loaded
        if isinstance(query.traversal, Random):
            _check_random(query, options, alone=len(queries) == 1)
    first, several = queries[0], len(queries) > 1
    shown: dict[str, object] = {"query": first.query, "prefix": _prefix_of(first), "decoding": _decoding_of(first)}
    if several:
        shown = {"queries": [query.source for query in queries]}
    plan = Plan(model=with_credentials(models[0], first.source), queries=queries, shown=shown)
    if isinstance(first.traversal, Random):
        return replace(plan, sampling=partial(sample, query=first, samples=options.limit, batch=options.batch))
    tasks = (Task(query=query, limit=options.limit, batch=options.batch, named=several) for query in queries)
    return replace(plan, tasks=tuple(tasks))


def _check_random(query: Query, options: argparse.Namespace, alone: bool) -> None:
    if not alone:
        reason = "random is for a query that is asked alone; its samples are no strings in an order"
    elif options.processes is not None or options.ray is not None:
        reason = "random draws in this process: leave --processes and --ray out"
    elif options.checkpoint is not None or options.resume is not None:
        reason = "random has no checkpoint: its seed draws the same again"
    else:
        return
    raise ConfigError(query.source, "traversal", reason)


def _prefix_of(query: Query) -> str | None:
    match query.prefix:
        case None | str():
            return query.prefix
        case PrefixText():
            return query.prefix.text
        case PrefixRegex():
            return query.prefix.pattern


def _decoding_of(query: Query) -> dict[str, object]:
    return {**asdict(query.decoding), "tokenizations": str(query.tokenizations)}


# -- prompts and a policy ----------------------------------------------------------------------------------------------


def _plan_of_prompts(options: argparse.Namespace) -> Plan:
    config = load(options.config)
    if options.policy not in config.policies:
        known = ", ".join(config.policies)
        raise ConfigError(str(options.config), f"policies.{options.policy}", f"no such policy; there are: {known}")
    policy = config.policies[options.policy]
    rules = output_rules(policy)
    if not rules:
        raise ConfigError(str(options.config), f"policies.{policy.name}", "has no rule for a model's output")
    matcher = matcher_of(rules, policy.max_hold)
    source = str(options.prompts)
    text = read_text(options.prompts, lambda reason: ConfigError(source, "", reason))
    prompts = [line for line in re.split("\r\n|\n|\r", text) if line.strip()]
    if not prompts:
        raise ConfigError(source, "", "holds no prompt; write one a line")
    decoding = decoding_of(options)
    queries = tuple(
        prompt_query(prompt, chat=options.chat, decoding=decoding, limit=options.limit, source=source)
        for prompt in prompts
    )
    return Plan(
        # A configuration has the key of its server.
        model=with_credentials(options.model, source) if options.model else _routed_model(config, options),
        queries=queries,
        tasks=tuple(
            PolicyTask(
                query=query, prompt=prompt, number=at, rules=rules, max_hold=policy.max_hold, batch=options.batch
            )
            for at, (query, prompt) in enumerate(zip(queries, prompts, strict=True), start=1)
        ),
        shown={"policy": policy.name, "prompts": len(prompts), "decoding": _decoding_of(queries[0])},
        policy=policy,
        matcher=matcher,
    )


def _routed_model(config: Config, options: argparse.Namespace) -> ServedModel:
    """The one local model that routes lead to through the policy."""
    found: dict[tuple[str, str], ServedModel] = {}
    for route in config.routes:
        name = route.rename or ("" if set(route.model) & set("*?[") else route.model)
        for upstream in (config.upstreams[each] for each in route.upstreams if route.policy == options.policy):
            if name and upstream.base_url and upstream.tokenizer is not None:
                # Several servers of one model say the same.
                served = ServedModel(
                    vllm=upstream.base_url, name=name, tokenizer=upstream.tokenizer, api_key=upstream.api_key
                )
                found.setdefault((name, upstream.tokenizer), served)
    if len(found) != 1:
        reason = (
            f"its routes lead to {len(found)} models that can be asked, which are named by a route and served by an "
            "upstream of type vllm with base_url and tokenizer: say --model"
        )
        raise ConfigError(str(options.config), f"policies.{options.policy}", reason)
    return next(iter(found.values()))
