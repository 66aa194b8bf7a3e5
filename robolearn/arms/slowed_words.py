"""Says in words what slows an arm, and which joint it is about."""

from __future__ import annotations

import math

import numpy as np

from robolearn.arms.differential import smallest_gradient
from robolearn.arms.kinematics import SerialArm
from robolearn.arms.shapes import Joints
from robolearn.arms.slowing import Slowed
from robolearn.arms.tool_kinematics import ToolKinematics

# Of a gradient: below this share of its square no single joint is the one to bend.
_ONE_JOINT = 0.5


def slowed_words(slowed: Slowed, kinematics: ToolKinematics, q: Joints) -> str:
    """What slows the arm at ``q [dof]`` [rad], and the joint that it is about."""
    about = ""
    if slowed is Slowed.SINGULARITY:
        about = _singular_joint(kinematics, q)
    elif slowed is Slowed.JOINT_LIMIT:
        about = _limited_joint(kinematics.arm, q)
    return f"{slowed.words} ({about})" if about else slowed.words


def _singular_joint(kinematics: ToolKinematics, q: Joints) -> str:
    """The joint that would lead out, where it is one alone; "" where it is the arm's whole shape,
    as of one that is stretched out.
    """
    J = kinematics.pose_jacobian(q)[1]
    U, _, Vt = np.linalg.svd(J, full_matrices=False)
    gradient = smallest_gradient(J, U[:, -1].copy(), Vt[-1].copy())
    joint = int(np.argmax(np.abs(gradient)))
    if not gradient[joint] ** 2 > _ONE_JOINT * float(gradient.dot(gradient)):
        return ""
    return f"{_name(kinematics.arm, joint)} at {_degrees(float(q[joint]))} deg"


def _limited_joint(arm: SerialArm, q: Joints) -> str:
    low, high = arm.bounds
    room = np.minimum(q - low, high - q)
    joint = int(np.argmin(room))
    return f"{_name(arm, joint)} {_degrees(float(room[joint]))} deg from its end"


def _name(arm: SerialArm, joint: int) -> str:
    return arm.joint_names[joint].replace("_", " ")


def _degrees(angle: float) -> str:
    return str(round(math.degrees(math.remainder(angle, 2.0 * math.pi))))
