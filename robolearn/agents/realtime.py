"""Says what the next chunk must agree with: real-time chunking (Black, Galliker, Levine 2025).

While a policy computes, the robot executes the rest of the chunk before. The next chunk is asked to
continue it: its first ``committed`` actions will have been executed when it arrives and are fixed,
those after are wished for less and less, and where there is no earlier plan it is free. What a
policy makes of the wish is its own affair (``policies/chunks/guidance.py``).
"""

from __future__ import annotations

from collections import deque

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

# h: horizon, k: actions that are left over, a: numbers of an action
Weights = Float64[NDArray[np.float64], " h"]
Prefix = Float64[NDArray[np.float64], "h a"]
Rest = Float64[NDArray[np.float64], "k a"]

# Replies that the estimate of the delay looks back at: one slow start is soon forgotten.
_REMEMBERED = 8


class DelayEstimate:
    """How many ticks an answer will take: the most that one of the last answers took."""

    def __init__(self, expected_ticks: int) -> None:
        self._expected = expected_ticks
        self._recent: deque[int] = deque(maxlen=_REMEMBERED)

    def add(self, ticks: int) -> None:
        """An answer took this long."""
        self._recent.append(ticks)

    @property
    def ticks(self) -> int:
        """The estimate."""
        return max(self._recent, default=self._expected)


def soft_mask(horizon: int, committed: int, planned: int) -> Weights:
    """Weights ``[horizon]`` in [0, 1] of an earlier plan of ``planned`` actions.

    1 for the ``committed`` first, then ``c (e^c - 1) / (e - 1)`` with c falling linearly, 0 where
    nothing was planned (equation 5 of the paper).
    """
    index = np.arange(horizon)
    c = np.clip((planned - index) / (planned - committed + 1), 0.0, 1.0)
    weight = c * np.expm1(c) / np.expm1(1.0)
    weight[:committed] = 1.0
    weight[planned:] = 0.0
    return weight


def continuation(rest: Rest, committed: int, horizon: int) -> tuple[Prefix, Weights]:
    """Prefix ``[horizon, action]`` and weights ``[horizon]`` from the actions that are left over,
    ``rest [k, action]``, the first of them due at the time of the request.
    """
    planned = min(len(rest), horizon)
    prefix = np.zeros((horizon, rest.shape[1]))
    prefix[:planned] = rest[:planned]
    return prefix, soft_mask(horizon, min(committed, planned), planned)
