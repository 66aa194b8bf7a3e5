"""Serial arms from Denavit-Hartenberg parameters: forward and inverse kinematics, Jacobian.

Standard (distal) convention: ``A_i = Rz(q_i) Tz(d_i) Tx(a_i) Rx(alpha_i)``. The UR inverse is
the closed form that follows from the three parallel axes 2, 3, 4 (as in Hawkins, "Analytic inverse
kinematics for the Universal Robots UR-5/UR-10 arms", 2013); everything else uses damped least
squares. The scalar code uses ``math`` because numpy's call overhead dominates at this size.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from robolearn.errors import DataError
from robolearn.geometry import rotvec_from_rotation

Array = NDArray[np.float64]

# Below this |sin q5| the UR's axes 4 and 6 are parallel, and q6 is free.
_WRIST_SINGULAR = 1e-7
# Numerical slack of the arc cosines at the border of the workspace.
_REACH_SLACK = 1e-9


@dataclass(frozen=True, slots=True)
class Link:
    """One link: its DH row (metres, radians) and its inertia in the DH frame of the same index.

    ``inertia`` is ``(ixx, iyy, izz, ixy, ixz, iyz)`` [kg m^2] about the centre of mass ``com`` [m].
    """

    a: float
    d: float
    alpha: float
    mass_kg: float
    com: tuple[float, float, float]
    inertia: tuple[float, float, float, float, float, float]


@dataclass(frozen=True, slots=True)
class SerialArm:
    """An arm with revolute joints. Positions [rad], speeds [rad/s], torques [N m]."""

    name: str
    links: tuple[Link, ...]
    joint_names: tuple[str, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    max_speed: tuple[float, ...]
    max_torque: tuple[float, ...]
    solver: Literal["ur", "dls"] = "dls"

    @property
    def dof(self) -> int:
        """Number of joints."""
        return len(self.links)

    def frames(self, q: Array) -> Array:
        """Poses ``[dof + 1, 4, 4]`` of the base and of every link's DH frame in the base frame."""
        out = np.empty((self.dof + 1, 4, 4))
        out[0] = np.eye(4)
        for i, (link, angle) in enumerate(zip(self.links, q.tolist(), strict=True)):
            out[i + 1] = out[i] @ dh_transform(link.a, link.d, link.alpha, angle)
        return out

    def fk(self, q: Array) -> Array:
        """``T_base_flange [4, 4]`` at joint positions ``q [dof]``."""
        return self.frames(q)[-1]

    def jacobian(self, q: Array) -> Array:
        """Geometric Jacobian ``[6, dof]`` (linear [m], then angular [rad]) in the base frame."""
        frames = self.frames(q)
        axes = frames[:-1, :3, 2]
        arms = frames[-1, :3, 3] - frames[:-1, :3, 3]
        out = np.empty((6, self.dof))
        out[0] = axes[:, 1] * arms[:, 2] - axes[:, 2] * arms[:, 1]
        out[1] = axes[:, 2] * arms[:, 0] - axes[:, 0] * arms[:, 2]
        out[2] = axes[:, 0] * arms[:, 1] - axes[:, 1] * arms[:, 0]
        out[3:] = axes.T
        return out

    def ik(self, T_base_flange: Array, q_near: Array) -> Array:
        """Joint positions ``[dof]`` that reach the pose, on the branch nearest to ``q_near``.

        Raises :class:`DataError` if the pose is out of reach or every solution breaks a limit.
        """
        if self.solver == "ur":
            return _ik_ur(self, T_base_flange, q_near)
        return ik_dls(self, T_base_flange, q_near)

    def within_limits(self, q: Array, margin: float = 0.0) -> bool:
        """True if every joint is at least ``margin`` [rad] inside its limits."""
        return bool(
            np.all(q >= np.array(self.low) + margin) and np.all(q <= np.array(self.high) - margin)
        )


