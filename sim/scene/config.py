"""Describes the scene package: a folder that fully describes a simulated workcell.

    scene.yaml   schema version; robot, signals, actions, control, physics, cameras, task, reset
                 distribution, provenance
    scene.xml    MJCF
    ...          assets that the MJCF names

Hand-made, identified and reconstructed scenes look the same. ``docs/scene_format.md`` describes
every key; ``sim.scene.load`` reads a package and validates it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import mujoco
import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import XY, Pose, pose
from robolearn.spec import ActionMode

PlaneRotation = Float64[NDArray[np.float64], "2 2"]

SignalKind = Literal[
    "site_xy",
    "body_pose_xy",
    "site_pose",
    "body_pose",
    "joint_position",
    "joint_velocity",
    "joint_sum",
    "given",
    "derived",
]
# Kinds that read nothing of the model: a goal that the condition names, a verdict of the task.
UNPHYSICAL = ("given", "derived")
# Kinds that read one object in a frame.
FRAMED = ("site_xy", "body_pose_xy", "site_pose", "body_pose")


@dataclass(frozen=True, slots=True)
class RobotConfig:
    """Which machine the scene models."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class SignalConfig:
    """A signal and where it comes from.

    ``kind``: ``site_xy`` [m, m] and ``body_pose_xy`` [m, m, rad] in the plane of ``frame``;
    ``site_pose`` and ``body_pose`` (x, y, z [m], qw, qx, qy, qz) in ``frame``; ``joint_position``
    and ``joint_velocity`` of joints; ``joint_sum``: the sum of joints, such as the opening of two
    fingers, times ``scale`` plus ``offset``. ``of`` names the site, the body, or the joints.
    ``positive``: of the two quaternions of a pose the one where this component is not negative is
    read (``qx`` for a tool that points down: its ``qw`` is about 0). ``noise``: standard deviation
    per component, or one for all; of a pose, of its position [m] and rotation [rad]. ``delay_s``:
    how long after its capture a sample arrives.
    """

    name: str
    kind: SignalKind
    of: tuple[str, ...]
    rate_hz: float
    frame: str = ""
    unit: str = ""
    components: tuple[str, ...] = ()
    angular: tuple[int, ...] = ()
    positive: Literal["qw", "qx", "qy", "qz"] = "qw"
    scale: float = 1.0
    offset: float = 0.0
    noise: tuple[float, ...] = ()
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ActionConfig:
    """A commanded signal, its meaning and its range."""

    name: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    unit: str = ""
    mode: ActionMode = "absolute"
    frame: str = ""


@dataclass(frozen=True, slots=True)
class PhysicsConfig:
    """``timestep_s`` repeats the MJCF's; beyond ``max_speed`` [m/s, rad/s] the state is absurd."""

    timestep_s: float
    max_speed: float = 1000.0


@dataclass(frozen=True, slots=True)
class CameraConfig:
    """A camera of the MJCF. The one called ``top`` is used for pictures and videos.

    With a ``signal`` the env offers its pictures at ``rate_hz`` (0: the control rate), drawn with
    ``quality``. ``intrinsics``: fx, fy, cx, cy [px] of a calibrated camera; without, the MJCF's.
    ``background``: a photograph of the package, over which the bodies of ``foreground`` and what
    hangs on them are drawn (without names: everything that can move). ``background_depth``: the
    photograph's depth, 16 bits of millimetres, 0 where nothing was measured: what is photographed
    nearer than what is drawn hides it.
    """

    name: str
    width: int = 256
    height: int = 256
    signal: str = ""
    rate_hz: float = 0.0
    quality: Literal["fast", "plain", "full"] = "fast"
    intrinsics: tuple[float, ...] = ()
    background: str = ""
    background_depth: str = ""
    foreground: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskConfig:
    """A task of ``sim.tasks`` and its parameters."""

    name: str
    params: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class ResetConfig:
    """``distribution`` is one that the task knows; ``settable`` are the signals it may place."""

    distribution: str
    settable: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ProvenanceConfig:
    """Where the scene comes from; ``details`` holds plain values (parameters, residuals)."""

    kind: Literal["hand-made", "identified", "reconstructed", "imported"]
    source: str = ""
    licence: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def reconstructed(self) -> dict[str, Any]:
        """What a reconstruction wrote about the cell, also of a scene whose arm was identified
        since, with what a person changed; {} of a scene that was never reconstructed.
        """
        if self.kind == "reconstructed":
            return self.details
        known: dict[str, Any] = self.details.get("reconstructed", {})
        return {**known, "by_hand": self.details.get("by_hand", {})} if known else {}


@dataclass(frozen=True, slots=True)
class Override:
    """What a person knows better than the MJCF of one body (``sim/scene/overrides.py``)."""

    # x, y, z [m] and a quaternion w, x, y, z in the table's frame.
    pose: tuple[float, ...] | None = None
    mass_kg: float | None = None
    # Sliding friction of its contacts, whatever it lies on.
    friction: float | None = None


