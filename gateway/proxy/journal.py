"""One request's part of the journal."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from gateway.guard.answer import failure
from gateway.guard.channels import Finding
from gateway.journal.entries import BeginEntry, MatchEntry, RequestEntry
from gateway.journal.writer import JournalWriter
from gateway.observe.facts import RequestFinished
from gateway.proxy.errors import HTTPFailure

JOURNAL_FAILED = failure("The journal cannot be written; the answer was stopped.", "journal_failed", "server_error")


def not_journalled() -> HTTPFailure:
    """A configuration requires a journal, and it could not be written."""
    return HTTPFailure(503, JOURNAL_FAILED, "journal", {"retry-after": "5"})


@dataclass(frozen=True, slots=True)
class RequestJournal:
    """`required`: without it nothing is answered, and no answer ends."""

    writer: JournalWriter
    required: bool
    request_id: str
    key: str
    route: str
    policy: str

    async def begin(self, findings: Iterable[Finding]) -> bool:
        """Before anything is answered: write what was found in the prompt, and, if an answer needs its journal, that
        there will be one.

        False if the configuration requires that and it could not be written. A journal that has worked until now may
        fail at the next line, and only a line of the request's own shows it.
        """
        if not self.required:
            return await self.commit(findings)
        beginning = BeginEntry(time.time(), self.request_id, self.key, self.route, self.policy)
        return await self.writer.committed([beginning, *self._entries(findings)])

    async def commit(self, findings: Iterable[Finding]) -> bool:
        """Write what was found; False if the configuration requires it to be written and it could not be."""
        entries = self._entries(findings)
        if not self.required:
            if entries:
                self.writer.write(entries)
            return True
        return await self.writer.committed(entries)

    def close(self, fact: RequestFinished, findings: Iterable[Finding]) -> None:
        """Write what is left to say of a request that has ended."""
        request = RequestEntry(
            time=time.time(),
            request_id=fact.request_id,
            key_name=self.key,
            route=fact.route,
            policy=fact.policy,
            upstream=fact.upstream,
            status=fact.status,
            outcome=fact.outcome,
            stream=fact.stream,
            duration=fact.duration,
        )
        self.writer.write([*self._entries(findings), request])

    def _entries(self, findings: Iterable[Finding]) -> list[MatchEntry]:
        now = time.time()
        return [
            MatchEntry(
                time=now,
                request_id=self.request_id,
                key_name=self.key,
                route=self.route,
                policy=self.policy,
                direction=found.direction,
                rule=found.rule,
                action=found.action,
                channel=found.channel,
                choice=found.choice,
                offset=found.offset,
                length=found.length,
                seen=found.seen,
            )
            for found in findings
        ]
