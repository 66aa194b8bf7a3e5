"""Names what kernels are handed: limits and state of each, arrays and numbers that never change
their kind. Without numba, so that who only makes them need not wait for it.
"""

from __future__ import annotations

from typing import NamedTuple

from robolearn.arms.shapes import InverseJacobian, Jacobian, Joints, Twist
from robolearn.geometry import Pose
from robolearn.shapes import FloatRows, Floats, Index


class Chain(NamedTuple):
    """Of an arm and its tool. A frame is the columns of a pose without its last row ``[12]``: x, y
    and z axis, place.
    """

    # Of the base, and of the tip in the last link.
    start: Floats
    end: Floats
    # ``[dof, 4]`` or ``[dof, 13]``.
    links: FloatRows


class Capsules(NamedTuple):
    """Of an arm's links and its surroundings: ``link [n]`` of each (0: base), ``start`` and ``way``
    to the end ``[n, 3]`` in its frame, ``square [n]`` of the way's length.

    Of every pair ``[m]`` the two, and both radii together; of those that keep off the table ``[k]``
    which, and the height of its top with the radius; ``normal [3]`` of the table.
    """

    link: Index
    start: FloatRows
    way: FloatRows
    square: Floats
    one: Index
    two: Index
    reach: Floats
    above: Index
    over: Floats
    normal: Floats


class JointBounds(NamedTuple):
    """Per joint ``[n]``, and of the law. ``change``: of speed in a period, ``brake``: of it, what
    plans to stop count on.
    """

    low: Joints
    high: Joints
    speed: Joints
    change: Joints
    brake: Joints
    period_s: float
    # With a = K d - D v.
    k: float
    d: float
    # From position, speed and the speed after a period to its rows' positions, then their speeds
    # ``[2 rows, 3]``.
    basis: FloatRows


class JointState(NamedTuple):
    """Positions and speeds ``[n]`` of the path, and of what is sent: their mean, if that is of more
    than one row ``[window, 2 n]``.
    """

    q: Joints
    qd: Joints
    sent: Floats
    newest: FloatRows
    next: Index


class StepBounds(NamedTuple):
    """Per joint ``[dof]``, then of the tool, then as ``Singularity`` has them."""

    low: Joints
    high: Joints
    speed: Joints
    acceleration: Joints
    travel: float
    turn: float
    damped: float
    slow: float
    stop: float
    damping: float


class Norms(NamedTuple):
    """Of a vector: speed, change of speed in a period, and the part of it that plans to stop count
    on.
    """

    speed: float
    change: float
    brake: float


class PathBounds(NamedTuple):
    """Of the law (a = K d - D v), of travel and turning, and of the workspace; an axis that brakes
    before a wall sheds ``shed`` of its speed per period.
    """

    period_s: float
    k: float
    d: float
    travel: Norms
    turn: Norms
    shed: float
    low: Floats
    high: Floats


class PathState(NamedTuple):
    """``now``: place, quaternion, speed and turning of the path ``[13]``; ``goal``: place and
    quaternion ``[7]``. What is told, ``T [4, 4]`` and ``twist [6]``, is their mean, if that is of
    more than one row ``[window, 13]``.
    """

    now: Floats
    goal: Floats
    T: Pose
    twist: Twist
    newest: FloatRows
    next: Index


class DriveBounds(NamedTuple):
    """Of everything that leads the tool: its speeds [m/s], [rad/s] and what they may change by in a
    period.
    """

    chain: Chain
    path: PathBounds
    step: StepBounds
    joints: JointBounds
    speed: float
    rotation: float
    change: float
    turn: float


class DriveState(NamedTuple):
    """The newest Jacobian and its damped inverse, what is told of the step, and flags."""

    path: PathState
    joints: JointState
    jacobian: Jacobian
    inverse: InverseJacobian
    told: Floats
    flags: Index
