"""Chooses motions from which an arm's parameters can be told, inside the limits of its supervisor.

Candidates are periodic, band-limited motions (finite Fourier series, Swevers et al., 1997) of some
or all joints that start and end at rest. On the current model each candidate has an information
matrix, from the same finite differences that the fit uses; chosen is the set which, with what is
believed beforehand, leaves the narrowest intervals (least sum of the logarithms of the widths),
greedily and then by exchanges from there and from the D-optimal set. The largest determinant alone
gives intervals that are a twentieth wider: it also pays for what is known together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.arms.collision import CollisionModel
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import JointRows, Joints
from robolearn.errors import DataError
from robolearn.shapes import FloatRows, Floats
from sim.identification.arm_fit import ArmFit, Covariance, FitConfig
from sim.identification.arm_model import ArmModel, Unknowns
from sim.identification.arm_motion import ArmMotion
from sim.identification.arm_rollouts import ArmRollouts, Track

InformationMatrices = Float64[NDArray[np.float64], "n p p"]
Sums = Float64[NDArray[np.float64], " n"]

# Standard deviation of an encoder's reading that plans count with [rad].
_ENCODER_RAD = 1e-4
_RAMP_S, _CHECK_HZ = 0.6, 25.0
# Plans keep this share of every limit: the path's law adds a little of its own.
_INSIDE = 0.85
_EXCHANGES = 3


@dataclass(frozen=True, slots=True)
class Room:
    """Where a motion may be: around ``home [j]``, in ``low .. high [j]`` [rad], below ``speed`` and
    ``acceleration [j]``, the tool's tip (``tool_m`` from the flange) below ``tool_speed`` [m/s] as
    the supervisor reckons it, and ``margin_m`` from everything in ``collision``.
    """

    arm: SerialArm
    home: Joints
    low: Joints
    high: Joints
    speed: Joints
    acceleration: Joints
    tool_m: float = 0.0
    tool_speed: float = float("inf")
    collision: CollisionModel | None = None
    margin_m: float = 0.05

    def share(self, q: JointRows, rate_hz: float) -> float:
        """The largest factor, at most 1, by which a motion about home ``q [n, j]`` may be made: 0
        where none is.
        """
        around = q - self.home
        speed = np.gradient(q, 1.0 / rate_hz, axis=0)
        acceleration = np.gradient(speed, 1.0 / rate_hz, axis=0)
        most = [
            np.abs(speed).max(axis=0) / self.speed,
            np.abs(acceleration).max(axis=0) / self.acceleration,
            around.max(axis=0) / np.maximum(self.high - self.home, 1e-9),
            -around.min(axis=0) / np.maximum(self.home - self.low, 1e-9),
        ]
        share = _INSIDE / max(float(np.max(most)), _INSIDE)
        few = slice(None, None, max(1, round(rate_hz / _CHECK_HZ)))
        for _ in range(12):
            here = self.home + share * around[few]
            fast = self._tip_speed(here, share * speed[few])
            if fast > _INSIDE * self.tool_speed:
                share *= 0.98 * _INSIDE * self.tool_speed / fast
            elif self._near(here):
                share *= 0.8
            else:
                return share
        return 0.0

    def _tip_speed(self, q: JointRows, qd: JointRows) -> float:
        if not np.isfinite(self.tool_speed):
            return 0.0
        fastest = 0.0
        for at, speed in zip(q, qd, strict=True):
            # The sum over joints, as the follower keeps it: more than the tip's own speed.
            fastest = max(fastest, float(self.levers(at) @ np.abs(speed)))
        return fastest

    def levers(self, q: Joints) -> Joints:
        """How far the tip moves per joint angle ``[j]`` [m/rad]."""
        T, jacobian = self.arm.fk_jacobian(q)
        tip = self.tool_m * T[:3, 2]
        moved = jacobian[:3] + np.cross(jacobian[3:], tip[:, None], axis=0)
        return np.linalg.norm(moved, axis=0)

    def _near(self, q: JointRows) -> bool:
        if self.collision is None:
            return False
        distances = self.collision.distances_rows(list(q))
        least = np.minimum(self.margin_m, self.collision.distances(self.home) - 0.002)
        return bool((distances < least).any())


@dataclass(frozen=True, slots=True)
class Excitation:
    """A motion to make: set-points ``q [n, j]`` [rad] at ``rate_hz``, from rest to rest at home."""

    rate_hz: float
    q: JointRows

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return (len(self.q) - 1) / self.rate_hz


@dataclass(frozen=True, slots=True)
class ExcitationConfig:
    """The family: ``seconds`` in all, in pieces of ``piece_s`` of ``candidates``, from
    ``band_hz``.
    """

    seconds: float = 60.0
    piece_s: float = 2.5
    candidates: int = 128
    band_hz: tuple[float, float] = (0.1, 3.0)
    harmonics: int = 5
    rate_hz: float = 500.0
    seed: int = 0
    threads: int = 2


def multisine(
    room: Room,
    seconds: float,
    *,
    rate_hz: float = 500.0,
    seed: int = 0,
    band_hz: tuple[float, float] = (0.1, 3.0),
    lines: int = 10,
) -> Excitation:
    """What is usually done: all joints at once, ``lines`` sines of equal speed over the band, with
    Schroeder's phases (every joint's from another one on), as large as the limits allow.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate_hz) + 1) / rate_hz
    f = np.geomspace(*band_hz, lines)
    k = np.arange(lines)
    phase = -np.pi * k * (k - 1) / lines
    shift = 2 * np.pi * rng.uniform(size=(room.arm.dof, 1)) * (1 + k)
    waves = np.sin(2 * np.pi * f * t[:, None, None] + phase + shift) / (2 * np.pi * f)
    return _fitted(room, waves.sum(axis=2) * room.speed, t, rate_hz)


