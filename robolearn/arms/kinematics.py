"""Computes serial arms from Denavit-Hartenberg parameters: kinematics both ways, Jacobian.

The arms themselves are in ``robolearn/arms/models.py``. The UR inverse is the closed form that
follows from the three parallel axes 2, 3, 4 (as in Hawkins, "Analytic inverse kinematics for the
Universal Robots UR-5/UR-10 arms", 2013); everything else uses damped least squares. The scalar code
uses ``math`` because numpy's call overhead dominates at this size.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from robolearn.arms.compiled.forms import Chain
from robolearn.arms.shapes import Jacobian, JointRows, Joints, LinkPoses, Twist
from robolearn.errors import DataError
from robolearn.geometry import Pose, PoseRows, pose_from_rpy
from robolearn.shapes import Floats

# Below this |sin q5| the UR's axes 4 and 6 are parallel, and q6 is free.
_WRIST_SINGULAR = 1e-7
# Numerical slack of the arc cosines at the border of the workspace.
_REACH_SLACK = 1e-9


Convention = Literal["standard", "modified"]
Six = tuple[float, float, float, float, float, float]
NOWHERE: Six = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Link:
    """One link: its DH row (metres, radians) and its inertia in the link's frame.

    ``inertia`` is ``(ixx, iyy, izz, ixy, ixz, iyz)`` [kg m^2] about the centre of mass ``com`` [m].
    ``origin``: x, y, z [m], roll, pitch, yaw [rad] of the joint in the previous frame, as a URDF
    gives it, for arms without a DH table (the row is then zero, the convention ``modified``).
    """

    a: float
    d: float
    alpha: float
    mass_kg: float
    com: tuple[float, float, float]
    inertia: Six
    origin: Six = NOWHERE


@dataclass(frozen=True, slots=True)
class SerialArm:
    """An arm with revolute joints. Positions [rad], speeds [rad/s], torques [N m].

    ``standard``: ``A_i = Rz(q_i) Tz(d_i) Tx(a_i) Rx(alpha_i)``; joint i turns about z of frame
    i - 1. ``modified`` (Craig): ``A_i = O_i Rx(alpha_i) Tx(a_i) Rz(q_i) Tz(d_i)``, ``O_i`` from
    :attr:`Link.origin`; joint i turns about z of frame i. ``flange``: x, y, z [m], roll, pitch,
    yaw [rad] of the flange in the last frame. ``bounds``: ``low`` and ``high`` as arrays ``[dof]``.
    """

    name: str
    links: tuple[Link, ...]
    joint_names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    max_speed: tuple[float, ...]
    max_torque: tuple[float, ...]
    solver: Literal["ur", "dls"] = "dls"
    convention: Convention = "standard"
    flange: Six = NOWHERE
    # A link's transform is ``C + cos(q) X + sin(q) Y``; the three ``[dof, 4, 4]`` are constants.
    _terms: tuple[PoseRows, PoseRows, PoseRows] = field(init=False, repr=False, compare=False)
    _T_last_flange: Pose = field(init=False, repr=False, compare=False)
    bounds: tuple[Joints, Joints] = field(init=False, repr=False, compare=False)
    # From the base to the flange, as kernels take it.
    chain: Chain = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        terms = np.array([_terms(link, self.convention) for link in self.links])
        object.__setattr__(self, "_terms", (terms[:, 0], terms[:, 1], terms[:, 2]))
        object.__setattr__(self, "_T_last_flange", pose_from_rpy(self.flange))
        limits = (np.array(v, dtype=np.float64) for v in (self.low, self.high))
        object.__setattr__(self, "bounds", tuple(limits))
        object.__setattr__(self, "chain", self._chain())

    def _chain(self) -> Chain:
        if self.convention == "standard":
            rows = [(k.a, k.d, math.cos(k.alpha), math.sin(k.alpha)) for k in self.links]
        else:
            rows = [(k.d, *_numbers(_before(k))) for k in self.links]
        links = np.array(rows, dtype=np.float64)
        return Chain(_numbers(np.eye(4)), _numbers(self._T_last_flange), links)

    def chain_between(self, T_start: Pose, T_end: Pose) -> Chain:
        """:attr:`chain` with the base at ``T_start [4, 4]``, to a tip at ``T_end [4, 4]`` in the
        last link.
        """
        return self.chain._replace(start=_numbers(T_start), end=_numbers(T_end))

    @property
    def dof(self) -> int:
        """Number of joints."""
        return len(self.links)

    @property
    def flange_in_last(self) -> Pose:
        """``T_last_flange [4, 4]``: the flange in the last link's frame."""
        return self._T_last_flange

    def frames(self, q: Joints) -> LinkPoses:
        """Poses ``[dof + 1, 4, 4]`` of the base and of every link's frame in the base frame."""
        angles = q.tolist()
        c = np.array([math.cos(v) for v in angles])[:, None, None]
        s = np.array([math.sin(v) for v in angles])[:, None, None]
        fixed, along, across = self._terms
        local = fixed + c * along + s * across
        out = np.empty((self.dof + 1, 4, 4))
        out[0] = np.eye(4)
        for i in range(self.dof):
            np.matmul(out[i], local[i], out=out[i + 1])
        return out

    def fk(self, q: Joints) -> Pose:
        """``T_base_flange [4, 4]`` at joint positions ``q [dof]``."""
        return self.frames(q)[-1] @ self._T_last_flange

    def fk_rows(self, q: JointRows) -> PoseRows:
        """``T_base_flange [n, 4, 4]`` at many joint positions ``q [n, dof]`` at once."""
        fixed, along, across = self._terms
        c, s = np.cos(q)[:, :, None, None], np.sin(q)[:, :, None, None]
        local = fixed + c * along + s * across
        out = local[:, 0]
        for i in range(1, self.dof):
            out = out @ local[:, i]
        return out @ self._T_last_flange

    def jacobian(self, q: Joints) -> Jacobian:
        """Geometric Jacobian ``[6, dof]`` (linear [m], then angular [rad]) in the base frame."""
        return self.fk_jacobian(q)[1]

    def fk_jacobian(self, q: Joints) -> tuple[Pose, Jacobian]:
        """``T_base_flange`` and the Jacobian ``[6, dof]`` of the flange, at the cost of one."""
        frames = self.frames(q)
        T = frames[-1] @ self._T_last_flange
        of = frames[:-1] if self.convention == "standard" else frames[1:]
        axes = of[:, :3, 2]
        arms = T[:3, 3] - of[:, :3, 3]
        out = np.empty((6, self.dof))
        out[0] = axes[:, 1] * arms[:, 2] - axes[:, 2] * arms[:, 1]
        out[1] = axes[:, 2] * arms[:, 0] - axes[:, 0] * arms[:, 2]
        out[2] = axes[:, 0] * arms[:, 1] - axes[:, 1] * arms[:, 0]
        out[3:] = axes.T
        return T, out

    def ik(self, T_base_flange: Pose, q_near: Joints) -> Joints:
        """Joint positions ``[dof]`` that reach the pose, on the branch nearest to ``q_near``.

        Raises :class:`DataError` if the pose is out of reach or every solution breaks a limit.
        """
        if self.solver == "ur":
            return _ik_ur(self, T_base_flange, q_near)
        return ik_dls(self, T_base_flange, q_near)

    def within_limits(self, q: Joints, margin: float = 0.0) -> bool:
        """True if every joint is at least ``margin`` [rad] inside its limits."""
        return bool(
            np.all(q >= np.array(self.low) + margin) and np.all(q <= np.array(self.high) - margin)
        )


