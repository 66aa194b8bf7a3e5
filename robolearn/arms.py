"""The arms that this project knows: kinematics, inertias and limits, each with its source."""

from __future__ import annotations

import math

from robolearn.kinematics import Link, SerialArm

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
ARMS: dict[str, SerialArm] = {arm.name: arm for arm in (UR5E,)}
