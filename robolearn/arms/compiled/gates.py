"""Takes differences of consecutive set-points, for the last look at them."""

from __future__ import annotations

import math

from robolearn.arms.compiled.kernel import kernel, part
from robolearn.shapes import FloatRows, Floats

# Rows of the state: the newest set-point, its first, second and third difference.
AT, STEP, BEND, TWIST = range(4)


@kernel
def first_broken(state: FloatRows, limits: FloatRows, x: Floats) -> int:
    """``x [n]`` is the next set-point: which of its second and third difference breaks its limit, 2
    or 3, or 0. ``limits [2, n]`` of each, or ``[2, 1]`` of their norms.
    """
    for k in range(len(x)):
        step = x[k] - state[AT, k]
        bend = step - state[STEP, k]
        state[TWIST, k] = bend - state[BEND, k]
        state[BEND, k], state[STEP, k], state[AT, k] = bend, step, x[k]
    for order in (2, 3):
        if not _within(state[order], limits[order - 2]):
            return order
    return 0


@part
def _within(value: Floats, most: Floats) -> bool:
    # What is not a number is not within a limit.
    if len(most) == 1:
        total = 0.0
        for k in range(len(value)):
            total += value[k] * value[k]
        return math.sqrt(total) <= most[0]
    for k in range(len(value)):  # noqa: SIM110  (compiles in less time)
        if not abs(value[k]) <= most[k]:
            return False
    return True
