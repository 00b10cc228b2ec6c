"""What an upstream is asked: a request as the client put it, or as a policy that steers decoding wants it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gateway.censor.compile import CompiledPolicy
from gateway.guard.channels import OnFinding
from gateway.guard.prompt import BadRequest
from gateway.policy.model import Action, Mode, Upstream, UpstreamType
from gateway.proxy.errors import client_error
from gateway.proxy.steering.mask_probe import Masks, State
from gateway.proxy.steering.resume import Wanted, again, refuse_unresumable, steered, wanted
from gateway.proxy.steering.rollback import Resume, Retelling, Terms
from gateway.proxy.steering.shapes import CHAT, COMPLETIONS
from gateway.proxy.upstreams.client import Asked
from gateway.wire import json
from gateway.wire.chat import Json

if TYPE_CHECKING:
    from gateway.automata.vocabulary import Vocabulary

COMPLETIONS_PATH = "/completions"


class Steering:
    """How one request is put to each of the upstreams that may get it, and how its answer is told.

    `body` is what the client asked, as it may be forwarded. Raises `HTTPFailure` for a body that cannot be put on the
    wire, and for one whose answer could not be rolled back where that is asked for.
    """

    def __init__(
        self,
        path: str,
        body: Json,
        stream: bool,
        policy: CompiledPolicy,
        upstreams: Sequence[Upstream],
        masks: Masks,
        vocabularies: Mapping[str, Vocabulary],
    ) -> None:
        self._path = path
        self._stream = stream
        self._policy = policy
        self._masks = masks
        self._vocabularies = vocabularies
        self._wanted: Wanted | None = None
        self._plain = Asked(path, _encoded(body), stream)
        self._steers = policy.policy.mode is Mode.ENFORCE and any(each.type == UpstreamType.VLLM for each in upstreams)
        if policy.stops is not None and any(self._rolls_back(each) for each in upstreams):
            try:
                refuse_unresumable(body)
            except BadRequest as error:
                raise client_error(400, str(error), "rollback_unsupported", error.param) from None
            self._wanted = wanted(body, stream)
        self.model = str(body["model"])  # the name that the upstream gets
        # As objects a body takes many times the memory that it takes as bytes.
        self._body = body if self._steers or self._wanted is not None else {}

    @property
    def stretch(self) -> int:
        """How much longer, at most, an answer is on the wire than the client's own would be: a plain one may come as a
        stream, an event for each token."""
        return 1 if self._wanted is None else 64

    def _rolls_back(self, upstream: Upstream) -> bool:
        return upstream.type == UpstreamType.VLLM and upstream.name in self._vocabularies

    def ask(self, upstream: Upstream) -> Asked:
        if not self._steers or upstream.type != UpstreamType.VLLM:
            return self._plain
        asked, stream = self._body, self._stream
        constrain = self._policy.policy.constrain
        if constrain is not None:
            from gateway.decode.constraints import structured_outputs

            asked = {**asked, "structured_outputs": structured_outputs(constrain)}
        mask = self._masks.request(upstream.name, self._policy.policy.name)
        if mask is not None:
            asked = {**asked, "vllm_xargs": mask.arguments()}
        if self._wanted is not None and self._rolls_back(upstream):
            asked, stream = steered(asked, stream), True
        return self._plain if asked is self._body else Asked(self._path, _encoded(asked), stream)

    def retelling(self, upstream: Upstream, on_finding: OnFinding | None) -> Retelling | None:
        """Who tells the answer of this upstream, if it is to be rolled back."""
        wanted, program, policy = self._wanted, self._policy.stops, self._policy.policy
        if wanted is None or program is None or not self._rolls_back(upstream):
            return None
        words = [rule.id for rule in policy.rules if rule.action is Action.ROLLBACK and rule.words]
        terms = Terms(
            policy=policy.name,
            program=program,
            vocabulary=self._vocabularies[upstream.name],
            shape=COMPLETIONS if self._path == COMPLETIONS_PATH else CHAT,
            at_once=wanted.at_once,
            max_tokens=wanted.max_tokens,
            stops=wanted.stops,
            shows_stop=wanted.shows_stop,
            bans=self._masks.states.get(f"{upstream.name}/{policy.name}") is State.IN_FORCE,
            maskable=frozenset(words if self._masks.exhausted(upstream.name, policy.name) is not None else ()),
            tells_usage=wanted.tells_usage,
        )
        return Retelling(terms, on_finding)

    def again(self, upstream: Upstream, resume: Resume) -> Asked:
        """The request with which the answer is taken up again."""
        find = self._masks.exhausted if resume.masked else self._masks.request
        mask = find(upstream.name, self._policy.policy.name)
        if mask is not None:
            mask = replace(mask, kept=resume.kept, not_first=resume.banned)
        return Asked(COMPLETIONS_PATH, _encoded(again(self._body, resume, mask)), stream=True)


def _encoded(body: Json) -> bytes:
    try:
        return json.encode(body)
    except json.JSONError as error:
        raise client_error(400, f"The body cannot be forwarded: {error}.", "invalid_json") from None
