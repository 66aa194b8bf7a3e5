"""Weighs episodes by what they were worth: a sampler for data of mixed quality.

Of an episode i with return G_i (the sum of its rewards) that starts in s_i,

    value   u_i = G_i                 by return
            u_i = G_i - V_{-i}(s_i)   by advantage
    weight  w_i = exp(n(u_i) / alpha),   n(u) = (u - min u) / (max u - min u)

and each of its windows is drawn in proportion to w_i: no episode counts for more than e^(1/alpha)
times another. Where starts differ in difficulty an easy start looks like skill; the advantage asks
how much better an episode went than others that began like it. V is a ridge regression on what
was observed at first, and V_{-i} the one that has not seen episode i, or few episodes with many
numbers would explain themselves. Values that are all alike change nothing.

Source: Harnessing Mixed Offline Reinforcement Learning Datasets via Trajectory Weighting (Hong et
al. 2023), which gains where a few good episodes lie among many bad ones, and nothing or less where
all come from one policy. The softmax is over the normalised value; its released code takes the
raw one by mistake.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float, Int64
from numpy.typing import NDArray

from robolearn.data.reading.cache import FlatEpisodes
from robolearn.errors import DataError

# Of the chosen episodes.
Chosen = Int64[NDArray[np.int64], " chosen"]
PerEpisode = Float[NDArray[Any], " chosen"]
StartRows = Float[NDArray[Any], "chosen k"]

RIDGE = 1.0
"""Weight of the regression's penalty, on standardised inputs."""
ALIKE = 1e-6
"""Values within this share of their size are equal: rewards are added up in single precision."""


def trajectory_weights(
    flat: FlatEpisodes, chosen: Chosen, *, by_advantage: bool, temperature: float
) -> PerEpisode:
    """One weight per episode of ``chosen``, the best one's is 1.

    Errors: :class:`DataError` where no step of them has a reward.
    """
    value = episode_returns(flat)[chosen]
    if not flat.reward[np.isin(flat.per_row(np.arange(len(flat.ids))), chosen)].any():
        raise DataError(
            "data.quality.by: every step of these episodes has the reward 0, so none is better than"
            " another; say what steps are worth with data.reward, e.g. {task: success}, or leave"
            " data.quality.by at alike"
        )
    scale = float(np.abs(value).max())
    if by_advantage:
        value = value - value_without_itself(_first_seen(flat, chosen), value)
    spread = float(value.max() - value.min())
    if spread <= ALIKE * scale:
        return np.ones(len(chosen))
    return np.exp(((value - value.min()) / spread - 1.0) / temperature)


def episode_returns(flat: FlatEpisodes) -> Float[NDArray[np.float64], " episodes"]:
    """Sum of the rewards of every episode."""
    return np.add.reduceat(np.asarray(flat.reward, dtype=np.float64), flat.starts[:-1])


def value_without_itself(starts: StartRows, value: PerEpisode) -> PerEpisode:
    """What a ridge regression on ``starts`` expects of each episode that it was not fitted to.

    With H = X (X'X + l I)^-1 X', leaving row i out changes its residual e_i to e_i / (1 - H_ii).
    """
    spread = starts.std(axis=0)
    moving = spread > 0
    inputs = (starts[:, moving] - starts[:, moving].mean(axis=0)) / spread[moving]
    # The constant is not penalised.
    inputs = np.concatenate([np.ones((len(starts), 1)), inputs], axis=1)
    penalty = RIDGE * np.eye(inputs.shape[1])
    penalty[0, 0] = 0.0
    solved = np.linalg.solve(inputs.T @ inputs + penalty, inputs.T)
    residual = value - inputs @ (solved @ value)
    left = 1.0 - (inputs * solved.T).sum(axis=1)
    # Of a single episode nothing else is known.
    error = np.divide(residual, left, out=np.zeros_like(left), where=left > ALIKE)
    return value - error


def _first_seen(flat: FlatEpisodes, chosen: Chosen) -> StartRows:
    """The numbers observed at the first tick of each episode, without pictures ``[chosen, k]``."""
    first = flat.starts[chosen]
    small = [s.name for s in flat.task_space.observations if not s.is_image]
    parts = [np.asarray(flat.observations[n][first], np.float64).reshape(len(first), -1)
             for n in small]  # fmt: skip
    return np.concatenate([np.zeros((len(first), 0)), *parts], axis=1)