def _numbers(T: Pose) -> Floats:
    """``T [4, 4]`` as a frame ``[12]``: the columns of a pose without its last row."""
    return T[:3].T.flatten()


def dh_transform(a: float, d: float, alpha: float, q: float) -> Pose:
    """``A = Rz(q) Tz(d) Tx(a) Rx(alpha)`` as ``[4, 4]``."""
    c, s = math.cos(q), math.sin(q)
    ca, sa = math.cos(alpha), math.sin(alpha)
    return np.array(
        [
            [c, -s * ca, s * sa, a * c],
            [s, c * ca, -c * sa, a * s],
            [0.0, sa, ca, d],
            [0.0, 0.0, 0.0, 1.0],
        ]
    )


def _terms(link: Link, convention: Convention) -> tuple[Pose, Pose, Pose]:
    ca, sa = math.cos(link.alpha), math.sin(link.alpha)
    if convention == "standard":
        fixed = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0, sa, ca, link.d], [0, 0, 0, 1.0]])
        along = np.array([[1.0, 0, 0, link.a], [0, ca, -sa, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
        across = np.array([[0, -ca, sa, 0], [1.0, 0, 0, link.a], [0, 0, 0, 0], [0, 0, 0, 0]])
        return fixed, along, across
    before = _before(link)
    fixed, along, across = np.zeros((3, 4, 4))
    fixed[2, 2], fixed[2, 3], fixed[3, 3] = 1.0, link.d, 1.0
    along[0, 0] = along[1, 1] = 1.0
    across[0, 1], across[1, 0] = -1.0, 1.0
    return before @ fixed, before @ along, before @ across


def _before(link: Link) -> Pose:
    """``O Rx(alpha) Tx(a)``."""
    ca, sa = math.cos(link.alpha), math.sin(link.alpha)
    return pose_from_rpy(link.origin) @ np.array(
        [[1, 0, 0, link.a], [0, ca, -sa, 0], [0, sa, ca, 0], [0, 0, 0, 1.0]]
    )


def ik_dls(
    arm: SerialArm,
    T_base_flange: Pose,
    q_near: Joints,
    *,
    tolerance: float = 1e-9,
    iterations: int = 200,
    posture: Joints | None = None,
) -> Joints:
    """Damped least squares from ``q_near`` until the pose error is below ``tolerance``.

    ``tolerance``: norm of the pose error (metres and radians together). ``posture [dof]`` pulls
    the redundant freedom of an arm with more than six joints. Raises :class:`DataError` if it does
    not converge within the limits.
    """
    q, error = track(
        arm,
        T_base_flange,
        q_near,
        tolerance=tolerance,
        iterations=iterations,
        posture=posture,
    )
    if error < tolerance:
        return q
    raise DataError(
        f"{arm.name}: no configuration near {np.round(q_near, 3).tolist()} reaches "
        f"{_where(T_base_flange)} (remaining error {error:.2g}); choose a pose within reach"
    )


def track(
    arm: SerialArm,
    T_base_flange: Pose,
    q_near: Joints,
    *,
    tolerance: float,
    iterations: int,
    posture: Joints | None = None,
    pull: float = 0.1,
    accept: float = 0.0,
) -> tuple[Joints, float]:
    """The configuration nearest to the pose that damped least squares finds from ``q_near``.

    Levenberg-Marquardt after Sugihara (2011): damping by half the squared error, so it is fast
    near the goal and stable beyond the reach. Joints at a limit are taken out of the step that
    pushes them outwards. ``posture``: in every step the arm also moves by the share ``pull``
    towards it where that leaves the flange alone (null-space projection, Siciliano 1990).
    ``accept``: a step that begins with a smaller error, and meets no limit, is trusted without
    looking again; what remains is of second order (its size is estimated by the error's square).
    Returns ``q [dof]`` within the limits and the norm of the remaining pose error.
    """
    # Compiled, and numba loaded, where an arm is led to a pose.
    from robolearn.arms.compiled.inverse import Search, tracked

    near, rest = (
        np.array(v, dtype=np.float64) for v in (q_near, () if posture is None else posture)
    )
    if near.shape != (arm.dof,) or rest.shape not in {(0,), (arm.dof,)}:
        raise ValueError(f"expected {arm.dof} joint positions, got {q_near} and {posture}")
    goal = np.array(T_base_flange, dtype=np.float64, order="C")
    search = Search(float(tolerance), int(iterations), float(accept), float(pull))
    return tracked(arm.chain, goal, near, *arm.bounds, rest, search)


def pose_difference(T_goal: Pose, T_now: Pose) -> Twist:
    """Translation [m] and rotation vector [rad] ``[6]``, base axes, that lead from now to goal."""
    from robolearn.arms.compiled.chain import twist_between

    # Kernels are compiled for arrays in one piece that can be written to.
    goal, now = (np.array(T, dtype=np.float64, order="C") for T in (T_goal, T_now))
    return twist_between(goal, now)


def _ik_ur(arm: SerialArm, T_base_flange: Pose, q_near: Joints) -> Joints:
    near = [float(v) for v in q_near]
    if not np.all(np.isfinite(T_base_flange)) or not all(map(math.isfinite, near)):
        raise DataError(f"{arm.name}: pose and q_near must be finite")
    best: list[float] | None = None
    best_cost = math.inf
    for q, room in _ur_branches(arm, T_base_flange, near):
        candidate = _unwrap(q, near, arm.low, arm.high)
        if candidate is None:
            continue
        cost = sum((a - b) * (a - b) for a, b in zip(candidate, near, strict=True))
        if cost < best_cost:
            best, best_cost = candidate, cost
        if cost < room * room:
            break
    if best is None:
        raise DataError(
            f"{arm.name}: {_where(T_base_flange)} is out of reach or outside the joint limits; "
            "choose a pose within reach"
        )
    return np.array(best)


def _ur_branches(
    arm: SerialArm, T: Pose, near: Sequence[float]
) -> Generator[tuple[tuple[float, ...], float]]:
    """All (up to eight) closed-form solutions, angles not yet unwrapped, the one with ``near``'s
    shoulder, wrist and elbow first; each with its room: what is nearer to it than that [rad] is
    nearer to it than to any other.

    Another solution has another shoulder, the opposite wrist or the opposite elbow, so one of its
    joints is at least as far away as the closest of these three; half of that is the room.
    """
    (xx, yx, zx, px), (xy, yy, zy, py), (xz, yz, zz, pz), _ = T.tolist()
    links = arm.links
    d1, a2, a3 = links[0].d, links[1].a, links[2].a
    d4, d5, d6 = links[3].d, links[4].d, links[5].d
    wx, wy = px - d6 * zx, py - d6 * zy
    radius = math.hypot(wx, wy)
    if radius < abs(d4) * (1.0 - _REACH_SLACK):
        return
    bearing, swing = math.atan2(wy, wx) + math.pi / 2, math.acos(min(1.0, d4 / radius))
    shoulders = (bearing + swing, bearing - swing)
    if math.cos(shoulders[0] - near[0]) < math.cos(shoulders[1] - near[0]):
        shoulders = shoulders[::-1]
    wrist_up, elbow_up = math.sin(near[4]) >= 0.0, math.sin(near[2]) >= 0.0
    for q1 in shoulders:
        c1, s1 = math.cos(q1), math.sin(q1)
        c5 = (px * s1 - py * c1 - d4) / d6
        if abs(c5) > 1.0 + _REACH_SLACK:
            continue
        x6, y6 = xx * s1 - xy * c1, yx * s1 - yy * c1
        # atan2 keeps full precision near the wrist singularity, where acos would lose half.
        s5 = math.hypot(x6, y6)
        for sign in (1.0, -1.0) if wrist_up else (-1.0, 1.0):
            q5 = math.atan2(sign * s5, c5)
            q6 = math.atan2(-sign * y6, sign * x6) if s5 > _WRIST_SINGULAR else near[5]
            c6, s6 = math.cos(q6), math.sin(q6)
            z4x, z4y, z4z = -(s6 * xx + c6 * yx), -(s6 * xy + c6 * yy), -(s6 * xz + c6 * yz)
            q234 = math.atan2(z4x * c1 + z4y * s1, -z4z)
            u = c1 * (wx - d5 * z4x) + s1 * (wy - d5 * z4y)
            v = pz - d6 * zz - d5 * z4z - d1
            c3 = (u * u + v * v - a2 * a2 - a3 * a3) / (2.0 * a2 * a3)
            if abs(c3) > 1.0 + _REACH_SLACK:
                continue
            elbow = math.acos(max(-1.0, min(1.0, c3)))
            room = min(map(_to_half_turn, (swing, q5, elbow)))
            for q3 in (elbow, -elbow) if elbow_up else (-elbow, elbow):
                q2 = math.atan2(v, u) - math.atan2(a3 * math.sin(q3), a2 + a3 * math.cos(q3))
                yield (q1, q2, q3, q234 - q2 - q3, q5, q6), room


def _to_half_turn(angle: float) -> float:
    """Half of the way between an angle in [-pi, pi] and its opposite, the shorter way round."""
    return min(abs(angle), math.pi - abs(angle))


def _unwrap(
    q: Sequence[float], near: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> list[float] | None:
    """Add whole turns so that every angle is the one nearest to ``near`` within the limits."""
    turn = 2.0 * math.pi
    out: list[float] = []
    for angle, goal, lo, hi in zip(q, near, low, high, strict=True):
        value = angle + turn * round((goal - angle) / turn)
        if value > hi:
            value -= turn * math.ceil((value - hi) / turn)
        elif value < lo:
            value += turn * math.ceil((lo - value) / turn)
        if not lo <= value <= hi:
            return None
        out.append(value)
    return out


def _where(T: Pose) -> str:
    x, y, z = T[:3, 3].tolist()
    return f"flange at ({x:.3f}, {y:.3f}, {z:.3f}) m"
