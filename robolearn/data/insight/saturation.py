"""Measures how often commanded numbers stand at their limits."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.shapes import FloatRows
from robolearn.spec import ActionSpec

AT_LIMIT = 0.005
"""An action is saturated within this share of its range at its limit."""
DISCRETE = 4
"""Numbers that take so few values are choices."""


@dataclass(frozen=True, slots=True)
class Saturation:
    """Of one number of an action: share of rows at a limit, and outside of it. Without declared
    limits (``declared`` False) those are the extremes of the data.
    """

    name: str
    at_limit: float
    outside: float
    declared: bool


def saturation(actions: FloatRows, specs: Sequence[ActionSpec]) -> tuple[Saturation, ...]:
    """Every number of ``actions [N, a]``, flat in the order of ``specs``, most saturated first."""
    found: list[Saturation] = []
    first = 0
    for spec in specs:
        for k in range(spec.size):
            values = actions[:, first + k]
            declared = bool(spec.low) and bool(spec.high)
            low, high = (spec.low[k], spec.high[k]) if declared else (values.min(), values.max())
            slack = AT_LIMIT * (high - low)
            near = (values <= low + slack) | (values >= high - slack)
            outside = (values < low - slack) | (values > high + slack)
            # A gripper that is open or closed is not cut off.
            chosen = high > low and len(np.unique(values)) > DISCRETE
            share = float(near.mean()) if chosen else 0.0
            name = f"{spec.name}[{k}]"
            found.append(Saturation(name, share, float(outside.mean()), declared))
        first += spec.size
    return tuple(sorted(found, key=lambda s: -s.at_limit))
