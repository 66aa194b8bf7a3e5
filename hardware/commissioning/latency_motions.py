"""Records small known motions of a cell's arm, from which latencies are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64, UInt8
from numpy.typing import NDArray

from hardware.cell.motion import TOOL_POSE, action_rows
from hardware.env.real_env import RealEnv
from robolearn.shapes import Floats
from robolearn.types import Command, Condition

Sent = Float64[NDArray[np.float64], " sent"]
Measured = Float64[NDArray[np.float64], " measured"]
# Of every camera as many as it took.
AnyTimes = Float64[NDArray[np.float64], "_"]
AnyPictures = UInt8[NDArray[np.uint8], "_ _ _ 3"]

_THUMB_PX = 64
# Incommensurable, so that the motion does not repeat and only one shift fits it [Hz].
_FREQUENCIES = (0.31, 0.53, 0.83)


@dataclass(frozen=True, slots=True)
class Swing:
    """Set-points as sent and the measured signal, ``t_s [n]`` and ``value [n]`` of the component
    that moved, and small pictures ``[n, h, w, 3]`` by camera signal.
    """

    sent_t_s: Sent
    sent: Sent
    measured_t_s: Measured
    measured: Measured
    picture_t_s: Mapping[str, AnyTimes]
    pictures: Mapping[str, AnyPictures]


def swing(
    env: RealEnv,
    condition: Condition,
    *,
    seconds: float,
    amplitude: float,
    component: int = 0,
    progress: Callable[[], object] = lambda: None,
) -> Swing:
    """Move one component of the action around its start by at most ``amplitude`` ([m] or [rad])
    under the supervisor, record, and hold; ``progress()`` is called every tick.
    """
    env.reset(condition, np.random.default_rng(0))
    action = env.spec.actions[0]
    # Of what the action commands: its own signal, or the tool's pose.
    name_of = action.name if action.name in [s.name for s in env.spec.signals] else TOOL_POSE
    start = action_rows(action.name, {name_of: env.observe().value(name_of)[None]})[0].copy()
    images = [s.name for s in env.spec.signals if s.is_image and not s.is_depth]
    rows: dict[str, list[Floats]] = {k: [] for k in ("sent_t", "sent", "measured_t", "measured")}
    times: dict[str, list[Floats]] = {n: [] for n in images}
    pictures: dict[str, list[AnyPictures]] = {n: [] for n in images}
    ticks = round(seconds * env.spec.rate_hz)
    for seq in range(ticks):
        observation = env.observe()
        t_s = seq / env.spec.rate_hz
        value = start.copy()
        value[component] += amplitude * _wave(t_s, seconds)
        env.apply(Command(seq, {action.name: value}, observation.t_ns, "calibration"))
        env.advance()
        drained = env.drain()
        block = drained.signals[name_of]
        rows["sent_t"].append(drained.sent.t_ns * 1e-9)
        rows["sent"].append(drained.sent.action[action.name][:, component])
        rows["measured_t"].append(block.t_ns * 1e-9)
        rows["measured"].append(action_rows(action.name, {name_of: block.value})[:, component])
        for name in images:
            frames = drained.signals[name]
            step = max(1, min(frames.value.shape[1:3]) // _THUMB_PX)
            times[name].append(frames.t_ns * 1e-9)
            pictures[name].append(frames.value[:, ::step, ::step].copy())
        progress()
    env.hold()
    joined = {k: np.concatenate(v) for k, v in rows.items()}
    return Swing(
        joined["sent_t"],
        joined["sent"],
        joined["measured_t"],
        joined["measured"],
        {n: np.concatenate(v) for n, v in times.items()},
        {n: np.concatenate(v) for n, v in pictures.items()},
    )


def _wave(t_s: float, seconds: float) -> float:
    """A sum of sines in [-1, 1] that begins and ends at rest."""
    ramp = min(1.0, t_s, max(0.0, seconds - t_s))
    return ramp * sum(np.sin(2 * np.pi * f * t_s) for f in _FREQUENCIES) / len(_FREQUENCIES)