@dataclass(frozen=True, slots=True)
class SupervisorConfig:
    """What a cell's supervisor would stop the robot for; an episode then ends as ``safety_stop``.

    ``max_tool_force_n``: the sum of the contact forces on everything behind an arm's last joint
    [N]; ``overload_s``: for so long it must be above that [s]; ``rate_hz``: how often it is looked
    at, the rate at which the cell's controller tells it.
    """

    max_tool_force_n: float
    overload_s: float = 0.02
    rate_hz: float = 100.0


@dataclass(frozen=True, slots=True)
class SceneConfig:
    """``scene.yaml``. ``control`` has a ``kind`` (see ``sim/control/planar.py``) and that kind's
    keys.

    ``frames`` maps frame names (``table``) to sites of the MJCF that do not move.
    ``control_delay_s``: set-points reach the actuators this much later, in whole physics steps;
    ``control_smoothing_s``: on the way a critically damped filter lags a ramp by this.
    ``supervisor``: what would stop the robot; None: nothing does. ``overrides``: by body, what
    replaces the MJCF's.
    """

    schema: int
    name: str
    robot: RobotConfig
    rate_hz: float
    physics: PhysicsConfig
    control: dict[str, Any]
    signals: tuple[SignalConfig, ...]
    actions: tuple[ActionConfig, ...]
    frames: dict[str, str]
    cameras: tuple[CameraConfig, ...]
    task: TaskConfig
    reset: ResetConfig
    provenance: ProvenanceConfig
    description: str = ""
    control_delay_s: float = 0.0
    control_smoothing_s: float = 0.0
    supervisor: SupervisorConfig | None = None
    overrides: dict[str, Override] = field(default_factory=dict[str, Override])

    @property
    def substeps(self) -> int:
        """Physics steps per control tick."""
        return round(1.0 / (self.rate_hz * self.physics.timestep_s))


@dataclass(frozen=True, slots=True)
class Scene:
    """A validated scene package. ``content_hash`` covers every file of the folder."""

    path: Path
    config: SceneConfig
    content_hash: str
    # What overrides and perturbations change before the model is compiled; files stay as they are.
    edits: tuple[Callable[[mujoco.MjSpec], None], ...] = ()

    @property
    def name(self) -> str:
        """The name under which results are filed."""
        return self.config.name

    def compile(self) -> mujoco.MjModel:
        """A fresh model; MuJoCo's automatic reset is off, so that divergence is seen."""
        try:
            model = self._model()
        except ValueError as error:
            raise SceneError(f"{self.path}/scene.xml: {' '.join(str(error).split())}") from error
        model.opt.disableflags |= int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
        return model

    def _model(self) -> mujoco.MjModel:
        file = str(self.path / "scene.xml")
        if not self.edits:
            return mujoco.MjModel.from_xml_path(file)
        spec = mujoco.MjSpec.from_file(file)
        for edit in self.edits:
            edit(spec)
        return spec.compile()


@dataclass(frozen=True, slots=True)
class Frame:
    """A planar, fixed frame: ``xy_world = rotation @ xy_frame + origin``; ``yaw`` [rad] and the
    height ``z`` [m] of its plane.
    """

    rotation: PlaneRotation
    origin: XY
    yaw: float
    z: float

    def to_world(self, xy: XY) -> XY:
        """Frame coordinates ``[2]`` to world ``[2]`` [m]."""
        return self.rotation @ xy + self.origin


def world_pose(model: mujoco.MjModel, site: str) -> Pose:
    """``T_world_site [4, 4]`` in the initial state (frames do not move)."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    view = data.site(site)
    return pose(view.xmat.reshape(3, 3), view.xpos)


def frame_of(model: mujoco.MjModel, config: SceneConfig, name: str) -> Frame:
    """The planar frame ``name`` of a scene, from its site's pose in the initial state."""
    T = world_pose(model, config.frames[name])
    matrix = T[:3, :3]
    yaw = float(np.arctan2(matrix[1, 0], matrix[0, 0]))
    c, s = np.cos(yaw), np.sin(yaw)
    return Frame(np.array([[c, -s], [s, c]]), T[:2, 3].copy(), yaw, float(T[2, 3]))


def require_name(model: mujoco.MjModel, kind: mujoco.mjtObj, name: str, where: str) -> int:
    """Id of a named object of the model; the error lists what exists."""
    index = mujoco.mj_name2id(model, kind, name)
    if index < 0:
        label = kind.name.removeprefix("mjOBJ_").lower()
        names = names_of(model, kind)
        raise SceneError(
            f"{where}: scene.xml has no {label} '{name}'.{did_you_mean(name, names)}"
            f" It has: {names}"
        )
    return index


def names_of(model: mujoco.MjModel, kind: mujoco.mjtObj) -> list[str]:
    """Names of all objects of one kind."""
    counts = {
        mujoco.mjtObj.mjOBJ_JOINT: model.njnt,
        mujoco.mjtObj.mjOBJ_BODY: model.nbody,
        mujoco.mjtObj.mjOBJ_SITE: model.nsite,
        mujoco.mjtObj.mjOBJ_GEOM: model.ngeom,
        mujoco.mjtObj.mjOBJ_CAMERA: model.ncam,
        mujoco.mjtObj.mjOBJ_ACTUATOR: model.nu,
    }
    named = (mujoco.mj_id2name(model, kind, i) for i in range(counts[kind]))
    return [name for name in named if name]
