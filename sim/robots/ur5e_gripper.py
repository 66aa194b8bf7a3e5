"""The UR5e with a parallel gripper as MJCF. Push-T has the arm with a round tool (``ur5e.py``)."""

from __future__ import annotations

from robolearn.arms.models import UR5E
from sim.robots.grippers import WIDE_GRIPPER, ParallelGripper
from sim.robots.mjcf import ArmLook, Shape, arm_model
from sim.robots.ur5e import ARMATURE, LEAD_S, SHAPES, STIFFNESS

# Housings of forearm and wrist collide, as capsules of the drawn cylinders.
_TOUCHING = ("metal",)
LOOK = ArmLook(
    colours={"metal": ".80 .82 .84 1", "cap": ".36 .52 .66 1", "dark": ".22 .24 .27 1"},
    base=(
        Shape((0.0, 0.0, 0.006), (0.0, 0.0, 0.099), 0.06, "metal", "cylinder"),
        Shape((0.0, 0.0, 0.0), (0.0, 0.0, 0.012), 0.0755, "dark", "cylinder"),
    ),
    links=tuple(
        tuple(
            Shape(
                s.start, s.end, s.radius, s.look, "cylinder", touch=i >= 2 and s.look in _TOUCHING
            )
            for s in shapes
        )
        for i, shapes in enumerate(SHAPES)
    ),
    stiffness=STIFFNESS,
    armature=ARMATURE,
    lead_s=LEAD_S,
)


def ur5e_gripper_mjcf(gripper: ParallelGripper = WIDE_GRIPPER) -> str:
    """The arm with a parallel gripper as a MuJoCo model (``ur5e.xml`` of the scenes)."""
    return arm_model(UR5E, LOOK, gripper.flange_lines(), gripper.sections())
