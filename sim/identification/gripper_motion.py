"""Finds how late and how fast a gripper answers, from widths that were commanded and measured.

The model is that of ``sim/control/gripper_drive.py``: so long after a command the fingers go to it
at one speed. What they hold is read off the measurement: fingers that rest wider than they were
told are on an object, and go no further; whether their set-point does shows when they open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray
from scipy.stats import t as student

from robolearn.errors import DataError
from robolearn.shapes import Flags, FloatRows, Floats, Index
from sim.control.gripper_drive import FASTEST_M_S, GripperDrive
from sim.identification.object_forces import Told, told_document

# Of commands, with times of their own.
Commands = Float64[NDArray[np.float64], " m"]
Candidates = Float64[NDArray[np.float64], " v"]
CandidateRows = Float64[NDArray[np.float64], "v n"]
Errors = Float64[NDArray[np.float64], " e"]
ErrorRows = Float64[NDArray[np.float64], "v e"]
# Of delay and speed.
Two = Float64[NDArray[np.float64], "2"]

# A stroke goes so far [m]; three of them, one at least closing, are needed.
_STROKE_M, _LEAST = 0.005, 3
# Slower between two samples they rest [m/s]: a count of a register (0.4 mm) is no motion.
_REST_M_S = 0.012
# Resting so long [s] so far [m] from what they were told, they hold something.
_HELD_S, _HELD_M = 0.08, 0.002
# Before and after a motion its beginning and end are looked at, too [s].
_AROUND_S = 0.3
_LONGEST_S, _SLOWEST_M_S = 0.6, 0.004
# Fingers that are further from the model are no such drive [m].
_FARTHEST_M = 0.004
# Known when the interval is no wider than this: [s], and as a share of the value.
_DELAY_KNOWN_S, _SPEED_KNOWN = 0.04, 0.5
_GRID, _ZOOMS = 13, 9
# A drive of any speed explains what was recorded if it is so little worse, or off by less than what
# registers tell [m].
_CLEARLY, _COUNT_M = 1.2, 0.0005


@dataclass(frozen=True, slots=True)
class FingerMotion:
    """One episode: ``told [m]`` at ``told_t_s [m]``, ``seen [n]`` at ``seen_t_s [n]``; openings in
    [m] and times [s] of one clock.
    """

    name: str
    told_t_s: Commands
    told: Commands
    seen_t_s: Floats
    seen: Floats


@dataclass(frozen=True, slots=True)
class FoundGripper:
    """How late [s] and how fast [m/s] the fingers of ``signal`` are; ``error_m``: root mean square
    of what is left over while they move. ``holds``: how often they held something, ``pulls_on``:
    whether set-points went on meanwhile; ``before``: the scene's drive, None where it has none.
    """

    signal: str
    before: GripperDrive | None
    delay: Told
    speed: Told
    error_m: float
    holds: int
    pulls_on: bool = False

    @property
    def known(self) -> bool:
        """Whether both are."""
        return self.delay.status == self.speed.status == "identified"


@dataclass(frozen=True, slots=True)
class _Looked:
    """A motion with what is read off it: below ``floor [n]`` nothing goes, ``counts [n]`` near
    motions, and the stroke that each sample belongs to.
    """

    motion: FingerMotion
    floor: Floats
    counts: Flags
    stroke: Index
    strokes: int
    closing: int
    holds: int


def found_gripper(
    signal: str, motions: Sequence[FingerMotion], before: GripperDrive | None = None
) -> FoundGripper:
    """Fit delay and speed. What the recordings do not tell is ``assumed``, with the reason.

    :class:`DataError` for values that are not finite or times that run backwards.
    """
    for motion in motions:
        _require_usable(motion)
    looked = [_looked(m) for m in motions if len(m.told) > 1 and len(m.seen) > 3]
    holds = sum(one.holds for one in looked)
    strokes, closing = sum(one.strokes for one in looked), sum(one.closing for one in looked)
    if not closing or strokes < _LEAST:
        why = (
            f"its fingers move {strokes} times by {1e3 * _STROKE_M:g} mm or more, {closing} times"
            f" closing; {_LEAST} are needed, one closing"
        )
        return FoundGripper(signal, before, _unknown(why), _unknown(why), float("nan"), holds)
    # Without anything held both are the same.
    ways = [_fitted(looked, pulls_on) for pulls_on in (False, True)]
    pulls_on = ways[1][0] < ways[0][0]
    _, delay, speed = ways[pulls_on]
    errors, J, of = _linear(looked, delay, speed, pulls_on)
    rms = float(np.sqrt(np.mean(errors**2)))
    if rms > _FARTHEST_M:
        why = (
            f"no delay and speed explain its widths: {1e3 * rms:.1f} mm are left over; commands"
            " and widths are of different grippers or clocks, or the fingers were held by hand"
        )
        return FoundGripper(signal, before, _unknown(why), _unknown(why), rms, holds)
    fast_m = _fast(looked, pulls_on)
    if fast_m < max(_CLEARLY * rms, _COUNT_M):
        why = "the fingers were never told to go faster than they can, so their speed is not known"
        return FoundGripper(signal, before, _unknown(why), _unknown(why), rms, holds)
    half = _half_widths(errors, J, of)
    return FoundGripper(
        *(signal, before),
        _told(delay, half[0], strokes, 0.5 * _DELAY_KNOWN_S, "when they begin to move"),
        _told(
            speed, half[1], strokes, 0.5 * _SPEED_KNOWN * speed, "how fast they are",
        ),
        *(rms, holds, pulls_on),
    )  # fmt: skip


def predicted(
    motion: FingerMotion, delay_s: Candidates, speed: Candidates, stop: Floats | None = None
) -> CandidateRows:
    """Where a drive's set-point is ``[v, n]`` [m] at the times that were measured, for candidates
    ``[v]`` of delay [s] and speed [m/s]; ``stop [n]``: it goes no further than this.
    """
    t, told = motion.told_t_s, motion.told
    at = np.empty((len(t), len(speed)))
    at[0] = motion.seen[0]
    least = np.full(at.shape, -np.inf)
    if stop is not None:
        seen = np.searchsorted(motion.seen_t_s, t[:, None] + delay_s)
        least = stop[np.minimum(seen, len(stop) - 1)]
    for i, gap_s in enumerate(np.diff(t).tolist()):
        reach = speed * gap_s
        at[i + 1] = np.maximum(at[i] + np.clip(told[i] - at[i], -reach, reach), least[i + 1])
    when = motion.seen_t_s[None] - delay_s[:, None]
    last = np.clip(np.searchsorted(t, when, side="right") - 1, 0, len(t) - 1)
    here = np.take_along_axis(at.T, last, axis=1)
    reach = speed[:, None] * np.maximum(when - t[last], 0.0)
    return here + np.clip(told[last] - here, -reach, reach)


def _require_usable(motion: FingerMotion) -> None:
    for what, t, values in (
        ("commands", motion.told_t_s, motion.told),
        ("widths", motion.seen_t_s, motion.seen),
    ):
        if not (np.isfinite(t).all() and np.isfinite(values).all()):
            raise DataError(f"{motion.name}: {what} of the gripper are not finite; leave it out")
        if np.any(np.diff(t) <= 0.0):
            raise DataError(
                f"{motion.name}: the times of the gripper's {what} run backwards: they are"
                " shuffled, or of several clocks"
            )


def _looked(motion: FingerMotion) -> _Looked:
    t, seen = motion.seen_t_s, motion.seen
    rate = np.append(np.diff(seen) / np.diff(t), 0.0)
    moves = np.abs(rate) > _REST_M_S
    last = np.clip(np.searchsorted(motion.told_t_s, t, side="right") - 1, 0, None)
    floor, holds = _floors(t, seen, moves, seen - motion.told[last])
    # A stroke ends where the fingers turn back, too.
    spans = sorted((*_spans(rate > _REST_M_S), *_spans(rate < -_REST_M_S)))
    far = [(a, b) for a, b in spans if abs(seen[b] - seen[a]) > _STROKE_M]
    counts, stroke = np.zeros(len(t), dtype=np.bool_), np.zeros(len(t), dtype=np.int64)
    for k, (a, b) in enumerate(far):
        near = (t >= t[a] - _AROUND_S) & (t <= t[b] + _AROUND_S)
        stroke[near & ~counts] = k
        counts |= near
    closing = sum(bool(seen[b] < seen[a]) for a, b in far)
    return _Looked(motion, floor, counts, stroke, len(far), closing, holds)


def _floors(t: Floats, seen: Floats, moves: Flags, over: Floats) -> tuple[Floats, int]:
    """What the fingers cannot go below ``[n]`` [m], while they close on something and hold it."""
    floor, holds = np.full(len(t), -np.inf), 0
    for a, b in _spans(~moves & (over > _HELD_M)):
        if t[b] - t[a] < _HELD_S:
            continue
        holds += 1
        level, (low, high) = float(np.median(seen[a : b + 1])), (a, b)
        while low > 0 and seen[low - 1] >= seen[low] - 1e-9:
            low -= 1
        while high + 1 < len(t) and seen[high + 1] >= seen[high] - 1e-9:
            high += 1
        floor[low : high + 1] = np.maximum(floor[low : high + 1], level)
    return floor, holds


def _spans(flags: Flags) -> list[tuple[int, int]]:
    """First and last index of every run, the last one that follows it included."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    end = len(flags) - 1
    return [(int(a), min(int(b), end)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


def _errors(
    looked: Sequence[_Looked], delay_s: Candidates, speed: Candidates, *, pulls_on: bool
) -> ErrorRows:
    parts = [
        np.maximum(predicted(k.motion, delay_s, speed, None if pulls_on else k.floor), k.floor)
        for k in looked
    ]
    return np.concatenate(
        [(p - k.motion.seen)[:, k.counts] for p, k in zip(parts, looked, strict=True)], axis=1
    )


def _fitted(looked: Sequence[_Looked], pulls_on: bool) -> tuple[float, float, float]:
    """Cost, delay and speed of least squares, by a grid that closes in: late and slow look alike
    far from the optimum.
    """
    low = np.array([0.0, np.log(_SLOWEST_M_S)])
    high = np.array([_LONGEST_S, np.log(FASTEST_M_S)])
    middle, reach = 0.5 * (low + high), 0.5 * (high - low)
    steps, least = np.linspace(-1.0, 1.0, _GRID), float("inf")
    for _ in range(_ZOOMS):
        axes = np.clip(middle + np.outer(steps, reach), low, high)
        delay_s, speed = (v.ravel() for v in np.meshgrid(*axes.T, indexing="ij"))
        cost = (_errors(looked, delay_s, np.exp(speed), pulls_on=pulls_on) ** 2).sum(axis=1)
        best = int(np.argmin(cost))
        least, middle = float(cost[best]), np.array([delay_s[best], speed[best]])
        reach = 0.45 * reach
    return least, float(middle[0]), float(np.exp(middle[1]))


def _fast(looked: Sequence[_Looked], pulls_on: bool) -> float:
    """What a drive that is as fast as any leaves over with its best delay [m]."""
    delay_s = np.linspace(0.0, _LONGEST_S, 121)
    speed = np.full(len(delay_s), FASTEST_M_S)
    errors = _errors(looked, delay_s, speed, pulls_on=pulls_on)
    return float(np.sqrt((errors**2).mean(axis=1).min()))


def _linear(
    looked: Sequence[_Looked], delay: float, speed: float, pulls_on: bool
) -> tuple[Floats, FloatRows, Index]:
    """Errors ``[n]``, their derivatives ``[n, 2]`` by delay and speed, strokes ``[n]``."""
    step = np.array([0.002, 0.02 * speed])
    delays = np.array([delay, delay + step[0], delay - step[0], delay, delay])
    speeds = np.array([speed, speed, speed, speed + step[1], speed - step[1]])
    rows = _errors(looked, delays, speeds, pulls_on=pulls_on)
    J = np.stack([(rows[1] - rows[2]) / 2 / step[0], (rows[3] - rows[4]) / 2 / step[1]], axis=1)
    before = np.cumsum([0, *(k.strokes for k in looked)])
    of = [k.stroke[k.counts] + first for k, first in zip(looked, before, strict=False)]
    return rows[0], J, np.concatenate(of)


def _half_widths(errors: Floats, J: FloatRows, of: Index) -> Two:
    """Of 95 % intervals of delay and speed ``[2]``; what is left over is alike within a stroke, so
    strokes are counted, not samples (the "sandwich").
    """
    square = J.T @ J
    if np.linalg.matrix_rank(square) < len(square):
        # Fingers that never reach their own speed say nothing of it.
        alone = np.diag(square)
        return np.where(alone > 0.0, _alone(errors, J, of, alone), np.inf)
    inverse = np.linalg.inv(square)
    strokes = np.unique(of)
    scores = np.array([(J[of == k] * errors[of == k, None]).sum(axis=0) for k in strokes])
    spread = inverse @ scores.T @ scores @ inverse
    # At least what independent errors would give.
    plain = inverse * float(np.mean(errors**2))
    count = max(len(strokes) - 2, 1)
    wide = np.maximum(np.diag(spread) * len(strokes) / count, np.diag(plain))
    return float(student.ppf(0.975, count)) * np.sqrt(wide)


def _alone(errors: Floats, J: FloatRows, of: Index, square: Two) -> Two:
    """As if the other were known."""
    strokes = np.unique(of)
    scores = np.array([(J[of == k] * errors[of == k, None]).sum(axis=0) for k in strokes])
    count = max(len(strokes) - 1, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = np.sqrt((scores**2).sum(axis=0) * len(strokes) / count) / square
    return float(student.ppf(0.975, count)) * wide


def gripper_document(found: FoundGripper | None) -> dict[str, Any] | None:
    """Plain values for JSON and YAML; None without a gripper."""
    if found is None:
        return None
    delay, speed = (
        (None, None) if found.before is None else (found.before.delay_s, found.before.speed)
    )
    return {
        "signal": found.signal,
        "delay_s": told_document(found.delay, delay),
        "speed_m_s": told_document(found.speed, speed),
        "left_over_m": float(found.error_m) if np.isfinite(found.error_m) else None,
        "held": found.holds,
        "pulls_on": found.pulls_on if found.holds else None,
        "written": found.known,
    }


def _told(value: float, half: float, strokes: int, known: float, what: str) -> Told:
    low, high = max(0.0, value - half), value + half
    if not half <= known:
        return Told(value, low, high, strokes, "assumed", f"the recordings do not tell {what}")
    return Told(value, low, high, strokes, "identified")


def _unknown(why: str) -> Told:
    return Told(float("nan"), 0.0, float("inf"), 0, "assumed", why)