def dh_transform(a: float, d: float, alpha: float, q: float) -> Array:
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


def ik_dls(
    arm: SerialArm,
    T_base_flange: Array,
    q_near: Array,
    *,
    tolerance: float = 1e-9,
    iterations: int = 200,
) -> Array:
    """Damped least squares from ``q_near`` (Levenberg-Marquardt after Sugihara, 2011).

    ``tolerance``: norm of the pose error (metres and radians together) at which it stops.
    Raises :class:`DataError` if it does not converge within the limits.
    """
    q = np.array(q_near, dtype=np.float64)
    low, high = np.array(arm.low), np.array(arm.high)
    error = np.empty(6)
    for _ in range(iterations):
        T = arm.fk(q)
        error[:3] = T_base_flange[:3, 3] - T[:3, 3]
        error[3:] = rotvec_from_rotation(T_base_flange[:3, :3] @ T[:3, :3].T)
        norm2 = float(error @ error)
        if norm2 < tolerance * tolerance:
            return q
        J = arm.jacobian(q)
        H = J.T @ J + (0.5 * norm2 + 1e-12) * np.eye(arm.dof)
        q = np.clip(q + np.linalg.solve(H, J.T @ error), low, high)
    raise DataError(
        f"{arm.name}: no configuration near {np.round(q_near, 3).tolist()} reaches "
        f"{_where(T_base_flange)} (remaining error {math.sqrt(float(error @ error)):.2g}); "
        "choose a pose within reach"
    )


def _ik_ur(arm: SerialArm, T_base_flange: Array, q_near: Array) -> Array:
    near = [float(v) for v in q_near]
    if not np.all(np.isfinite(T_base_flange)) or not all(map(math.isfinite, near)):
        raise DataError(f"{arm.name}: pose and q_near must be finite")
    best: list[float] | None = None
    best_cost = math.inf
    for q in _ur_branches(arm, T_base_flange, near[5]):
        candidate = _unwrap(q, near, arm.low, arm.high)
        if candidate is None:
            continue
        cost = sum((a - b) * (a - b) for a, b in zip(candidate, near, strict=True))
        if cost < best_cost:
            best, best_cost = candidate, cost
    if best is None:
        raise DataError(
            f"{arm.name}: {_where(T_base_flange)} is out of reach or outside the joint limits; "
            "choose a pose within reach"
        )
    return np.array(best)


def _ur_branches(arm: SerialArm, T: Array, free_q6: float) -> list[tuple[float, ...]]:
    """All (up to eight) closed-form solutions, angles not yet unwrapped."""
    (xx, yx, zx, px), (xy, yy, zy, py), (xz, yz, zz, pz), _ = T.tolist()
    links = arm.links
    d1, a2, a3 = links[0].d, links[1].a, links[2].a
    d4, d5, d6 = links[3].d, links[4].d, links[5].d
    wx, wy = px - d6 * zx, py - d6 * zy
    radius = math.hypot(wx, wy)
    if radius < abs(d4) * (1.0 - _REACH_SLACK):
        return []
    bearing, swing = math.atan2(wy, wx) + math.pi / 2, math.acos(min(1.0, d4 / radius))
    out: list[tuple[float, ...]] = []
    for q1 in (bearing + swing, bearing - swing):
        c1, s1 = math.cos(q1), math.sin(q1)
        c5 = (px * s1 - py * c1 - d4) / d6
        if abs(c5) > 1.0 + _REACH_SLACK:
            continue
        x6, y6 = xx * s1 - xy * c1, yx * s1 - yy * c1
        # atan2 keeps full precision near the wrist singularity, where acos would lose half.
        s5 = math.hypot(x6, y6)
        for sign in (1.0, -1.0):
            q5 = math.atan2(sign * s5, c5)
            q6 = math.atan2(-sign * y6, sign * x6) if s5 > _WRIST_SINGULAR else free_q6
            c6, s6 = math.cos(q6), math.sin(q6)
            z4x, z4y, z4z = -(s6 * xx + c6 * yx), -(s6 * xy + c6 * yy), -(s6 * xz + c6 * yz)
            q234 = math.atan2(z4x * c1 + z4y * s1, -z4z)
            u = c1 * (wx - d5 * z4x) + s1 * (wy - d5 * z4y)
            v = pz - d6 * zz - d5 * z4z - d1
            c3 = (u * u + v * v - a2 * a2 - a3 * a3) / (2.0 * a2 * a3)
            if abs(c3) > 1.0 + _REACH_SLACK:
                continue
            elbow = math.acos(max(-1.0, min(1.0, c3)))
            for q3 in (elbow, -elbow):
                q2 = math.atan2(v, u) - math.atan2(a3 * math.sin(q3), a2 + a3 * math.cos(q3))
                out.append((q1, q2, q3, q234 - q2 - q3, q5, q6))
    return out


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


