"""Writes the UFACTORY xArm7 with a parallel gripper as MJCF, drawn with capsules."""

from __future__ import annotations

from robolearn.arms.models import XARM7
from sim.robots.grippers import XARM_GRIPPER, ParallelGripper
from sim.robots.mjcf import ArmLook, Shape, arm_model

_WHITE, _GREY = "white", "grey"
LOOK = ArmLook(
    colours={_WHITE: ".95 .95 .95 1", _GREY: ".55 .57 .60 1"},
    base=(
        Shape((0.0, 0.0, 0.0), (0.0, 0.0, 0.17), 0.06, _WHITE, "cylinder"),
        Shape((0.0, 0.0, 0.0), (0.0, 0.0, 0.012), 0.08, _GREY, "cylinder"),
    ),
    links=(
        (Shape((0.0, 0.0, -0.09), (0.0, 0.0, 0.0), 0.055, _WHITE),),
        (
            Shape((0.0, 0.0, -0.05), (0.0, 0.0, 0.05), 0.055, _WHITE),
            Shape((0.0, 0.0, 0.0), (0.0, -0.2, 0.0), 0.05, _WHITE),
        ),
        (
            Shape((0.0, 0.0, -0.09), (0.0, 0.0, 0.0), 0.05, _WHITE, touch=True),
            Shape((0.0, 0.0, 0.0), (0.0525, 0.0, 0.0), 0.045, _WHITE),
        ),
        (
            Shape((0.0, 0.0, -0.05), (0.0, 0.0, 0.05), 0.05, _WHITE, touch=True),
            Shape((0.0, 0.0, 0.0), (0.0775, -0.13, 0.0), 0.045, _WHITE),
            Shape((0.0775, -0.13, 0.0), (0.0775, -0.2, 0.0), 0.045, _WHITE),
        ),
        (
            Shape((0.0, 0.0, -0.14), (0.0, 0.0, -0.04), 0.045, _WHITE, touch=True),
            Shape((0.0, 0.0, -0.04), (0.0, 0.0, 0.0), 0.042, _GREY),
        ),
        (
            Shape((0.0, 0.0, -0.04), (0.0, 0.0, 0.04), 0.045, _WHITE, touch=True),
            Shape((0.0, 0.0, 0.0), (0.076, 0.0, 0.0), 0.042, _WHITE),
            Shape((0.076, 0.0, 0.0), (0.076, 0.06, 0.0), 0.04, _WHITE, touch=True),
        ),
        (Shape((0.0, 0.0, -0.03), (0.0, 0.0, 0.0), 0.038, _GREY, "cylinder"),),
    ),
    # Stiffness as google-deepmind/mujoco_menagerie uses it for this arm, twice at the wrist;
    # damping about critical with the arm half stretched. Rotor inertia is not published.
    stiffness=(3000.0, 3000.0, 2000.0, 2000.0, 1500.0, 1500.0, 1000.0),
    armature=(0.1, 0.1, 0.1, 0.1, 0.05, 0.05, 0.05),
    lead_s=0.04,
)


def xarm7_mjcf(gripper: ParallelGripper = XARM_GRIPPER) -> str:
    """The arm with a parallel gripper as a MuJoCo model (``xarm7.xml`` of the scenes)."""
    return arm_model(XARM7, LOOK, gripper.flange_lines(), gripper.sections())
