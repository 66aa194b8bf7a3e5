"""Keeps the latencies of a robot cell with every episode and every run, used alike by both.

    motion, exposure   ----- observation latency ---->   arrival     capture = arrival - latency
    set-point sent     ------- command latency ------>   motion      effect  = sending + latency

Streams carry capture times (corrected where they arrive). Actions are *meant for* a time: training
reads, at every tick, the command that was in effect then, which is the one that was sent a latency
before (:func:`in_effect`); a policy's action for time t is sent at t - latency of the cell at hand
(``ChunkAgent``). So a policy knows nothing of the latency of the arm that taught it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from robolearn.errors import DataError
from robolearn.history import Samples, interpolate, sample_index
from robolearn.representation import HEADING, is_pose
from robolearn.shapes import AnyArray, Times
from robolearn.spec import ActionSpec, FlatAction, SignalSpec, TaskSpace

KEY = "latencies"
"""Where they are in the provenance of episodes and runs."""
TOLERANCE_S = 0.01
_POSE = ("x", "y", "z", "qw", "qx", "qy", "qz")


@dataclass(frozen=True, slots=True)
class Latencies:
    """``command_s``: from a set-point to the motion [s]. ``observations_s``: by signal, from
    capture to arrival [s]; signals that are not named arrive at once.
    """

    command_s: float = 0.0
    observations_s: Mapping[str, float] = field(default_factory=dict[str, float])

    def __post_init__(self) -> None:
        values = {"command": self.command_s, **self.observations_s}
        wrong = {k: v for k, v in values.items() if not (math.isfinite(v) and 0.0 <= v < 10.0)}
        if wrong:
            raise DataError(f"latencies are in [0, 10) s, got {wrong}")

    def to_json(self) -> dict[str, Any]:
        """For the provenance."""
        return {"command_s": self.command_s, "observations_s": dict(self.observations_s)}

    @classmethod
    def of(cls, provenance: Mapping[str, Any]) -> Latencies:
        """Of an episode or a run; all 0 where nothing is said (simulation, imported data)."""
        raw = provenance.get(KEY)
        if raw is None:
            return cls()
        try:
            observations_s = {str(k): float(v) for k, v in raw["observations_s"].items()}
            return cls(float(raw["command_s"]), observations_s)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(f"provenance: '{KEY}' is not what was written there: {raw}") from error


def trained_with(episodes: Iterable[Latencies], at_least_s: Mapping[str, float]) -> Latencies:
    """What a run is trained with: of every signal the largest of its episodes', and at least
    ``at_least_s`` (``data.latency_s``). Commands: the largest, which training has taken out.
    """
    command_s, observations_s = 0.0, dict(at_least_s)
    for one in episodes:
        command_s = max(command_s, one.command_s)
        for name, value in one.observations_s.items():
            observations_s[name] = max(observations_s.get(name, 0.0), value)
    return Latencies(command_s, observations_s)


def differences(trained: Latencies, here: Latencies, names: Sequence[str]) -> list[str]:
    """One line for every observed signal that arrives earlier or later here than in training, by
    more than 10 ms.
    """
    lines: list[str] = []
    for name in names:
        then, now = (latencies.observations_s.get(name, 0.0) for latencies in (trained, here))
        if abs(now - then) > TOLERANCE_S:
            lines.append(f"{name}: trained with {1e3 * then:.0f} ms, here {1e3 * now:.0f} ms")
    return lines


def in_effect(value: Samples, tick_t_ns: Times, action: ActionSpec, latency_ns: int) -> Samples:
    """The command ``[T, *shape]`` in effect at every tick, from those sent then.

    Evenly changing between ticks (turns as in :func:`robolearn.history.interpolate`); of relative
    actions the newest that was sent a latency before. The first stands for all earlier ones.
    """
    if not latency_ns:
        return value
    query = tick_t_ns - latency_ns
    if action.mode == "relative":
        return value[sample_index(tick_t_ns, query, action.name)]
    return interpolate(tick_t_ns, value, query, as_signal(action))


def blend(space: TaskSpace, first: FlatAction, second: FlatAction, share: float) -> FlatAction:
    """The flat action ``share`` of the way from ``first`` to ``second [action_size]``; of relative
    actions the first.
    """
    parts = [
        blended(action, a, b, share).reshape(-1)
        for action, a, b in zip(
            space.actions, space.split(first).values(), space.split(second).values(), strict=True
        )
    ]
    return np.concatenate(parts)


def blended(action: ActionSpec, first: AnyArray, second: AnyArray, share: float) -> AnyArray:
    """:func:`blend` of one action ``[*shape]``."""
    if action.mode == "relative":
        return first
    times = np.array([0, 1_000_000], dtype=np.int64)
    at = np.array([round(share * 1e6)], dtype=np.int64)
    return interpolate(times, np.stack([first, second]), at, as_signal(action))[0]


def as_signal(action: ActionSpec) -> SignalSpec:
    """An action as a signal: what turns in it is known from its name and shape."""
    heading = action.shape == (4,) and action.name.endswith(f"/{HEADING}")
    return SignalSpec(
        action.name,
        action.shape,
        components=_POSE if is_pose(action) else (),
        angular=(3,) if heading else (),
    )
