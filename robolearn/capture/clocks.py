"""Checks the times of a capture against the arm's record (robot.csv): one clock, standing still.

What a record tells depends on what it holds: times alone, whether pictures lie within it; joints,
whether the arm stood while a picture was taken; and, of an arm that is known, whether the poses of
the pictures are those of their times.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np

from robolearn.arms.models import ARMS
from robolearn.capture.folder import Capture, Frame
from robolearn.errors import DataError
from robolearn.geometry import PoseRows
from robolearn.shapes import FloatRows, Floats

Level = Literal["error", "warning"]

# How far a row of frames.csv may lie before or after the arm's record [s].
_EDGE_S = 0.05
# Offsets that are tried [s].
_FARTHEST_S, _STEP_S = 2.0, 0.02
# Of the poses' distance from the record [m], and how much better another time must be.
_APART_M, _CLEARLY = 0.004, 4.0
# Rows this far apart tell where the arm was in between [s]; farther apart, if it did not move by
# more than that [rad].
_GAP_S, _GAP_RAD = 0.2, 0.01
# What people take for seconds.
# No clock shows more seconds (since 1970: the year 5138).
_LATEST_S = 1e11
_UNITS = {"milliseconds": 1e3, "microseconds": 1e6, "nanoseconds": 1e9}
# An arm's record has rows more often than this [s], where it has so many.
_RARE_S, _MANY = 5.0, 20
# An arm that stands is slower [rad/s].
_STANDS = 0.02


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """The arm while pictures were taken: times ``[n]`` [s] ascending, joints ``[n, j]`` [rad] (no
    columns: the record has none).
    """

    t_s: Floats
    q: FloatRows

    def at(self, t_s: Floats) -> FloatRows:
        """Joints at other times, in between evenly."""
        columns: list[Floats] = [np.interp(t_s, self.t_s, column) for column in self.q.T]
        return np.stack(columns, axis=1)

    def known_at(self, t_s: float) -> Floats | None:
        """Joints ``[j]`` at a time; None outside of the record, and in a gap of it in which the arm
        moved.
        """
        if not self.t_s[0] - _EDGE_S <= t_s <= self.t_s[-1] + _EDGE_S:
            return None
        after = int(np.clip(np.searchsorted(self.t_s, t_s), 1, max(1, len(self.t_s) - 1)))
        rows = slice(after - 1, after + 1)
        apart, moved = np.ptp(self.t_s[rows]), np.ptp(self.q[rows], axis=0)
        if apart > _GAP_S and (moved > _GAP_RAD).any():
            return None
        return self.at(np.array([t_s]))[0]

    def speed(self, t_s: Floats) -> Floats:
        """Speed of the fastest joint at times [rad/s], over 60 ms."""
        moved = self.at(t_s + 0.03) - self.at(t_s - 0.03)
        return np.abs(moved).max(axis=1) / 0.06


def read_record(folder: Path) -> ArmRecord | None:
    """``robot.csv`` of a capture; None without one. DataError for a file that is none."""
    path = folder / "robot.csv"
    if not path.is_file():
        return None
    t_s, q = joint_table(path)
    order = np.argsort(t_s, kind="stable")
    return ArmRecord(t_s[order], q[order])


def joint_table(path: Path) -> tuple[Floats, FloatRows]:
    """Times ``[n]`` [s] and joints ``[n, j]`` [rad] of a CSV with the columns t_s, q1 ..., in the
    order of its rows, joints in that of their numbers. DataError for a file that is none.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            table = csv.DictReader(stream)
            rows, header = list(table), list(table.fieldnames or ())
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"'{path}' cannot be read as CSV: {error}") from error
    names = _joints(header, path)
    rows = [row for row in rows if row.get("t_s")]
    try:
        t_s = np.array([float(row["t_s"]) for row in rows], dtype=np.float64)
        q = np.array([[float(row[n]) for n in names] for row in rows], dtype=np.float64)
        if not (np.isfinite(t_s).all() and np.isfinite(q).all()):
            raise ValueError("some are not finite")
    except (TypeError, ValueError) as error:
        raise DataError(
            f"'{path}': t_s must be numbers of seconds, q1 ... of radians ({error})"
        ) from error
    if not len(t_s):
        raise DataError(f"'{path}' needs a column t_s with the times of its rows [s]")
    return t_s, q.reshape(len(t_s), len(names))


