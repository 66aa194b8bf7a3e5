"""Holds recorded motions of an arm, and refuses those from which nothing could be learned.

Set-points are what the arm was told, after every limiter; measured joints are what it answered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import JointFlags, JointRows
from robolearn.errors import DataError
from robolearn.shapes import FloatRows, Floats

Sent = Float64[NDArray[np.float64], " sent"]
SentColumns = Float64[NDArray[np.float64], "sent k"]
SentRows = Float64[NDArray[np.float64], "sent j"]

# A clock may be set back so often.
_SET_BACK = 5
# A stream that pauses for longer cannot be filled in between [s].
_GAP_S = 0.1
# Slower than this counts as standing still [rad/s]; so far a joint must go to count as moved [rad].
_STILL_RAD_S, _MOVED_RAD = 0.02, 0.005
# Joints that are on average further from their set-points belong to another arm, or to none [rad].
_FOREIGN_RAD = 0.35
# Set-points that do not change at the end of their range are cut off there [rad].
_AT_LIMIT_RAD = 1e-4
_LEAST_S = 5.0


@dataclass(frozen=True, slots=True)
class ArmMotion:
    """One motion: set-points ``sent [m, j]`` [rad] at ``sent_t_s [m]`` and ``measured [n, j]`` at
    ``measured_t_s [n]``, both [s] of one clock.
    """

    name: str
    sent_t_s: Sent
    sent: SentRows
    measured_t_s: Floats
    measured: JointRows

    @property
    def span_s(self) -> tuple[float, float]:
        """What both streams cover [s]."""
        low = max(self.sent_t_s[0], self.measured_t_s[0])
        return float(low), float(min(self.sent_t_s[-1], self.measured_t_s[-1]))

    def part(self, begin_s: float, end_s: float) -> ArmMotion:
        """Its samples in ``[begin_s, end_s]`` of the same clock."""
        a, b = ((t >= begin_s) & (t <= end_s) for t in (self.sent_t_s, self.measured_t_s))
        return ArmMotion(
            *(self.name, self.sent_t_s[a], self.sent[a], self.measured_t_s[b], self.measured[b])
        )


@dataclass(frozen=True, slots=True)
class Checked:
    """Motions that can be used, which joints ``[j]`` moved in them, and what people should know."""

    motions: tuple[ArmMotion, ...]
    moved: JointFlags
    notes: tuple[str, ...]


def checked_motions(
    motions: Sequence[ArmMotion], arm: SerialArm, least_s: float = _LEAST_S
) -> Checked:
    """Look at what was recorded of ``arm`` before anything is fitted.

    Motions are cut at gaps of their clocks. Raises :class:`DataError` for values that are not
    finite, set-points of another arm, and less than ``least_s`` [s] of motion in all.
    """
    parts: list[ArmMotion] = []
    notes: list[str] = []
    for motion in motions:
        require_usable(motion, arm)
        pieces = _between_gaps(motion)
        if len(pieces) != 1:
            notes.append(
                f"{motion.name}: its clock jumps or pauses, so it is used as {len(pieces)} parts"
            )
        parts += pieces
    for motion in parts:
        notes += _cut_off(motion, arm)
    ranges = np.array([np.ptp(m.measured, axis=0) for m in parts]).reshape(-1, arm.dof)
    moved = ranges.max(axis=0, initial=0.0) > _MOVED_RAD
    moving_s = sum(_moving_s(m) for m in parts)
    if not moved.any() or moving_s < least_s:
        raise DataError(
            f"the arm moves for {moving_s:.1f} s in {len(motions)} motion(s), expected at least"
            f" {least_s:g} s with a joint that goes {_MOVED_RAD:g} rad: too little to find"
            " anything. Record longer and faster motions of every joint, or let 'identify"
            " --robot' choose them"
        )
    still = [n for n, m in zip(arm.joint_names, moved.tolist(), strict=True) if not m]
    if still:
        notes.append(f"{', '.join(still)} did not move: their parameters stay as they were")
    return Checked(tuple(parts), moved, tuple(notes))


def require_usable(motion: ArmMotion, arm: SerialArm) -> None:
    """Raises :class:`DataError` with the reason why nothing can be learned from a recording."""
    _require_values(motion, arm)
    _require_same_arm(motion, arm)


def _require_values(motion: ArmMotion, arm: SerialArm) -> None:
    where = f"motion {motion.name}"
    for what, t, rows in (
        ("set-points", motion.sent_t_s, motion.sent),
        ("measured joints", motion.measured_t_s, motion.measured),
    ):
        if rows.ndim != 2 or rows.shape[1] != arm.dof:
            raise DataError(
                f"{where}: {what} have {rows.shape[-1]} joints, {arm.name} has {arm.dof}; they are"
                " of another arm"
            )
        if len(t) < 50:
            raise DataError(f"{where}: {len(t)} {what}; at least 50 are needed")
        bad = ~(np.isfinite(rows).all(axis=1) & np.isfinite(t))
        if bad.any():
            raise DataError(
                f"{where}: {int(bad.sum())} of {len(t)} {what} are not finite, the first is row"
                f" {int(np.argmax(bad))}; a recording with holes is not filled in: leave it out"
            )
        back = int((np.diff(t) < 0.0).sum())
        if back > max(_SET_BACK, 0.01 * len(t)):
            raise DataError(
                f"{where}: the times of {what} run backwards {back} times in {len(t)}: they are"
                " shuffled, or of several clocks"
            )


def _between_gaps(motion: ArmMotion) -> list[ArmMotion]:
    """Cut where either clock stands, runs backwards or pauses; short pieces are left out."""
    sent, measured = _ascending(motion.sent_t_s), _ascending(motion.measured_t_s)
    motion = ArmMotion(
        motion.name,
        motion.sent_t_s[sent],
        motion.sent[sent],
        motion.measured_t_s[measured],
        motion.measured[measured],
    )
    begin_s, end_s = motion.span_s
    edges = [begin_s]
    holes: list[tuple[float, float]] = []
    for t in (motion.sent_t_s, motion.measured_t_s):
        at = np.flatnonzero(np.diff(t) > _GAP_S)
        holes += [(float(t[i]), float(t[i + 1])) for i in at]
    for low, high in sorted(holes):
        edges += [low, high]
    edges.append(end_s)
    spans = zip(edges[::2], edges[1::2], strict=True)
    return [motion.part(a, b) for a, b in spans if b - a > 1.0]


def _ascending(t_s: Floats) -> NDArray[np.bool_]:
    """Samples later than every one before them: a clock that was set back repeats itself."""
    latest = np.maximum.accumulate(t_s)
    return np.append(True, t_s[1:] > latest[:-1])


def _require_same_arm(motion: ArmMotion, arm: SerialArm) -> None:
    told = np.stack(
        [np.interp(motion.measured_t_s, motion.sent_t_s, c) for c in motion.sent.T], axis=1
    )
    off = np.median(np.abs(told - motion.measured), axis=0)
    if off.max() > _FOREIGN_RAD:
        joint = int(np.argmax(off))
        raise DataError(
            f"motion {motion.name}: {arm.joint_names[joint]} is {np.degrees(off[joint]):.0f}"
            " degrees from its set-point most of the time: the set-points are of another arm, or in"
            " other units than rad"
        )


def _cut_off(motion: ArmMotion, arm: SerialArm) -> list[str]:
    """Joints whose set-points rest at the end of the arm's range."""
    low, high = arm.bounds
    at_end = (motion.sent < low + _AT_LIMIT_RAD) | (motion.sent > high - _AT_LIMIT_RAD)
    share = at_end.mean(axis=0)
    return [
        f"{motion.name}: set-points of {name} are cut off at the joint's limit for"
        f" {100 * s:.0f} % of the time and say nothing there"
        for name, s in zip(arm.joint_names, share.tolist(), strict=True)
        if s > 0.02
    ]


def _moving_s(motion: ArmMotion) -> float:
    """How long any joint moves [s], judged over 50 ms against noise."""
    t = np.arange(motion.measured_t_s[0], motion.measured_t_s[-1], 0.05)
    if len(t) < 2:
        return 0.0
    rows = on_grid(t, motion.measured_t_s, motion.measured)
    return 0.05 * float((np.abs(np.diff(rows, axis=0)).max(axis=1) > 0.05 * _STILL_RAD_S).sum())


def on_grid(t_s: Floats, at_s: Sent, rows: SentColumns) -> FloatRows:
    """Rows ``[m, k]`` at ``at_s [m]``, linearly in between, at ``t_s [n]``: ``[n, k]``."""
    # One search for all columns: these are long.
    i = np.clip(np.searchsorted(at_s, t_s, side="right") - 1, 0, len(at_s) - 2)
    share = np.clip((t_s - at_s[i]) / (at_s[i + 1] - at_s[i]), 0.0, 1.0)[:, None]
    return rows[i] * (1.0 - share) + rows[i + 1] * share
