"""Tells where a camera looks, of a simulated world or of a cell, for who drives by its picture."""

from __future__ import annotations

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_POSITION
from hardware.devices.camera_config import require_camera
from hardware.teleop.axes import Eye, heading_of
from hardware.teleop.targets import POSE, XY_TABLE
from robolearn.arms.models import named_arm
from robolearn.errors import ConfigError, SceneError
from robolearn.geometry import Rotation, inverse
from robolearn.types import Observation
from sim.contract import World


def world_eye(world: World, camera: str) -> Eye:
    """A camera of a simulated world, in the frame that the tool is told in.

    ConfigError for a camera that the world lacks, or whose place is not known.
    """
    told = [s.frame for s in world.spec.signals if s.name in (POSE, XY_TABLE) and s.frame]
    if not told:
        raise ConfigError(
            f"mapping.camera: '{world.spec.name}' does not say in which frame its tool is told"
            f" ({POSE} or {XY_TABLE} with a frame), so the camera '{camera}' cannot be told there"
        )

    def look(observation: Observation) -> Rotation:
        del observation
        return world.camera_pose(camera, told[0])[:3, :3]

    try:
        R = world.camera_pose(camera, told[0])[:3, :3]
    except SceneError as error:
        raise ConfigError(f"mapping.camera: {error}") from error
    # As a reset or the arm may move it, it is looked at every time.
    return Eye(look, heading_of(R), rides=False)


def cell_eye(cell: CellConfig, camera: str) -> Eye:
    """A camera of a cell, by its calibration (``cameras[].lens``), in the frame ``table``: of one
    on the flange as the arm's joints stand.

    ConfigError for a camera that the cell lacks, or that was never calibrated.
    """
    require_camera(camera, cell.cameras, key=f"cell '{cell.name}', mapping.camera")
    lens = next(c.lens for c in cell.cameras if c.stream.name == camera)
    if lens is None:
        raise ConfigError(
            f"cell '{cell.name}': where its camera '{camera}' is was never measured (it has no"
            " 'lens'), so nobody can drive in the axes of its picture: calibrate it (robolearn"
            " calibrate camera; one on the flange: calibrate handeye; docs/calibration.md)"
        )
    R_lens_camera, T_base_table = lens.T_frame_camera[:3, :3], cell.T_base_table
    if lens.frame == "table":
        return Eye(lambda _: R_lens_camera, heading_of(R_lens_camera), rides=False)
    if T_base_table is None:
        raise ConfigError(
            f"cell '{cell.name}' is commanded by joints and has no frame 'table', in which the"
            f" camera '{camera}' on its flange could be told"
        )
    arm, R_table_base = named_arm(cell.arm), inverse(T_base_table)[:3, :3]

    def look(observation: Observation) -> Rotation:
        q = observation.value(JOINT_POSITION).astype("float64")
        return R_table_base @ arm.fk(q)[:3, :3] @ R_lens_camera

    return Eye(look, None, rides=True)