def _joints(header: Sequence[str], path: Path) -> list[str]:
    """The columns of joints, by number, whichever order they stand in."""
    names = [n for n in header if n and n[0] == "q" and n[1:].isdecimal()]
    names.sort(key=lambda n: int(n[1:]))
    if [int(n[1:]) for n in names] != list(range(1, len(names) + 1)):
        raise DataError(
            f"'{path}': joints must be q1, q2 ... without a gap, each once; there are {names}"
        )
    return names


def poses_at(
    capture: Capture, record: ArmRecord | None, frames: Sequence[Frame]
) -> Callable[[float], PoseRows] | None:
    """``T_base_flange [n, 4, 4]`` of frames by the record, as a function of how late the frames'
    times are [s]; None where the record, the arm or a time is not known.
    """
    arm = None if capture.config.arm is None else ARMS.get(capture.config.arm.model)
    if record is None or arm is None or record.q.shape[1] != arm.dof or len(record.t_s) < 2:
        return None
    times = [f.t_s for f in frames if f.t_s is not None]
    if not frames or len(times) < len(frames):
        return None
    stamps = np.array(times, dtype=np.float64)
    return lambda late_s: arm.fk_rows(record.at(stamps - late_s))


def clock_problems(capture: Capture) -> list[tuple[Level, str]]:
    """``(level, sentence)`` of what is wrong with the times."""
    found: list[tuple[Level, str]] = []
    for entry in capture.config.sets:
        times = [f.t_s for f in capture.frames if f.set.name == entry.name and f.t_s is not None]
        steps = np.diff(np.array(times, dtype=np.float64))
        if len(steps) and float(steps.min()) < 0:
            found.append(("warning", f"{entry.name}: t_s runs backwards; one clock for all rows"))
        if times and max(map(abs, times)) > _LATEST_S:
            text = (
                f"{entry.name}: t_s is {max(times, key=abs):.3g}: are these milli-, micro- or"
                " nanoseconds? It is in seconds"
            )
            found.append(("warning", text))
    record = read_record(capture.path)
    armed = {f.set.name for f in capture.frames if f.T_base_tool is not None}
    stamped = [f for f in capture.frames if f.t_s is not None and not _by_hand(f, armed)]
    if record is None or not stamped:
        return found
    times = np.array([f.t_s for f in stamped], dtype=np.float64)
    low, high = float(record.t_s[0]), float(record.t_s[-1])
    outside = int(((times < low - _EDGE_S) | (times > high + _EDGE_S)).sum())
    if outside:
        text = (
            f"clocks are out of step: {outside} of {len(times)} pictures were taken outside the"
            f" arm's record (pictures {times.min():.2f} to {times.max():.2f} s, arm {low:.2f} to"
            f" {high:.2f} s){_other_unit(times, low, high)}; stamp both with one clock, or subtract"
            " the offset"
        )
        return [*found, ("error", text)]
    if len(record.t_s) >= _MANY and (apart := float(np.median(np.diff(record.t_s)))) > _RARE_S:
        text = (
            f"the rows of robot.csv lie {apart:.3g} s apart: are these milliseconds? t_s is in"
            " seconds, of pictures and of the arm"
        )
        found.append(("warning", text))
    text = _poses(capture, record, stamped) or _standing(record, stamped)
    return [*found, ("error", text)] if text else found


def _other_unit(times: Floats, low: float, high: float) -> str:
    """The unit by which most pictures would lie within the arm's record; "" where none does."""
    for name, factor in _UNITS.items():
        inside = (times / factor >= low - _EDGE_S) & (times / factor <= high + _EDGE_S)
        if 2 * int(inside.sum()) >= len(times):
            return f": {int(inside.sum())} of them fit when their t_s are {name}, not seconds"
    return ""


