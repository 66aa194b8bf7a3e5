"""Samples along times that are known beforehand: everything that depends on them alone is worked
out once, because on a chunk of one robot small operations cost as much as the network.

    x <- keep x + add net(scale x; clocks)

One Euler step from t to t' of a preconditioned velocity ``c_skip x + c_out net(c_in x; clocks)`` is
of this form, with ``scale = c_in, keep = 1 + (t' - t) c_skip, add = (t' - t) c_out``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from policies.nets.residual_mlp import time_features
from policies.nets.shapes import StepFeatures


@dataclass(frozen=True, slots=True)
class Step:
    """One step; ``clocks``: what the network is told of time."""

    scale: float
    keep: float
    add: float
    clocks: tuple[float, ...]


def euler_steps(
    times: Sequence[float], clocks: Sequence[tuple[float, ...]], std: float
) -> tuple[Step, ...]:
    """The steps from each of ``times`` (ascending, in [0, 1]) to the next, for data of deviation
    ``std``; see ``policies.imitation.flow.preconditioning``.
    """
    found: list[Step] = []
    for t, after, step_clocks in zip(times[:-1], times[1:], clocks, strict=True):
        variance = (1 - t) ** 2 + (t * std) ** 2
        skip, out = (t * std**2 - (1 - t)) / variance, std / math.sqrt(variance)
        dt = after - t
        found.append(Step(1 / math.sqrt(variance), 1 + dt * skip, dt * out, step_clocks))
    return tuple(found)


@functools.lru_cache(maxsize=64)
def equal_times(count: int, shift: float = 1.0) -> tuple[float, ...]:
    """``count`` steps from 0 to 1, equal, or moved towards the data: s u / (1 + (s - 1) u)."""
    u = torch.linspace(0.0, 1.0, count + 1)
    times: list[float] = (shift * u / (1 + (shift - 1) * u)).tolist()
    return tuple(times)


@functools.lru_cache(maxsize=64)
def clock_features(
    steps: tuple[Step, ...], size: int, fastest: float, device: torch.device
) -> StepFeatures:
    """Features of the clocks of every step ``[steps, clocks * size]``."""
    # An ordinary tensor, whoever asks first: those of inference mode cannot be trained through.
    with torch.inference_mode(mode=False), torch.no_grad():
        clocks = [torch.tensor(values) for values in zip(*(s.clocks for s in steps), strict=True)]
        parts = [time_features(t, size, fastest) for t in clocks]
        return torch.cat(parts, dim=-1).to(device)