def informed(
    room: Room, model: ArmModel, config: ExcitationConfig, x: Unknowns | None = None
) -> Excitation:
    """The choice of pieces that tells most on the model with unknowns ``x [p]`` (None: its own)."""
    rng = np.random.default_rng(config.seed)
    pieces = [_candidate(room, config, rng, i) for i in range(config.candidates)]
    pieces = [p for p in pieces if p is not None]
    if not pieces:
        raise DataError(
            "no motion about home keeps the cell's limits: the arm has no room there. Give it a"
            " home with more space around it"
        )
    matrices = information_of(model, pieces, config.threads, x)
    count = max(1, round(config.seconds / config.piece_s))
    chosen = narrowest(matrices, np.diag(model.belief**-2.0), count)
    q = np.concatenate([pieces[i].q[:-1] for i in chosen] + [room.home[None]])
    return Excitation(config.rate_hz, q)


def information_of(
    model: ArmModel, pieces: Sequence[Excitation], threads: int = 2, x: Unknowns | None = None
) -> InformationMatrices:
    """Information matrices ``[n, p, p]`` of motions, were they measured by usual encoders."""
    at = model.start if x is None else x
    rollouts = ArmRollouts(model, threads)
    every = np.ones(len(at), dtype=bool)
    found: list[NDArray[np.float64]] = []
    for piece in pieces:
        track = planned_track(rollouts, piece)
        fit = ArmFit(rollouts, [track], every, FitConfig(threads=threads))
        J = fit.quick_jacobian([track], at, _ENCODER_RAD)
        found.append(J.T @ J)
    return np.array(found)


def planned_track(rollouts: ArmRollouts, piece: Excitation) -> Track:
    """A motion that was not made yet, as if it had been measured: its own set-points."""
    t_s = np.arange(len(piece.q)) / piece.rate_hz
    return rollouts.track(ArmMotion("plan", t_s, piece.q, t_s, piece.q))


def d_optimal(matrices: InformationMatrices, believed: Covariance, count: int) -> list[int]:
    """Indices of ``count`` of ``matrices [n, p, p]``, with repetition, whose sum with ``believed``
    has the largest determinant: greedily, then by exchanging one for another while that helps.
    """
    return _exchanged(matrices, believed, [], count, _best)


def narrowest(matrices: InformationMatrices, believed: Covariance, count: int) -> list[int]:
    """Indices of ``count`` of ``matrices [n, p, p]``, with repetition, whose sum with ``believed``
    leaves the least sum of the logarithms of the parameters' standard deviations.
    """
    starts: tuple[list[int], ...] = ([], d_optimal(matrices, believed, count))
    found = [_exchanged(matrices, believed, start, count, _narrowest) for start in starts]
    left = [_widths(believed + matrices[chosen].sum(axis=0)[None])[0] for chosen in found]
    return found[int(np.argmin(left))]


def _exchanged(
    matrices: InformationMatrices,
    believed: Covariance,
    start: Sequence[int],
    count: int,
    best: Callable[[InformationMatrices, Covariance], int],
) -> list[int]:
    """``start``, filled up with the ``best`` beside what is there, then each exchanged in turn."""
    chosen, total = list(start), believed + matrices[list(start)].sum(axis=0)
    while len(chosen) < count:
        chosen.append(best(matrices, total))
        total = total + matrices[chosen[-1]]
    for _ in range(_EXCHANGES):
        before = list(chosen)
        for k in range(count):
            total = total - matrices[chosen[k]]
            chosen[k] = best(matrices, total)
            total = total + matrices[chosen[k]]
        if chosen == before:
            break
    return chosen


