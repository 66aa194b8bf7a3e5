"""Carries a recorded way of the tool over to objects that lie elsewhere.

    skill    T'_t = M T_t C         M = T_o' T_o^-1 moves the object's frame; C mends the grasp
    bridge   between two skills the recorded way goes over from one transfer to the other:
             T'_s = between(M_a T_s C_a, M_b T_s C_b, w(s)), w eased from 0 to 1, at most as fast
             as the demonstration ever was

Mandlekar et al., "MimicGen" (2023), equation 1, for skills; their bridges are straight lines. Here
a bridge keeps the shape of the recorded way, so that an object that did not move gives the
recording back, and a scene that moved as a whole gives the recording moved as a whole.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from robolearn.geometry import (
    Pose,
    Rotation,
    inverse,
    pose,
    quat_from_rotation,
    quat_multiply,
    quat_rotate,
    rot_z,
    rotation_from_quat,
    yaw_of,
)
from robolearn.planar import blend
from robolearn.retargeting.shapes import OtherWay, Seven, Way
from robolearn.shapes import Floats

# Steps are compared with the demonstration's fastest up to rounding.
_SLACK = 1.0 + 1e-9
_TRIES = 8
# A way that is shorter has no length to speak of [m].
_STILL_M = 1e-6


def no_move() -> Pose:
    """The pose that changes nothing."""
    return np.eye(4)


@dataclass(frozen=True, slots=True)
class Transfer:
    """``M`` (``[4, 4]``) moves the scene, ``C`` (``[4, 4]``) corrects in the tool's frame."""

    M: Pose = field(default_factory=no_move)
    C: Pose = field(default_factory=no_move)

    def apply(self, way: Way) -> Way:
        """Poses ``[n, 7]`` of the tool, carried over: ``M T C``."""
        q = way[..., 3:]
        points = way[..., :3] + quat_rotate(q, np.broadcast_to(self.C[:3, 3], way[..., :3].shape))
        turn = quat_from_rotation(self.M[:3, :3])
        turns = np.broadcast_to(turn, q.shape)
        mends = np.broadcast_to(quat_from_rotation(self.C[:3, :3]), q.shape)
        turned = quat_multiply(quat_multiply(turns, q), mends)
        moved = points @ self.M[:3, :3].T + self.M[:3, 3]
        return np.concatenate([moved, turned], axis=-1)


def pose_of(values: Seven) -> Pose:
    """``[4, 4]`` of one pose ``[7]``."""
    return pose(rotation_from_quat(values[3:]), values[:3])


def moved_frame(before: Seven, after: Seven, *, level: bool) -> Pose:
    """``M`` that takes the pose ``before [7]`` of an object to ``after [7]``.

    ``level``: turned about the vertical alone, as a tool that cannot tilt follows it.
    """
    if not level:
        return pose_of(after) @ inverse(pose_of(before))
    R = rotation_from_quat(after[3:]) @ rotation_from_quat(before[3:]).T
    return about(rot_z(yaw_of(R)), before, after)


def about(rotation: Rotation, before: Seven, after: Seven) -> Pose:
    """``M`` with the rotation given that takes the place of ``before [7]`` to that of ``after``."""
    return pose(rotation, after[:3] - rotation @ before[:3])


def mended_grasp(
    tool: Seven, held: Seven, tool_now: Seven, held_now: Seven, *, level: bool
) -> Pose:
    """``C`` that lets the held object, not the tool, follow what was recorded: the object lies in
    the hand otherwise than it did (``tool``, ``held`` ``[7]`` recorded, ``*_now`` as they are).
    """
    then = inverse(pose_of(tool)) @ pose_of(held)
    now = inverse(pose_of(tool_now)) @ pose_of(held_now)
    C = then @ inverse(now)
    return pose(rot_z(yaw_of(C[:3, :3])), C[:3, 3]) if level else C


@dataclass(frozen=True, slots=True)
class Pace:
    """The longest step per tick: of the place [m] and of the attitude [rad]."""

    metres: float
    radians: float

    @staticmethod
    def of(way: Way) -> Pace:
        """The fastest step of a way ``[n, 7]``."""
        lengths, angles = steps(way)
        return Pace(float(lengths.max(initial=0.0)), float(angles.max(initial=0.0)))

    def at_least(self, metres: float, radians: float) -> Pace:
        """Not slower than this: a way that never turned says nothing of turns."""
        return Pace(max(self.metres, metres), max(self.radians, radians))


def steps(way: OtherWay) -> tuple[Floats, Floats]:
    """How far ``[n - 1]`` [m] and by which angle ``[n - 1]`` [rad] a way ``[n, 7]`` goes on."""
    lengths = np.linalg.norm(np.diff(way[:, :3], axis=0), axis=1)
    # The chord between two quaternions is accurate near zero; q and -q are the same attitude.
    a, b = way[:-1, 3:], way[1:, 3:]
    chords = np.minimum(np.linalg.norm(b - a, axis=1), np.linalg.norm(b + a, axis=1))
    return lengths, 4.0 * np.arcsin(np.clip(chords / 2.0, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Bridge:
    """Poses ``[m, 7]`` between two skills, and the recorded ticks ``[m]`` that they stem from."""

    way: Way
    ticks: Floats


def bridge(
    way: OtherWay, first: int, last: int, before: Transfer, after: Transfer, pace: Pace
) -> Bridge:
    """What lies between tick ``first`` of ``way [T, 7]``, which is carried over by ``before``, and
    tick ``last``, by ``after``; neither of them is in it.

    It takes the recorded time in proportion to its length, and longer where a step would be faster
    than ``pace``.
    """

    def joined(intervals: int) -> Way:
        """So many intervals, the poses at both ends included: ``[intervals + 1, 7]``."""
        share = np.arange(intervals + 1) / intervals
        recorded = sampled(way, first + (last - first) * share)
        eased = share * share * (3.0 - 2.0 * share)
        return blend("pose", before.apply(recorded), after.apply(recorded), eased)

    recorded = last - first
    length = float(steps(way[first : last + 1])[0].sum())
    intervals = recorded
    if length > _STILL_M:
        moved = float(steps(joined(recorded))[0].sum())
        intervals = max(1, round(recorded * moved / length))
    for _ in range(_TRIES):
        metres, radians = steps(joined(intervals))
        over = max(float(metres.max()) / pace.metres, float(radians.max()) / pace.radians)
        if over <= _SLACK:
            break
        intervals = max(intervals + 1, math.ceil(intervals * over))
    ticks = first + recorded * np.arange(1, intervals) / intervals
    return Bridge(joined(intervals)[1:-1], ticks)


def sampled(way: OtherWay, ticks: Floats) -> Way:
    """A way ``[T, 7]`` at ``ticks [n]``, which may lie between two of its own."""
    low = np.floor(ticks).astype(np.int64)
    high = np.minimum(low + 1, len(way) - 1)
    return blend("pose", way[low], way[high], ticks - low)
