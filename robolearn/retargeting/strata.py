"""Parts a start distribution into strata of equal probability, by draws from it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float64, Int64
from numpy.typing import NDArray

Draws = Float64[NDArray[np.float64], "n d"]
# Groups are smaller than what they are parted from.
Rows = Int64[NDArray[np.int64], " _"]


def strata(draws: Draws, n: int) -> tuple[Rows, ...]:
    """``n`` groups of rows of ``draws [n * k, d]``, ``k`` in each.

    The draws are halved again and again along the numbers in which the half at hand spreads most
    (a k-d tree, Bentley 1975; numbers in units of their deviation over all draws). Numbers that
    never vary part nothing; without any that does, groups are as drawn.
    """
    if n < 1 or len(draws) % n:
        raise ValueError(f"{len(draws)} draws do not part into {n} equal strata")
    deviation = draws.std(axis=0)
    varied = deviation > 1e-9
    scaled = draws[:, varied] / deviation[varied]
    return tuple(_parted(scaled, np.arange(len(draws)), n))


def _parted(scaled: Draws, rows: Rows, n: int) -> list[Rows]:
    if n == 1:
        return [np.sort(rows)]
    low = n // 2
    cut = len(rows) * low // n
    if scaled.shape[1]:
        spread = np.ptp(scaled[rows], axis=0)
        rows = rows[np.argsort(scaled[rows, int(spread.argmax())], kind="stable")]
    return [*_parted(scaled, rows[:cut], low), *_parted(scaled, rows[cut:], n - low)]