def _by_hand(frame: Frame, armed: Collection[str]) -> bool:
    """Whether a picture is of a stage in which the arm of the others had no part: its record may be
    of another hour. ``armed``: sets whose pictures tell the arm's pose.
    """
    carried = frame.camera.mount == "hand" or frame.set.purpose == "object"
    return bool(armed) and frame.set.name not in armed and carried


def _poses(capture: Capture, record: ArmRecord, stamped: Sequence[Frame]) -> str:
    """Whether the pictures' poses are those of other times."""
    posed = [f for f in stamped if f.T_base_tool is not None]
    known = poses_at(capture, record, posed)
    if known is None or len(posed) < 5:
        return ""
    given = np.stack([T for f in posed if (T := f.T_base_tool) is not None])
    best, here, there = _best(lambda late_s: _apart(known(late_s), given), 0.1 * _APART_M)
    if here <= _APART_M:
        return ""
    turned = poses_at(capture, replace(record, q=np.radians(record.q)), posed)
    if turned is not None and _apart(turned(0.0), given) * _CLEARLY < here:
        return (
            "the joints of robot.csv are in degrees: T_base_tool of the pictures is where they put"
            " the arm then; write them in radians"
        )
    if there * _CLEARLY < here:
        return (
            f"clocks are out of step: T_base_tool of the pictures is where the arm was"
            f" {abs(best):.2f} s {'before' if best > 0 else 'after'} their t_s (robot.csv; off by"
            f" {1e3 * here:.0f} mm as it is, {1e3 * there:.0f} mm then); stamp both with one clock,"
            " or subtract the offset"
        )
    return (
        f"T_base_tool of the pictures is not where robot.csv says that the arm was (off by"
        f" {1e3 * here:.0f} mm in the middle, at any offset of the clocks): poses were exchanged or"
        " belong to another arm, or robot.csv is of another run"
    )


def _apart(found: PoseRows, given: PoseRows) -> float:
    """How far poses are from the record [m], whatever stands for the tool: the middle one."""
    tool = np.linalg.inv(found) @ given
    usual = np.median(tool[:, :3, 3], axis=0)
    far: Floats = np.linalg.norm(tool[:, :3, 3] - usual, axis=1)
    return float(np.median(far))


def _standing(record: ArmRecord, stamped: Sequence[Frame]) -> str:
    """Whether pictures of the board, taken while the arm stood, are stamped as if it had moved."""
    if not record.q.shape[1] or len(record.t_s) < 5:
        return ""
    times = [
        f.t_s
        for f in stamped
        if f.t_s is not None and f.set.purpose == "handeye" and f.camera.mount != "hand"
    ]
    if len(times) < 5:
        return ""
    stamps = np.array(times, dtype=np.float64)

    def moving(late_s: float) -> float:
        return float((record.speed(stamps - late_s) > _STANDS).mean())

    best, here, there = _best(moving, 1e-9)
    if here < 0.5 or there > 0.1:
        return ""
    return (
        f"clocks are out of step: the arm was moving at the times of {here:.0%} of the hand-eye"
        f" pictures, and stood still {abs(best):.2f} s {'before' if best > 0 else 'after'} them:"
        " stamp both with one clock, or subtract the offset"
    )


def _best(cost: Callable[[float], float], alike: float) -> tuple[float, float, float]:
    """How late times are by the least cost [s], nearest to none; the cost as it is, and there.
    Costs that are ``alike`` are one: the middle of such a stretch (the arm stood) is told.
    """
    offsets = np.arange(-_FARTHEST_S, _FARTHEST_S + _STEP_S / 2, _STEP_S)
    costs = np.array([cost(float(s)) for s in offsets])
    least = float(costs.min())
    good = costs <= least + alike
    nearest = int(np.argmin(np.where(good, np.abs(offsets), np.inf)))
    first = last = nearest
    while first > 0 and good[first - 1]:
        first -= 1
    while last + 1 < len(good) and good[last + 1]:
        last += 1
    return float(offsets[first] + offsets[last]) / 2.0, cost(0.0), least
