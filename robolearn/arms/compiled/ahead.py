"""Compiles everything ahead of the first arm that is driven, which else waits for it."""

from __future__ import annotations

import numpy as np

from robolearn.arms.collision import CollisionModel
from robolearn.arms.compiled.gates import first_broken
from robolearn.arms.differential import smallest_gradient
from robolearn.arms.joint_path import JointPath
from robolearn.arms.kinematics import pose_difference, track
from robolearn.arms.models import CAPSULES, UR5E
from robolearn.arms.tool_drive import ToolDrive, joint_limits
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.arms.tool_path import ToolPathLimits


def compile_all() -> None:
    """Make one of each that is compiled when it is made, and call the rest."""
    kinematics = ToolKinematics(UR5E, np.eye(4), np.eye(4))
    limits = ToolPathLimits((-1.0, -1.0, 0.0), (1.0, 1.0, 1.5))
    drive = ToolDrive(kinematics, limits, 0.002)
    JointPath(joint_limits(kinematics, limits), 0.002, 1, limits.natural_frequency)
    T, J = kinematics.pose_jacobian(drive.q)
    smallest_gradient(J, J[:, 0], J[0])
    pose_difference(T, T)
    track(UR5E, T, drive.q, tolerance=1e-6, iterations=1)
    CollisionModel(UR5E, CAPSULES[UR5E.name])
    first_broken(np.zeros((4, 6)), np.zeros((2, 6)), drive.q)
