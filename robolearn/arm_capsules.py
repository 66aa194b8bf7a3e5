"""Capsules around the links of known arms, for distance checks (``robolearn/collision.py``).

``CAPSULES`` by arm; ``APART`` names pairs that cannot meet and are always near each other.
"""

from __future__ import annotations

from robolearn.arms import UR5E
from robolearn.collision import Capsule

_A2, _A3 = -UR5E.links[1].a, -UR5E.links[2].a

# UR5e: offsets of the housings from Universal_Robots_ROS2_Description, config/ur5e/
# physical_parameters.yaml (shoulder_offset 0.138, elbow_offset -0.131); radii about the housings of
# its drawn meshes, measured in steps of 5 mm.
_UR5E = (
    Capsule(0, (0.0, 0.0, 0.03), (0.0, 0.0, 0.06), 0.075, "base"),
    Capsule(1, (0.0, -0.06, 0.0), (0.0, 0.0, 0.0), 0.06, "shoulder"),
    Capsule(1, (0.0, 0.0, -0.02), (0.0, 0.0, 0.03), 0.06, "shoulder housing"),
    Capsule(2, (_A2, 0.0, 0.1), (_A2, 0.0, 0.16), 0.06, "upper arm housing"),
    Capsule(2, (_A2, 0.0, 0.138), (0.0, 0.0, 0.138), 0.055, "upper arm"),
    Capsule(3, (_A3, 0.0, 0.007), (0.0, 0.0, 0.007), 0.05, "forearm"),
    Capsule(4, (0.0, -0.06, 0.0), (0.0, 0.01, 0.0), 0.04, "wrist 1"),
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

CAPSULES: dict[str, tuple[Capsule, ...]] = {"ur5e": _UR5E, "panda": _PANDA}

APART: dict[str, tuple[tuple[str, str], ...]] = {
    # d5 keeps wrists 1 and 3 apart, d1 the base and the upper arm.
    "ur5e": (
        ("wrist 1", "wrist 3"),
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
}
