"""What a detector is: forms that the pattern machine follows, and a function that decides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """One way a value is written. `before` and `after` must match directly beside `body`, and are no part of the match.

    All three are regular expressions as rules may use them; every character of `after` stands at a fixed distance from
    the match's end. `validate`: in place of the detector's.
    """

    body: str
    before: str = ""
    after: str = ""
    validate: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Detector:
    """A named kind of value. A match is every substring in one of the forms that `validate` accepts.

    `validate` gets text in one of the forms, as the rule's lens sees it; it answers within microseconds and
    never raises. None accepts everything. `label` names the value in placeholders. Each of `examples` is found as a
    whole, behind `introduction`. `source` is the specification that the rules come from, `note`: what is left out.
    `exact`: it looks at the text itself, through no lens.
    """

    name: str
    label: str
    title: str
    formats: tuple[Format, ...]
    validate: Callable[[str], bool] | None
    examples: tuple[str, ...]
    source: str
    note: str = ""
    introduction: str = ""
    exact: bool = False