def _where(T: Array) -> str:
    x, y, z = T[:3, 3].tolist()
    return f"flange at ({x:.3f}, {y:.3f}, {z:.3f}) m"


# Universal Robots, "DH Parameters for calculations of kinematics and dynamics" (support article):
# DH parameters, masses and centres of mass. Inertia tensors, joint limits and torques:
# UniversalRobots/Universal_Robots_ROS2_Description, config/ur5e/physical_parameters.yaml and
# joint_limits.yaml (user manual 5.8 and "Max. joint torques"). The elbow's working range is half
# of the others' because the upper arm is in the way (same file).
_TURN = 2.0 * math.pi
UR5E = SerialArm(
    name="ur5e",
    solver="ur",
    joint_names=(
        "shoulder_pan",
        "shoulder_lift",
        "elbow",
        "wrist_1",
        "wrist_2",
        "wrist_3",
    ),
    links=(
        Link(
            *(0.0, 0.1625, math.pi / 2, 3.761),
            com=(0.0, -0.02561, 0.00193),
            inertia=(0.0070021, 0.00648091, 0.00657286, 7.3e-07, -1.053e-05, 0.00049994),
        ),
        Link(
            *(-0.425, 0.0, 0.0, 8.058),
            com=(0.2125, 0.0, 0.11336),
            inertia=(0.01505885, 0.33388086, 0.33247207, -5.4e-05, 5.63e-06, -1.81e-06),
        ),
        Link(
            *(-0.3922, 0.0, 0.0, 2.846),
            com=(0.15, 0.0, 0.0265),
            inertia=(0.00399632, 0.07879254, 0.0784851, -1.365e-05, 0.00137272, -6.6e-06),
        ),
        Link(
            *(0.0, 0.1333, math.pi / 2, 1.37),
            com=(0.0, -0.0018, 0.01634),
            inertia=(0.00165491, 0.00135962, 0.00126279, -2.82e-06, -4.38e-06, 0.00010157),
        ),
        Link(
            *(0.0, 0.0997, -math.pi / 2, 1.3),
            com=(0.0, 0.0018, 0.01634),
            inertia=(0.00135617, 0.00127827, 0.00096614, -2.74e-06, 4.44e-06, -5.048e-05),
        ),
        Link(
            *(0.0, 0.0996, 0.0, 0.365),
            com=(0.0, 0.0, -0.001159),
            inertia=(0.00018694, 0.00018908, 0.00025756, 6e-08, -1.7e-07, -9.2e-07),
        ),
    ),
    low=(-_TURN, -_TURN, -math.pi, -_TURN, -_TURN, -_TURN),
    high=(_TURN, _TURN, math.pi, _TURN, _TURN, _TURN),
    max_speed=(math.pi,) * 6,
    max_torque=(150.0, 150.0, 150.0, 28.0, 28.0, 28.0),
)
ARMS: dict[str, SerialArm] = {"ur5e": UR5E}
