"""Lists the arms that are known: kinematics, inertias, limits, capsules, and their sources.

``CAPSULES`` by arm, around its links; ``APART`` names pairs that cannot meet and are always near.
"""

from __future__ import annotations

import math

from robolearn.arms.collision import Capsule
from robolearn.arms.kinematics import Link, SerialArm
from robolearn.errors import ConfigError

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
# UFACTORY, xArm user manual: modified DH parameters; joint limits and speed (2.14 rad/s in
# xarm_description/config/xarm7/joint_limits.yaml, 180 deg/s in the manual's maximum). Torques:
# xarm_description (xarm7.urdf.xacro, effort). Masses and inertias: the manufacturer's xarm_ros,
# xarm_description, as converted in google-deepmind/mujoco_menagerie, ufactory_xarm7 (BSD-3).
_FULL = 0.99 * math.tau
XARM7 = SerialArm(
    name="xarm7",
    convention="modified",
    joint_names=tuple(f"joint{i}" for i in range(1, 8)),
    links=(
        Link(
            *(0.0, 0.267, 0.0, 2.382),
            com=(-0.0002, 0.02905, -0.01233),
            inertia=(0.005691, 0.004957, 0.003317, -1.579e-05, 5.125e-06, -0.0008734),
        ),
        Link(
            *(0.0, 0.0, -_QUARTER, 1.869),
            com=(0.00022, -0.12856, 0.01735),
            inertia=(0.009599, 0.003825, 0.007566, 1.541e-06, 5.56e-06, -0.003172),
        ),
        Link(
            *(0.0, 0.293, _QUARTER, 1.6383),
            com=(0.0466, -0.02463, -0.00768),
            inertia=(0.00311, 0.002645, 0.002662, 0.0003084, -0.0005845, 0.0003389),
        ),
        Link(
            *(0.0525, 0.0, _QUARTER, 1.7269),
            com=(0.07047, -0.11575, 0.012),
            inertia=(0.005889, 0.003597, 0.005432, 0.001371, 0.0008814, -0.001762),
        ),
        Link(
            *(0.0775, 0.3425, _QUARTER, 1.3203),
            com=(-0.00032, 0.01604, -0.026),
            inertia=(0.005347, 0.004978, 0.001362, 1.512e-05, -3.69e-07, -0.0002213),
        ),
        Link(
            *(0.0, 0.0, _QUARTER, 1.325),
            com=(0.06469, 0.03278, 0.02141),
            inertia=(0.001475, 0.001904, 0.002365, -0.000488, 0.0002953, 0.0001475),
        ),
        Link(
            *(0.076, 0.097, -_QUARTER, 0.17),
            com=(0.0, -0.00677, -0.01098),
            inertia=(9.3e-05, 5.87e-05, 0.000132, 0.0, 0.0, -3.6e-06),
        ),
    ),
    low=(-_FULL, -2.059, -_FULL, -0.19198, -_FULL, -1.69297, -_FULL),
    high=(_FULL, 2.0944, _FULL, 3.927, _FULL, math.pi, _FULL),
    max_speed=(2.14,) * 7,
    max_torque=(50.0, 50.0, 30.0, 30.0, 30.0, 20.0, 20.0),
)

# TheRobotStudio/SO-ARM100 (Apache-2.0), Simulation/SO101/so101_new_calib.urdf: joint origins,
# limits, masses and inertias. Servos: Feetech STS3215 data sheet (7.4 V: stall torque 19.5 kg cm,
# 0.222 s per 60 degrees). Five joints; the sixth servo moves the jaw (sim/robots/so101.py). The
# flange is that file's gripper frame (between the jaws' tips) with z out of the hand, y across.
_SERVO_NM, _SERVO_RAD_S = 1.91, 4.71
_NO_ROW = (0.0, 0.0, 0.0)
SO101 = SerialArm(
    name="so101",
    convention="modified",
    joint_names=("shoulder_pan", "shoulder_lift", "elbow_flex", "wrist_flex", "wrist_roll"),
    links=(
        Link(
            *_NO_ROW,
            mass_kg=0.100006,
            com=(-0.0307604, -1.66727e-05, -0.0252713),
            inertia=(8.3759e-05, 8.10403e-05, 2.39783e-05, 7.55525e-08, -1.16342e-06, 1.54663e-07),
            origin=(0.0207909, -0.0230745, 0.0948817, -math.pi, 0.0, _QUARTER),
        ),
        Link(
            *_NO_ROW,
            mass_kg=0.103,
            com=(-0.0898471, -0.00838224, 0.0184089),
            inertia=(
                4.08002e-05,
                0.000147318,
                0.000142487,
                -1.97819e-05,
                -4.03016e-08,
                8.97326e-09,
            ),
            origin=(-0.0303992, -0.0182778, -0.0542, -_QUARTER, -_QUARTER, 0.0),
        ),
        Link(
            *_NO_ROW,
            mass_kg=0.104,
            com=(-0.0980701, 0.00324376, 0.0182831),
            inertia=(2.87438e-05, 0.000159844, 0.00014529, 7.41152e-06, 1.26409e-06, -4.90188e-08),
            origin=(-0.11257, -0.028, 0.0, 0.0, 0.0, _QUARTER),
        ),
        Link(
            *_NO_ROW,
            mass_kg=0.079,
            com=(-0.000103312, -0.0386143, 0.0281156),
            inertia=(3.68263e-05, 2.5391e-05, 2.1e-05, 1.7893e-08, -5.28128e-08, 3.6412e-06),
            origin=(-0.1349, 0.0052, 0.0, 0.0, 0.0, -_QUARTER),
        ),
        Link(
            *_NO_ROW,
            mass_kg=0.087,
            com=(0.000213627, 0.000245138, -0.025187),
            inertia=(
                2.75087e-05,
                4.33657e-05,
                3.45059e-05,
                -3.35241e-07,
                -5.7352e-06,
                -5.17847e-08,
            ),
            origin=(0.0, -0.0611, 0.0181, _QUARTER, 0.0, math.pi),
        ),
    ),
    low=(-1.91986, -1.74533, -1.69, -1.65806, -2.79253),
    high=(1.91986, 1.74533, 1.69, 1.65806, 2.79253),
    max_speed=(_SERVO_RAD_S,) * 5,
    max_torque=(_SERVO_NM,) * 5,
    flange=(-0.0079, -0.000218121, -0.0981274, math.pi, 0.0, _QUARTER),
)
ARMS: dict[str, SerialArm] = {arm.name: arm for arm in (UR5E, PANDA, XARM7, SO101)}


