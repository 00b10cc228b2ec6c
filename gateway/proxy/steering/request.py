"""The request that an upstream gets: the client's own, or rewritten for a policy that steers decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gateway.censor.compile import CompiledPolicy
from gateway.guard.findings import OnFinding
from gateway.guard.prompt import BadRequest, apply_request_table
from gateway.policy.model import Action, Upstream, UpstreamType
from gateway.proxy.errors import client_error
from gateway.proxy.steering.mask_probe import MaskProbes, MaskState
from gateway.proxy.steering.resume import (
    AnswerLimits,
    answer_limits,
    first_request,
    refuse_unresumable,
    resumed_request,
)
from gateway.proxy.steering.rollback import Resume, RollbackParams, RollbackStream
from gateway.proxy.stored import input_items
from gateway.proxy.upstreams.client import UpstreamRequest
from gateway.wire import json
from gateway.wire.chat import CHAT
from gateway.wire.completions import COMPLETIONS
from gateway.wire.dialect import AnswerEncoder, Dialect, Translation
from gateway.wire.json import Json
from gateway.wire.translation.responses_answer import ResponsesEncoder

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary

_VLLM = UpstreamType.VLLM
_STEERED = {dialect.path for dialect in (CHAT, COMPLETIONS)}


class RequestRewriter:
    """One request's form for each of the upstreams that may get it, and the rollback of its answer.

    `body` is the client's in `dialect`, as it may be forwarded; each of `upstreams` serves that (`spoken_dialect`).
    `keep` is called with the items of the input and the answer, if that is translated into a response.
    Raises `HTTPFailure` for a body that cannot be encoded or translated, and for one whose answer could not be rolled
    back where a rule requires that.
    """

    def __init__(
        self,
        dialect: Dialect,
        body: Json,
        stream: bool,
        policy: CompiledPolicy,
        upstreams: Sequence[Upstream],
        masks: MaskProbes,
        vocabularies: Mapping[str, Vocabulary],
        keep: Callable[[Iterable[bytes], Json], None] | None = None,
    ) -> None:
        self._dialect = dialect
        self._stream = stream
        self._policy = policy
        self._masks = masks
        self._vocabularies = vocabularies
        self._limits: AnswerLimits | None = None  # None: no upstream's answer is rolled back
        self.model = str(body["model"])  # the name that the upstream gets
        self._encoder: AnswerEncoder | None = None  # of an answer that is translated
        self._plain: dict[str, UpstreamRequest] = {}  # by path
        self._spoken: dict[str, Dialect] = {}  # by the upstream's name
        steered = False
        for each in upstreams:
            self._spoken[each.name] = spoken_dialect(dialect, each, policy) or dialect
            steered = steered or each.type == _VLLM
        spoken = self._spoken.values()
        if dialect in spoken:
            content = b"" if dialect.method else _encoded(body)
            method = dialect.method or "POST"
            self._plain[dialect.path] = UpstreamRequest(dialect.path, content, stream, self.model, method)
        if dialect.translation is not None and CHAT in spoken:
            self._encoder, given = dialect.translation.encoder(body), input_items(body)
            body = _translated(dialect.translation, body, policy)
            self._plain[CHAT.path] = UpstreamRequest(CHAT.path, _encoded(body), stream, self.model)
            if keep is not None and isinstance(self._encoder, ResponsesEncoder):
                self._encoder.keep_with(partial(keep, tuple(map(json.encode, given))))
        self._steers = dialect.generates and policy.enforces and steered
        if dialect.generates and policy.stops is not None and any(self._rolls_back(each) for each in upstreams):
            try:
                refuse_unresumable(body)
            except BadRequest as error:
                raise client_error(400, str(error), "rollback_unsupported", error.param) from None
            self._limits = answer_limits(body, stream)
        # As objects a body takes many times the memory that it takes as bytes.
        self._body = body if self._steers or self._limits is not None else {}

    @property
    def expansion_factor(self) -> int:
        """How much longer, at most, the upstream's answer is than the one that the client requested: a plain one may be
        requested as a stream, an event for each token."""
        return self._dialect.expansion if self._limits is None else 64

    def spoken(self, upstream: Upstream) -> tuple[Dialect, AnswerEncoder | None]:
        """The dialect of this upstream's answer, and what writes it for the client if that speaks another."""
        dialect = self._spoken[upstream.name]
        return dialect, None if dialect is self._dialect else self._encoder

    def _rolls_back(self, upstream: Upstream) -> bool:
        return upstream.type == _VLLM and upstream.name in self._vocabularies

    def request_for(self, upstream: Upstream) -> UpstreamRequest:
        dialect, _ = self.spoken(upstream)
        plain = self._plain[dialect.path]
        if not self._steers or upstream.type != _VLLM or dialect.path not in _STEERED:
            return plain
        body, stream = self._body, self._stream
        constrain = self._policy.policy.constrain
        if constrain is not None:
            from gateway.decode.constraints import structured_outputs

            body = {**body, "structured_outputs": structured_outputs(constrain)}
        mask = self._masks.request(upstream.name, self._policy.policy.name)
        if mask is not None:
            body = {**body, "vllm_xargs": mask.arguments()}
        if self._limits is not None and self._rolls_back(upstream):
            body, stream = first_request(body, stream), True
        return plain if body is self._body else UpstreamRequest(dialect.path, _encoded(body), stream, self.model)

    def rollback_for(self, upstream: Upstream, on_finding: OnFinding | None) -> RollbackStream | None:
        """The rollback of this upstream's answer, if it has one."""
        limits, program, policy = self._limits, self._policy.stops, self._policy.policy
        if limits is None or program is None or not self._rolls_back(upstream):
            return None
        words = [rule.id for rule in policy.rules if rule.action is Action.ROLLBACK and rule.words]
        params = RollbackParams(
            policy=policy.name,
            program=program,
            vocabulary=self._vocabularies[upstream.name],
            shape=self.spoken(upstream)[0].content,
            server_bans=self._masks.states.get(f"{upstream.name}/{policy.name}") is MaskState.IN_FORCE,
            maskable=frozenset(words if self._masks.exhausted(upstream.name, policy.name) is not None else ()),
            **limits._asdict(),
        )
        return RollbackStream(params, on_finding)

    def resume_request(self, upstream: Upstream, resume: Resume) -> UpstreamRequest:
        """The request that resumes the answer."""
        find = self._masks.exhausted if resume.masked else self._masks.request
        mask = find(upstream.name, self._policy.policy.name)
        if mask is not None:
            mask = replace(mask, kept=resume.kept, not_first=resume.banned)
        body = _encoded(resumed_request(self._body, resume, mask))
        return UpstreamRequest(COMPLETIONS.path, body, stream=True, model=self.model)


def spoken_dialect(client: Dialect, upstream: Upstream, policy: CompiledPolicy) -> Dialect | None:
    """The dialect in which an upstream is asked for an answer in the client's; None if it cannot give one."""
    native = client if client.endpoint in upstream.endpoints else None
    translated = CHAT if client.translation is not None and CHAT.endpoint in upstream.endpoints else None
    constrains = policy.policy.constrain is not None and client.generates
    if constrains and client.path not in _STEERED:  # only answers in these forms are checked
        return translated
    return (translated or native) if policy.steers else (native or translated)


def _translated(translation: Translation, body: Json, policy: CompiledPolicy) -> Json:
    try:
        body = translation.to_chat(body)
        apply_request_table(body, policy, CHAT)
    except BadRequest as error:
        raise client_error(400, str(error), error.code, error.param) from None
    return body


def _encoded(body: Json) -> bytes:
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body cannot be forwarded: {error}.", "invalid_json") from None
