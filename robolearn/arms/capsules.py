"""Capsules around the links of known arms, for distance checks (``robolearn/arms/collision.py``).

``CAPSULES`` by arm; ``APART`` names pairs that cannot meet and are always near each other.
"""

from __future__ import annotations

from robolearn.arms.collision import Capsule
from robolearn.arms.models import UR5E

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