def named_arm(name: str) -> SerialArm:
    """The arm of that name; ConfigError tells which there are."""
    if name not in ARMS:
        raise ConfigError(f"no kinematics for arm '{name}'; known: {sorted(ARMS)}")
    return ARMS[name]


# Capsules around the links of known arms, for distance checks (``robolearn/arms/collision.py``).
_A2, _A3 = -UR5E.links[1].a, -UR5E.links[2].a

# UR5e: offsets of the housings from Universal_Robots_ROS2_Description, config/ur5e/
# physical_parameters.yaml (shoulder_offset 0.138, elbow_offset -0.131); radii about the housings of
# its drawn meshes, measured in steps of 5 mm.
_UR5E = (
    Capsule(0, (0.0, 0.0, 0.03), (0.0, 0.0, 0.06), 0.075, "base"),
    Capsule(1, (0.0, -0.06, 0.0), (0.0, 0.03, 0.0), 0.06, "shoulder"),
    Capsule(1, (0.0, 0.0, -0.02), (0.0, 0.0, 0.03), 0.06, "shoulder housing"),
    Capsule(2, (_A2, 0.0, 0.1), (_A2, 0.0, 0.16), 0.06, "upper arm housing"),
    Capsule(2, (_A2, 0.0, 0.138), (0.0, 0.0, 0.138), 0.055, "upper arm"),
    Capsule(2, (0.0, 0.0, 0.11), (0.0, 0.0, 0.16), 0.06, "elbow"),
    Capsule(3, (_A3, 0.0, 0.0), (_A3, 0.0, 0.03), 0.058, "forearm housing"),
    Capsule(3, (_A3, 0.0, 0.007), (0.0, 0.0, 0.007), 0.05, "forearm"),
    Capsule(4, (0.0, -0.06, 0.0), (0.0, 0.01, 0.0), 0.04, "wrist 1"),
    Capsule(4, (0.0, 0.0, -0.025), (0.0, 0.0, 0.02), 0.038, "wrist 1 housing"),
    Capsule(5, (0.0, 0.0, -0.025), (0.0, 0.0, 0.022), 0.038, "wrist 2 housing"),
    Capsule(5, (0.0, 0.055, 0.0), (0.0, 0.0, 0.0), 0.04, "wrist 2"),
    Capsule(6, (0.0, 0.0, -0.04), (0.0, 0.0, -0.03), 0.038, "wrist 3"),
)

# Franka Panda: the capsules of the coarse self-collision model of frankaemika/franka_ros
# (franka_description, robots/common/franka_robot.xacro), in the frames of the DH table.
_PANDA = (
    Capsule(0, (-0.075, 0.0, 0.06), (0.045, 0.0, 0.06), 0.06, "base"),
    Capsule(1, (0.0, 0.0, -0.333), (0.0, 0.0, -0.05), 0.06, "link 1"),
    Capsule(2, (0.0, 0.0, -0.06), (0.0, 0.0, 0.06), 0.06, "link 2"),
    Capsule(3, (0.0, 0.0, -0.22), (0.0, 0.0, -0.07), 0.06, "link 3"),
    Capsule(4, (0.0, 0.0, -0.06), (0.0, 0.0, 0.06), 0.06, "link 4"),
    Capsule(5, (0.0, 0.0, -0.31), (0.0, 0.0, -0.21), 0.06, "link 5"),
    Capsule(5, (0.0, 0.08, -0.2), (0.0, 0.08, -0.06), 0.025, "forearm"),
    Capsule(6, (0.0, 0.0, -0.08), (0.0, 0.0, 0.01), 0.05, "link 6"),
    Capsule(7, (0.0, 0.0, -0.04), (0.0, 0.0, 0.1), 0.04, "link 7"),
)

