"""One answer under a mask, on a server that decodes: which tokens it has so far, and what must not come next."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gateway.decode.folded_vocabulary import Ids
from gateway.decode.masks import BanMask, Forbidden


class MaskedAnswer:
    """The tokens of one answer. `kept`: the tokens it had before it was resumed; `limit`: so many tokens may
    follow; `not_first`: ids forbidden as the first of them.

    A token that the server does not report (a placeholder below 0) makes the answer `lost`: its text is unknown, and
    all that may follow is its end.
    """

    __slots__ = ("_limit", "_not_first", "_state", "count", "lost", "mask")

    def __init__(
        self, mask: BanMask, kept: Sequence[int] = (), limit: int | None = None, not_first: Sequence[int] = ()
    ) -> None:
        self.mask = mask
        self._limit = limit
        self._not_first: Ids = np.array([token for token in not_first if token < mask.width], dtype=np.int64)
        self._state = mask.start()
        self.count = 0
        self.lost = False
        self.add(kept)
        self.count = 0

    def add(self, tokens: Sequence[int]) -> None:
        """Append tokens."""
        for token in tokens:
            if token < 0:
                self.lost = True
            else:
                self._state = self.mask.advance(self._state, token)
        self.count += len(tokens)

    def forbidden(self) -> tuple[Forbidden, Ids]:
        """What must not come next: by the mask, and token ids besides."""
        if self.lost:
            return self.mask.only_end, self._not_first[:0]
        last = self._limit is not None and self.count + 1 >= self._limit
        return self.mask.forbidden(self._state, last), self._not_first[: 0 if self.count else None]
