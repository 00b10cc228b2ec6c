"""What the loader asks of all that stands below the guard: what rules mean, and whether a model can be held to a
constraint."""

from __future__ import annotations

from dataclasses import replace

from gateway.censor import checks
from gateway.policy.model import Constrain


def _read_constraint(constrain: Constrain) -> None:
    from gateway.decode.constraints import read_constraint  # only where there is a constraint

    read_constraint(constrain)


CHECKS = replace(checks.CHECKS, read_constraint=_read_constraint)
