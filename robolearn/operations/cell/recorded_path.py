"""Makes commands for an arm of a recorded episode, slower if wanted, and compares what was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.shapes import AnyFloats, Floats
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec

# What an arm is followed by: where a cell has them, and the recording, too.
JOINTS = "arm/joint_position"
FOLLOWED = ("tool/xy_table", "tool/pose", JOINTS)


@dataclass(frozen=True, slots=True)
class RecordedPath:
    """Commands ``actions[name] [T, *shape]`` at the cell's rate, and ``seen[name] [T, *shape]``:
    where the arm was in the recording at the same moments.
    """

    actions: Mapping[str, AnyFloats]
    seen: Mapping[str, AnyFloats]
    specs: tuple[ActionSpec, ...]
    rate_hz: float

    @property
    def steps(self) -> int:
        """Number of commands."""
        return len(next(iter(self.actions.values())))

    @property
    def duration_s(self) -> float:
        """Of the replay."""
        return self.steps / self.rate_hz

    def require_smooth(self, name: str, jump_m: float, jump_rad: float) -> None:
        """:class:`DataError` for commands that are no numbers, leave the range of the action, or
        jump.
        """
        for spec in self.specs:
            rows = self.actions[spec.name].reshape(self.steps, -1)
            if not np.isfinite(rows).all():
                row = int(np.argwhere(~np.isfinite(rows))[0][0])
                raise DataError(f"{name}: '{spec.name}' is not a number at tick {row}")
            if spec.low and spec.high:
                far = spec.tolerance or 0.0
                out = ((rows < np.subtract(spec.low, far)) | (rows > np.add(spec.high, far))).any(1)
                if bool(out.any()):
                    row = int(np.argmax(out))
                    raise DataError(
                        f"{name}: '{spec.name}' leaves what this cell may do at tick {row}:"
                        f" {_rounded(rows[row])}, allowed {list(spec.low)} to"
                        f" {list(spec.high)}"
                    )
            most = _most(spec, jump_m, jump_rad)
            steps = np.abs(np.diff(rows[:, : len(most)], axis=0))
            steps = np.where(most == jump_rad, np.minimum(steps, abs(2 * np.pi - steps)), steps)
            jumps = (steps > most).any(axis=1) if len(most) else np.zeros(0, dtype=np.bool_)
            if bool(jumps.any()):
                row = int(np.argmax(jumps))
                raise DataError(
                    f"{name}: '{spec.name}' jumps by {_rounded(steps[row])} from tick"
                    f" {row} to {row + 1}; more than {jump_m:g} m or {jump_rad:g} rad at once is no"
                    " motion that was shown. Cut it out (robolearn data cut), or allow it (jump_m,"
                    " jump_rad) if the supervisor is to smooth it"
                )


@dataclass(frozen=True, slots=True)
class TrackingError:
    """How far a signal was from the recording: [m], or [rad] for joints."""

    signal: str
    unit: str
    median: float
    p95: float
    most: float
    final: float


def recorded_path(episode: Episode, offered: EmbodimentSpec, speed: float) -> RecordedPath:
    """The commands of an episode for an arm with the same actions. DataError for what cannot be
    played: relative commands, and no ticks.
    """
    mine = {a.name: a for a in offered.actions}
    specs = tuple(mine[a.name] for a in episode.meta.embodiment.actions)
    if not episode.steps:
        raise DataError(f"{episode.id} has no ticks")
    relative = [s.name for s in specs if s.mode == "relative"]
    if relative:
        raise DataError(f"{episode.id}: relative commands {relative} are not played on an arm")
    signals = {s.name: s.shape for s in offered.signals}
    # Joints of another arm that draws the same line are no way to follow.
    same_arm = offered.name == episode.meta.embodiment.name or JOINTS in mine
    names = [n for n in FOLLOWED if n in episode.view and n in signals]
    names = [n for n in names if n != JOINTS or same_arm]
    shown = {n: np.asarray(episode.observed(n), dtype=np.float64) for n in names}
    same = {n: v for n, v in shown.items() if v.shape[1:] == signals[n]}
    return RecordedPath(
        actions={s.name: slowed(episode.action[s.name], s.name, speed) for s in specs},
        seen={n: slowed(v, n, speed) for n, v in same.items()},
        specs=specs,
        rate_hz=offered.rate_hz,
    )


def slowed(values: AnyFloats, name: str, speed: float) -> AnyFloats:
    """``values [T, *shape]`` at ``speed`` of their pace, between rows on the straight way; turns go
    the short way round.
    """
    rows = np.asarray(values, dtype=np.float64)
    if speed == 1.0 or len(rows) < 2:
        return rows.copy()
    flat = rows.reshape(len(rows), -1).copy()
    if name == "tool/pose":
        # q and -q are one rotation.
        dots = (flat[1:, 3:] * flat[:-1, 3:]).sum(axis=1)
        flat[1:, 3:] *= np.cumprod(np.where(dots < 0, -1.0, 1.0))[:, None]
    if name == "tool/xyz_yaw":
        flat[:, 3] = np.unwrap(flat[:, 3])
    count = int(np.floor((len(flat) - 1) / speed)) + 1
    at = np.minimum(np.arange(count) * speed, len(flat) - 1)
    times = np.arange(len(flat))
    found: NDArray[np.float64] = np.empty((count, flat.shape[1]))
    for k in range(flat.shape[1]):
        found[:, k] = np.interp(at, times, flat[:, k])
    if name == "tool/pose":
        found[:, 3:] /= np.linalg.norm(found[:, 3:], axis=1, keepdims=True)
    if name == "tool/xyz_yaw":
        found[:, 3] = (found[:, 3] + np.pi) % (2 * np.pi) - np.pi
    return found.reshape(count, *rows.shape[1:])


def tracking_error(spec: SignalSpec, wanted: AnyFloats, seen: AnyFloats) -> TrackingError:
    """Of rows ``[T, *shape]``: places by their distance, joints by the one that is farthest off."""
    apart = np.abs(seen - wanted).reshape(len(wanted), -1)
    joints = spec.name == JOINTS
    off: Floats = apart.max(axis=1) if joints else np.sqrt((apart[:, :3] ** 2).sum(axis=1))
    median, p95 = float(np.median(off)), float(np.quantile(off, 0.95))
    unit = "rad" if joints else "m"
    return TrackingError(spec.name, unit, median, p95, float(off.max()), float(off[-1]))


def _rounded(values: AnyFloats) -> list[float]:
    return [round(float(v), 3) for v in values]


def _most(spec: ActionSpec, jump_m: float, jump_rad: float) -> AnyFloats:
    """Farthest step of every number that moves the arm: a gripper may close at once, and
    quaternions are bounded by what they are.
    """
    if spec.name.startswith("gripper/"):
        return np.zeros(0)
    if spec.unit == "rad":
        return np.full(spec.size, jump_rad)
    kinds: Sequence[float] = [jump_m] * min(3, spec.size)
    return np.array([*kinds, jump_rad] if spec.size == 4 else kinds)