def _narrowest(matrices: InformationMatrices, total: Covariance) -> int:
    return int(np.argmin(_widths(matrices + total)))


def _widths(information: InformationMatrices) -> Sums:
    """Sums of logarithms of the widths ``[n]``."""
    inverse = np.linalg.inv(information)
    return 0.5 * np.log(np.diagonal(inverse, axis1=1, axis2=2)).sum(axis=1)


def _best(matrices: InformationMatrices, total: Covariance) -> int:
    scale = 1.0 / np.sqrt(np.diag(total))
    return int(np.argmax(np.linalg.slogdet((matrices + total) * scale[:, None] * scale)[1]))


def _candidate(
    room: Room, config: ExcitationConfig, rng: np.random.Generator, index: int
) -> Excitation | None:
    """A random member of the family: all joints, some, or one, in a random part of the band."""
    dof = room.arm.dof
    t = np.arange(round(config.piece_s * config.rate_hz) + 1) / config.rate_hz
    low, high = config.band_hz
    # Stiffness and inertia show where acceleration is high, friction where motions are slow.
    top = high if rng.random() < 0.7 else np.exp(rng.uniform(np.log(low), np.log(high)))
    lines = int(rng.integers(1, config.harmonics + 1))
    f = rng.uniform(low if rng.random() < 0.5 else 0.6 * top, top, (lines, dof))
    weights = rng.normal(size=(lines, dof)) / (2 * np.pi * f)
    phases = rng.uniform(0.0, 2 * np.pi, (lines, dof))
    # Joints with a long lever use the tool's speed up for all others: often some rest, and what
    # there is of it is shared out at random.
    active = np.ones(dof) if index % 3 == 0 else (rng.random(dof) < 0.5).astype(np.float64)
    active[rng.integers(dof)] = 1.0
    waves = np.sin(2 * np.pi * f * t[:, None, None] + phases) * weights
    around = active * waves.sum(axis=1) * _ramp(t)
    around *= _own_limits(room, around, config.rate_hz)
    around *= _shared(room, around, rng.dirichlet(2.0 * np.ones(dof)) * active, config.rate_hz)
    share = room.share(room.home + around, config.rate_hz)
    found = Excitation(config.rate_hz, room.home + share * around)
    return found if np.abs(found.q - room.home).max() > 0.01 else None


def _own_limits(room: Room, around: JointRows, rate_hz: float) -> Joints:
    """Factors ``[j]`` by which every joint by itself reaches its share of a limit."""
    speed = np.gradient(around, 1.0 / rate_hz, axis=0)
    acceleration = np.gradient(speed, 1.0 / rate_hz, axis=0)
    most = [
        np.abs(speed).max(axis=0) / room.speed,
        np.abs(acceleration).max(axis=0) / room.acceleration,
        np.abs(around).max(axis=0) / np.minimum(room.high - room.home, room.home - room.low),
    ]
    return _INSIDE / np.maximum(np.max(most, axis=0), 1e-9)


def _shared(room: Room, around: JointRows, weights: Joints, rate_hz: float) -> Joints:
    """Factors ``[j]``, at most 1, that leave every joint its part of the tip's speed."""
    if not np.isfinite(room.tool_speed):
        return np.ones_like(weights)
    speed = np.abs(np.gradient(around, 1.0 / rate_hz, axis=0)).max(axis=0)
    own = room.levers(room.home) * speed
    budget = _INSIDE * room.tool_speed * weights / max(float(weights.sum()), 1e-9)
    # What a joint cannot use is the others'.
    for _ in range(3):
        spare = np.maximum(budget - own, 0.0)
        needy = own > budget
        budget = np.minimum(budget, own)
        if needy.any():
            budget = budget + np.where(needy, spare.sum() / needy.sum(), 0.0)
    return np.where(own > 1e-6, np.minimum(1.0, budget / np.maximum(own, 1e-6)), 1.0)


def _ramp(t: Floats) -> FloatRows:
    """From 0 to 1 and back ``[n, 1]``, twice differentiable."""
    s = np.clip(np.minimum(t, t[-1] - t) / _RAMP_S, 0.0, 1.0)
    return (s**3 * (10.0 - 15.0 * s + 6.0 * s**2))[:, None]


def _fitted(room: Room, around: JointRows, t: Floats, rate_hz: float) -> Excitation:
    """A motion about home, from rest to rest, as large as the limits allow."""
    around = around * _ramp(t)
    # As large as any limit allows at all: 'share' only makes it smaller.
    qd = np.gradient(around, 1.0 / rate_hz, axis=0)
    grow = float(np.min(room.speed / np.maximum(np.abs(qd).max(axis=0), 1e-9)))
    around = around * grow
    return Excitation(rate_hz, room.home + room.share(room.home + around, rate_hz) * around)
