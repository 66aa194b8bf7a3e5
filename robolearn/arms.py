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

# Franka Emika, "Robot and interface specifications" (Franka Control Interface documentation):
# Denavit-Hartenberg parameters (Craig's convention), joint limits on position, speed and torque,
# flange 107 mm along z of the last frame. Masses, centres of mass and inertias: identified by
# Gaz et al., "Dynamic identification of the Franka Emika Panda robot with retrieval of feasible
# parameters using penalty-based optimization", RA-L 2019, as published in frankaemika/franka_ros,
# franka_description (robots/common/inertial.yaml). The DH rows are (a, d, alpha).
_QUARTER = 0.5 * math.pi
PANDA = SerialArm(
    name="panda",
    convention="modified",
    joint_names=tuple(f"joint{i}" for i in range(1, 8)),
    links=(
        Link(
            *(0.0, 0.333, 0.0, 4.970684),
            com=(0.003875, 0.002081, -0.04762),
            inertia=(0.70337, 0.70661, 0.009117, -0.000139, 0.006772, 0.019169),
        ),
        Link(
            *(0.0, 0.0, -_QUARTER, 0.646926),
            com=(-0.003141, -0.02872, 0.003495),
            inertia=(0.007962, 0.02811, 0.025995, -0.003925, 0.010254, 0.000704),
        ),
        Link(
            *(0.0, 0.316, _QUARTER, 3.228604),
            com=(0.027518, 0.039252, -0.066502),
            inertia=(0.037242, 0.036155, 0.01083, -0.004761, -0.011396, -0.012805),
        ),
        Link(
            *(0.0825, 0.0, _QUARTER, 3.587895),
            com=(-0.05317, 0.104419, 0.027454),
            inertia=(0.025853, 0.019552, 0.028323, 0.007796, -0.001332, 0.008641),
        ),
        Link(
            *(-0.0825, 0.384, -_QUARTER, 1.225946),
            com=(-0.011953, 0.041065, -0.038437),
            inertia=(0.035549, 0.029474, 0.008627, -0.002117, -0.004037, 0.000229),
        ),
        Link(
            *(0.0, 0.0, _QUARTER, 1.666555),
            com=(0.060149, -0.014117, -0.010517),
            inertia=(0.001964, 0.004354, 0.005433, 0.000109, -0.001158, 0.000341),
        ),
        Link(
            *(0.088, 0.0, _QUARTER, 0.735522),
            com=(0.010517, -0.004252, 0.061597),
            inertia=(0.012516, 0.010027, 0.004815, -0.000428, -0.001196, -0.000741),
        ),
    ),
    low=(-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973),
    high=(2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973),
    max_speed=(2.175, 2.175, 2.175, 2.175, 2.61, 2.61, 2.61),
    max_torque=(87.0, 87.0, 87.0, 87.0, 12.0, 12.0, 12.0),
    flange=(0.0, 0.0, 0.107, 0.0, 0.0, 0.0),
)
ARMS: dict[str, SerialArm] = {arm.name: arm for arm in (UR5E, PANDA)}