# xArm7: fitted to the vertices of the manufacturer's meshes (xarm_description, as they come with
# robosuite), two capsules where a link bends; they cover every vertex.
_XARM7 = (
    Capsule(0, (0.0, 0.0, 0.02), (0.0, 0.0, 0.115), 0.07, "base"),
    Capsule(0, (-0.03, 0.0, 0.03), (-0.06, 0.0, 0.03), 0.04, "base connector"),
    Capsule(1, (0.0, 0.0, -0.101), (0.0, -0.016, -0.002), 0.052, "link 1"),
    Capsule(1, (0.0, 0.06, 0.0), (0.0, 0.012, 0.002), 0.053, "shoulder"),
    Capsule(2, (0.0, -0.006, 0.084), (0.0, -0.106, 0.073), 0.058, "upper arm"),
    Capsule(2, (0.0, -0.105, 0.01), (0.0, -0.16, 0.002), 0.058, "upper arm housing"),
    Capsule(3, (0.0, -0.002, -0.086), (0.005, 0.042, -0.027), 0.05, "link 3"),
    Capsule(3, (0.044, 0.03, -0.002), (0.05, -0.041, 0.003), 0.055, "elbow"),
    Capsule(4, (0.001, -0.004, 0.078), (0.094, -0.103, 0.061), 0.052, "forearm"),
    Capsule(4, (0.08, -0.074, 0.006), (0.076, -0.148, -0.001), 0.052, "forearm housing"),
    Capsule(5, (0.0, 0.0, -0.157), (0.001, 0.009, -0.146), 0.05, "link 5"),
    Capsule(5, (0.0, 0.036, -0.09), (0.0, 0.04, -0.002), 0.058, "wrist"),
    Capsule(6, (-0.003, 0.001, 0.019), (0.014, 0.001, 0.022), 0.049, "link 6"),
    Capsule(6, (0.075, -0.006, 0.001), (0.076, 0.05, 0.0), 0.048, "link 6 housing"),
    Capsule(7, (0.0, 0.0, -0.02), (0.0, 0.0, -0.015), 0.04, "link 7"),
)

# SO-101: fitted in the same way to the meshes of TheRobotStudio/SO-ARM100, Simulation/SO101. The
# moving jaw is not in it.
_SO101 = (
    Capsule(0, (0.021, 0.0, 0.044), (0.021, 0.009, 0.058), 0.064, "base"),
    Capsule(1, (-0.034, -0.001, -0.036), (-0.021, 0.0, -0.01), 0.04, "shoulder"),
    Capsule(1, (-0.007, -0.003, 0.042), (-0.044, 0.0, 0.034), 0.023, "shoulder bracket"),
    Capsule(2, (-0.116, -0.02, 0.018), (-0.126, 0.001, 0.018), 0.029, "elbow servo"),
    Capsule(2, (-0.078, 0.001, 0.019), (-0.008, -0.001, 0.018), 0.038, "upper arm"),
    Capsule(3, (-0.119, 0.0, 0.019), (-0.094, 0.001, 0.018), 0.035, "wrist servo"),
    Capsule(3, (-0.035, 0.002, 0.019), (-0.005, -0.001, 0.019), 0.036, "forearm"),
    Capsule(4, (0.0, -0.045, 0.028), (-0.002, -0.011, 0.018), 0.036, "wrist"),
    Capsule(5, (0.003, 0.0, -0.022), (-0.014, 0.0, -0.031), 0.037, "hand"),
    Capsule(5, (-0.021, 0.0, -0.066), (-0.013, 0.0, -0.098), 0.013, "fixed jaw"),
)

CAPSULES: dict[str, tuple[Capsule, ...]] = {
    "ur5e": _UR5E,
    "panda": _PANDA,
    "xarm7": _XARM7,
    "so101": _SO101,
}

APART: dict[str, tuple[tuple[str, str], ...]] = {
    # d5 keeps wrists 1 and 3 apart, d1 the base and the upper arm.
    "ur5e": (
        ("wrist 1", "wrist 3"),
        ("wrist 1 housing", "wrist 3"),
        ("wrist 2", "tool"),
        ("base", "upper arm housing"),
        ("base", "upper arm"),
    ),
    # Links two apart whose axes meet: franka_ros disables the same pairs.
    "panda": (
        ("base", "link 2"),
        ("link 1", "link 3"),
        ("link 2", "link 4"),
        ("link 3", "link 5"),
        ("link 4", "link 6"),
        ("link 5", "link 7"),
        ("forearm", "link 7"),
        ("link 3", "forearm"),
    ),
    # Never nearer to each other than they are at the joints' limits, and always near.
    "xarm7": (
        ("base", "upper arm housing"),
        ("forearm housing", "link 6 housing"),
        ("link 5", "link 7"),
        ("wrist", "link 7"),
    ),
    "so101": (("base", "upper arm"), ("wrist servo", "hand")),
}
