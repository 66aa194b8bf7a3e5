"""Rolls an arm's recorded motions out under many sets of parameters at once.

Open loop: the recorded set-points, later by the delay, drive the servos of the model from the
recorded start; nothing of what was measured afterwards enters. The delay is continuous: set-points
are read between their samples.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import mujoco
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.signal import lfilter, lfilter_zi

from robolearn.arms.shapes import JointRows, Joints
from robolearn.errors import DataError
from robolearn.shapes import Floats, OwnIndex
from sim.identification.arm_model import ArmModel, UnknownRows, Unknowns
from sim.identification.arm_motion import ArmMotion, on_grid
from sim.identification.batch_rollouts import Rollouts

# Of one motion at its compared times, measured and of every set of parameters.
Compared = Float64[NDArray[np.float64], "_ j"]
Answers = Float64[NDArray[np.float64], "v _ j"]

# Compared so often [Hz]; not in the first moments, while delayed set-points of before arrive.
COMPARE_HZ = 100.0
_SETTLE_S = 0.4
# The speed of set-points is their slope over this [s].
_SLOPE_S = 0.004
# Steps before the start whose set-points count.
_BEFORE = 150
# Rolled at once; more would only need memory.
_BATCH = 16


@dataclass(frozen=True, slots=True)
class Track:
    """A motion on the model's time grid: ``t_s [n + 1]``, the measured joints ``[t, j]`` at the
    compared steps ``at [t]`` (indices of steps), and where it starts.
    """

    motion: ArmMotion
    t_s: Floats
    at: OwnIndex
    measured: Compared
    q: Joints
    qd: Joints

    @property
    def seconds(self) -> float:
        """How long it is."""
        return float(self.t_s[-1] - self.t_s[0])


class ArmRollouts:
    """Rolls motions of one arm out; :attr:`count` is how many rollouts there were, each of
    all the motions that were given together.
    """

    def __init__(self, model: ArmModel, threads: int = 2) -> None:
        self.model, self._threads = model, threads
        self._step_s = float(model.model.opt.timestep)
        self._copies: list[mujoco.MjModel] = []
        self._late: tuple[Track, float, JointRows, JointRows] | None = None
        self.count = 0

    def track(self, motion: ArmMotion) -> Track:
        """A motion as rollouts need it; it starts where both streams are there."""
        begin_s, end_s = motion.span_s
        steps = int((end_s - begin_s) / self._step_s) - 1
        every = max(1, round(1.0 / (COMPARE_HZ * self._step_s)))
        at = np.arange(round(_SETTLE_S / self._step_s), steps, every, dtype=np.int64)
        if len(at) < 10:
            raise DataError(f"motion {motion.name} is {end_s - begin_s:.2f} s long: too short")
        t_s = begin_s + self._step_s * np.arange(steps + 1)
        measured = on_grid(t_s[at + 1], motion.measured_t_s, motion.measured)
        # Noise of single samples would throw the arm: a line through the first 40 ms.
        first = motion.measured_t_s <= begin_s + 0.04
        first &= motion.measured_t_s >= begin_s - 1e-9
        q, qd = _line(motion.measured_t_s[first] - begin_s, motion.measured[first])
        return Track(motion, t_s, at, measured, q, qd)

    def roll(self, tracks: Sequence[Track], vectors: UnknownRows) -> list[Answers]:
        """Joints ``[v, t, j]`` of every track under every row of ``vectors [v, p]``; what diverged
        is not finite.
        """
        self.count += len(vectors)
        return [self._roll(track, vectors) for track in tracks]

    def _roll(self, track: Track, vectors: UnknownRows) -> Answers:
        out = np.empty((len(vectors), len(track.at), self.model.arm.dof))
        for begin in range(0, len(vectors), _BATCH):
            part = vectors[begin : begin + _BATCH]
            out[begin : begin + len(part)] = self._batch(track, part)
        return out

    def _batch(self, track: Track, vectors: UnknownRows) -> Answers:
        model = self.model
        while len(self._copies) < len(vectors):
            self._copies.append(copy.copy(model.model))
        models = self._copies[: len(vectors)]
        for each, x in zip(models, vectors, strict=True):
            model.write(each, x)
        data = model.data
        mujoco.mj_resetData(model.model, data)
        data.qpos[model.qpos], data.qvel[model.dofs] = track.q, track.qd
        held = np.array([_held(model.model, i) for i in range(model.model.nu)])
        controls = np.empty((len(vectors), len(track.t_s) - 1, len(held)))
        for control, x in zip(controls, vectors, strict=True):
            control[:] = held
            control[:, model.actuators] = self._set_points(track, x)
        with Rollouts(models, substeps=1, threads=self._threads) as rollouts:
            rolled = rollouts.roll(rollouts.state(data)[None], controls)
        answers = rolled.qpos[:, track.at][:, :, model.qpos]
        answers[rolled.diverged] = np.nan
        return answers

    def _set_points(self, track: Track, x: Unknowns) -> JointRows:
        """What the servos are told at every step, as the scene's own controllers tell it."""
        model = self.model
        q, slope = self._delayed(track, model.delay_s(x))
        told = q + model.lead_s(x) * slope
        return smoothed(told, model.smoothing_s(x), self._step_s)[_BEFORE:]

    def _delayed(self, track: Track, delay_s: float) -> tuple[JointRows, JointRows]:
        """Set-points and their slope at every step. Most sets of parameters that are rolled at once
        have the same delay.
        """
        known = self._late
        if known is not None and known[0] is track and known[1] == delay_s:
            return known[2], known[3]
        motion = track.motion
        # What was told shortly before is still on its way.
        before = -self._step_s * np.arange(_BEFORE, 0, -1)
        t_s = np.concatenate([track.t_s[0] + before, track.t_s[:-1]]) - delay_s
        half = 0.5 * _SLOPE_S
        q, ahead, behind = (
            on_grid(t, motion.sent_t_s, motion.sent) for t in (t_s, t_s + half, t_s - half)
        )
        slope = (ahead - behind) / _SLOPE_S
        self._late = (track, delay_s, q, slope)
        return q, slope


def smoothed(rows: JointRows, lag_s: float, period_s: float) -> JointRows:
    """Rows ``[n, j]`` behind a critically damped filter that lags a ramp by ``lag_s`` [s], exact
    for rows that hold for a period; it starts at rest.
    """
    if lag_s < 0.1 * period_s:
        return rows
    w = 2.0 * period_s / lag_s
    a = math.exp(-w)
    up, down = [1.0 - a * (1.0 + w), a * (a + w - 1.0)], [1.0, -2.0 * a, a * a]
    start = lfilter_zi(up, down)[:, None] * rows[:1]
    out, _ = lfilter(up, down, rows, axis=0, zi=start)
    return np.asarray(out, dtype=np.float64)


def _line(t_s: Floats, rows: JointRows) -> tuple[Joints, Joints]:
    """Value and slope at 0 of a line through rows ``[n, j]``."""
    if len(t_s) < 3:
        return rows[0].copy(), np.zeros(rows.shape[1])
    basis = np.stack([np.ones_like(t_s), t_s], axis=1)
    (q, qd), *_ = np.linalg.lstsq(basis, rows, rcond=None)
    return q, qd


def _held(model: mujoco.MjModel, actuator: int) -> float:
    """What keeps another joint's servo (a gripper) where the scene has it."""
    joint = int(model.actuator_trnid[actuator, 0])
    return float(model.qpos0[model.jnt_qposadr[joint]])
