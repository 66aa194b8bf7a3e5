"""Writes the Franka Emika Panda with the Franka Hand as MJCF, drawn with capsules.

The capsules follow the coarse collision model of frankaemika/franka_ros (franka_description,
"self collision" capsules), slimmer where only drawn.
"""

from __future__ import annotations

from robolearn.arms.models import PANDA
from sim.robots.grippers import FRANKA_HAND, ParallelGripper
from sim.robots.mjcf import ArmLook, Shape, arm_model

_WHITE, _DARK = "white", "dark"
LOOK = ArmLook(
    colours={_WHITE: ".93 .94 .95 1", _DARK: ".28 .29 .31 1"},
    base=(
        Shape((0.0, 0.0, 0.0), (0.0, 0.0, 0.14), 0.065, _WHITE, "cylinder"),
        Shape((-0.09, 0.0, 0.06), (-0.05, 0.0, 0.06), 0.06, _WHITE),
        Shape((0.0, 0.0, 0.0), (0.0, 0.0, 0.01), 0.09, _DARK, "cylinder"),
    ),
    links=(
        (Shape((0.0, 0.0, -0.19), (0.0, 0.0, -0.05), 0.06, _WHITE),),
        (
            Shape((0.0, 0.0, -0.06), (0.0, 0.0, 0.06), 0.06, _WHITE),
            Shape((0.0, 0.0, 0.0), (0.0, -0.1, 0.0), 0.06, _WHITE),
            Shape((0.0, 0.0, -0.122), (0.0, 0.0, 0.122), 0.04, _DARK, "cylinder"),
        ),
        (
            Shape((0.0, 0.0, -0.20), (0.0, 0.0, -0.08), 0.06, _WHITE, touch=True),
            Shape((0.0, 0.0, -0.08), (0.0825, 0.0, 0.0), 0.052, _WHITE),
        ),
        (
            Shape((0.0, 0.0, -0.05), (0.0, 0.0, 0.05), 0.06, _WHITE, touch=True),
            Shape((0.0, 0.0, 0.0), (-0.0825, 0.08, 0.0), 0.05, _WHITE),
            Shape((0.0, 0.0, -0.112), (0.0, 0.0, 0.112), 0.04, _DARK, "cylinder"),
        ),
        (
            Shape((0.0, 0.0, -0.30), (0.0, 0.0, -0.20), 0.056, _WHITE, touch=True),
            Shape((0.0, 0.055, -0.22), (0.0, 0.065, -0.05), 0.036, _WHITE, touch=True),
            Shape((0.0, 0.065, -0.05), (0.0, 0.0, 0.0), 0.045, _WHITE),
        ),
        (
            Shape((0.0, 0.0, -0.07), (0.0, 0.0, 0.01), 0.05, _WHITE, touch=True),
            Shape((0.0, 0.0, 0.0), (0.088, 0.0, 0.0), 0.045, _WHITE),
        ),
        (
            Shape((0.0, 0.0, -0.04), (0.0, 0.0, 0.062), 0.042, _WHITE, touch=True),
            Shape((0.0, 0.0, 0.062), (0.0, 0.0, 0.107), 0.0315, _DARK, "cylinder"),
        ),
    ),
    # Stiffness as google-deepmind/mujoco_menagerie uses it for this arm; damping here is lower,
    # about critical with the arm half stretched, and its lag is cancelled by the set-points.
    # Rotor inertia is not published; 0.1 is of the order that other models use.
    stiffness=(4500.0, 4500.0, 3500.0, 3500.0, 2000.0, 2000.0, 2000.0),
    armature=(0.1,) * 7,
    lead_s=0.04,
)


def panda_mjcf(gripper: ParallelGripper = FRANKA_HAND) -> str:
    """The arm with a parallel gripper as a MuJoCo model (``panda.xml`` of the scenes)."""
    return arm_model(PANDA, LOOK, gripper.flange_lines(), gripper.sections())
