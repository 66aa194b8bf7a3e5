"""Averages what all chunks that cover a time say: temporal ensembling (ACT, Zhao et al. 2023).

    chunk asked at 0    a0 a1 a2 a3
    chunk asked at 1       b1 b2 b3 b4          done at 2:  (w0 a2 + w1 b2 + w2 c2) / (w0 + w1 + w2)
    chunk asked at 2          c2 c3 c4 c5       w_i = exp(-m i), the oldest chunk first

With a small m old chunks count nearly as much as new ones: motion is smooth, and late to answer
what has changed. Turns are averaged on the circle, rotations as unit quaternions.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.errors import ConfigError
from robolearn.spec import ActionSpec, TaskSpace
from robolearn.timing.latencies import as_signal

Array = NDArray[np.float64]
# h: horizon, a: numbers of an action
Chunk = Float64[NDArray[np.float64], "h a"]


class TemporalEnsemble:
    """The chunks of one episode. ``decay``: the m above, per chunk (published: 0.01)."""

    def __init__(self, space: TaskSpace, horizon: int, decay: float) -> None:
        if not (math.isfinite(decay) and decay >= 0.0):
            raise ConfigError(f"the decay of temporal ensembling must be at least 0, got {decay}")
        self._space, self._decay = space, decay
        self._period_ns = 1e9 / space.rate_hz
        self._chunks: deque[tuple[int, Array]] = deque(maxlen=horizon)

    def reset(self) -> None:
        """Forget the episode."""
        self._chunks.clear()

    def add(self, t_ns: int, chunk: Chunk) -> Chunk:
        """Remember ``chunk [h, action_size]``, asked at ``t_ns``; the means for its times."""
        self._chunks.append((t_ns, chunk))
        ages = [round((t_ns - asked) / self._period_ns) for asked, _ in self._chunks]
        return np.stack([self._mean(ages, i) for i in range(len(chunk))])

    def _mean(self, ages: list[int], index: int) -> Array:
        covering = [
            chunk[index + age]
            for age, (_, chunk) in zip(ages, self._chunks, strict=True)
            if index + age < len(chunk)
        ]
        weights = np.exp(-self._decay * np.arange(len(covering)))
        parts = self._space.split(np.stack(covering))
        means = [
            _mean(action, parts[action.name].reshape(len(covering), -1), weights)
            for action in self._space.actions
        ]
        return np.concatenate(means)


def _mean(action: ActionSpec, values: Array, weights: Array) -> Array:
    """Weighted mean of ``values [k, size]`` of one action signal."""
    signal = as_signal(action)
    share = (weights / weights.sum())[:, None]
    out = (share * values).sum(axis=0)
    for i in signal.angular:
        sine, cosine = (share[:, 0] * f(values[:, i]) for f in (np.sin, np.cos))
        out[i] = np.arctan2(sine.sum(), cosine.sum())
    if signal.components:
        # The mean of unit quaternions on one side of the sphere, brought back to it (Gramkow 2001).
        turns = values[:, 3:]
        turns = turns * np.where(turns @ turns[0] < 0.0, -1.0, 1.0)[:, None]
        mean = (share * turns).sum(axis=0)
        mean = mean / np.linalg.norm(mean)
        out[3:] = -mean if mean[0] < 0.0 else mean
    return out
