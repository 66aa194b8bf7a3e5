"""The scene package: a folder that fully describes a simulated workcell.

    scene.yaml   schema version; robot, signals, actions, control, physics, cameras, task, reset
                 distribution, provenance
    scene.xml    MJCF
    ...          assets that the MJCF names

Hand-made, identified and reconstructed scenes look the same. ``docs/scene_format.md`` describes
every key. :func:`load_scene` validates everything that can be wrong before an env is built.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import mujoco
import numpy as np
from numpy.typing import NDArray

from robolearn.config import from_dict, load_yaml
from robolearn.errors import ConfigError, SceneError, did_you_mean
from robolearn.geometry import pose
from robolearn.spec import ActionMode

SCHEMA = 1
SCENES = Path(__file__).parents[1] / "scenes"

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
    hangs on them are drawn (without names: everything that can move).
    """

    name: str
    width: int = 256
    height: int = 256
    signal: str = ""
    rate_hz: float = 0.0
    quality: Literal["fast", "plain", "full"] = "fast"
    intrinsics: tuple[float, ...] = ()
    background: str = ""
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

    kind: Literal["hand-made", "identified", "reconstructed"]
    source: str = ""
    licence: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SceneConfig:
    """``scene.yaml``. ``control`` has a ``kind`` (see ``sim/control/planar.py``) and that kind's
    keys.

    ``frames`` maps frame names (``table``) to sites of the MJCF that do not move.
    ``control_delay_s``: set-points reach the actuators this much later, in whole physics steps.
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
    # What perturbations change before the model is compiled; the files stay as they are.
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

    rotation: NDArray[np.float64]
    origin: NDArray[np.float64]
    yaw: float
    z: float

    def to_world(self, xy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Frame coordinates ``[2]`` to world ``[2]`` [m]."""
        return self.rotation @ xy + self.origin

    def from_world(self, xy: NDArray[np.float64]) -> NDArray[np.float64]:
        """Inverse of :meth:`to_world`."""
        return (xy - self.origin) @ self.rotation


def packaged_scenes() -> list[str]:
    """Names of the scenes that come with the project."""
    return sorted(p.parent.name for p in SCENES.glob("*/scene.yaml"))


def load_scene(name_or_path: str | Path) -> Scene:
    """Find a packaged scene by name, or a scene folder by path, and validate it.

    Raises :class:`SceneError` that names the file, key or object at fault and what exists.
    """
    folder = _find(name_or_path)
    for required in ("scene.yaml", "scene.xml"):
        if not (folder / required).is_file():
            raise SceneError(f"{folder} lacks {required}; a scene needs scene.yaml and scene.xml")
    try:
        raw = load_yaml(folder / "scene.yaml")
        _check_schema(raw, folder)
        config = from_dict(SceneConfig, raw, where=f"{folder}/scene.yaml")
    except ConfigError as error:
        raise SceneError(str(error)) from error
    scene = Scene(folder, config, content_hash(folder))
    model = scene.compile()
    check_bodies(folder, model)
    validate(scene, model)
    return scene


def check_bodies(folder: Path, model: mujoco.MjModel) -> None:
    """Masses and inertias that rigid bodies can have; MuJoCo's repair of others is refused."""
    where = f"{folder}/scene.xml"
    if mujoco.MjSpec.from_file(str(folder / "scene.xml")).compiler.balanceinertia:
        raise SceneError(
            f"{where}: <compiler balanceinertia> replaces inconsistent inertias silently; remove it"
            " and correct them"
        )
    for body in range(1, model.nbody):
        name = model.body(body).name or f"number {body}"
        inertia = np.sort(model.body_inertia[body])
        if model.body_jntnum[body] > 0 and float(model.body_subtreemass[body]) <= 0.0:
            raise SceneError(f"{where}: body '{name}' moves without any mass; give it some")
        if inertia[2] > (inertia[0] + inertia[1]) * (1.0 + 1e-3) + 1e-12:
            raise SceneError(
                f"{where}: body '{name}' has principal inertias {inertia.tolist()} kg m^2; none may"
                " be larger than the sum of the others"
            )


def content_hash(folder: Path) -> str:
    """Hex SHA-256 (16 digits) over names and bytes of all files of a scene package."""
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        relative = path.relative_to(folder)
        if any(part.startswith((".", "__pycache__")) for part in relative.parts):
            continue
        digest.update(f"{relative.as_posix()}\0{path.stat().st_size}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def world_pose(model: mujoco.MjModel, site: str) -> NDArray[np.float64]:
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


def validate(scene: Scene, model: mujoco.MjModel) -> None:
    """Check every reference of ``scene.yaml`` against the compiled model."""
    config, where = scene.config, f"{scene.path}/scene.yaml"
    _check_times(config, model, where)
    for frame, site in config.frames.items():
        require_name(model, mujoco.mjtObj.mjOBJ_SITE, site, f"{where}: frames.{frame}")
    for signal in config.signals:
        _check_signal(signal, config, model, where)
    for action in config.actions:
        _require_frame(action.frame, config, f"{where}: action {action.name}")
        if len(action.low) != len(action.high) or not np.all(
            np.array(action.low) < np.array(action.high)
        ):
            raise SceneError(f"{where}: action {action.name}: low must be below high, per value")
    signals = [s.name for s in config.signals]
    for name in config.reset.settable:
        _require_member(name, signals, f"{where}: reset.settable", "signal")
    # Imported here because these modules build on this one.
    from sim.control.planar import require_controller
    from sim.rendering.cameras import check_cameras
    from sim.tasks import build_task

    check_cameras(scene, model, where)
    task = build_task(config.task.name, config.task.params, where)
    _require_member(
        config.reset.distribution, task.distributions, f"{where}: reset", "distribution"
    )
    require_controller(config.control, where)


def _find(name_or_path: str | Path) -> Path:
    text = str(name_or_path)
    packaged = packaged_scenes()
    if text in packaged:
        return SCENES / text
    folder = Path(name_or_path)
    if folder.is_dir():
        return folder.resolve()
    raise SceneError(
        f"no scene '{text}'.{did_you_mean(text, packaged)} Packaged scenes: {packaged};"
        " or give a folder with scene.yaml and scene.xml"
    )


def _check_schema(raw: Mapping[str, Any], folder: Path) -> None:
    schema = raw.get("schema")
    if not isinstance(schema, int):
        raise SceneError(f"{folder}/scene.yaml: 'schema: {SCHEMA}' is missing")
    if schema > SCHEMA:
        raise SceneError(
            f"{folder}/scene.yaml has schema {schema}; this version reads up to {SCHEMA}:"
            " update robolearn"
        )
    if schema < 1:
        raise SceneError(f"{folder}/scene.yaml: schema must be 1 to {SCHEMA}, got {schema}")


def _check_times(config: SceneConfig, model: mujoco.MjModel, where: str) -> None:
    step = config.physics.timestep_s
    if not np.isclose(step, model.opt.timestep, rtol=1e-12):
        raise SceneError(
            f"{where}: physics.timestep_s is {step}, scene.xml says {model.opt.timestep};"
            " make them equal"
        )
    if not config.rate_hz > 0 or not step > 0:
        raise SceneError(
            f"{where}: rate_hz and timestep_s must be positive, got {config.rate_hz:g}, {step:g}"
        )
    if not np.isclose(config.substeps * step * config.rate_hz, 1.0, rtol=1e-9):
        raise SceneError(
            f"{where}: a tick of {1 / config.rate_hz:g} s is not a whole number of {step} s steps"
        )
    late = config.control_delay_s / step
    if late < 0.0 or abs(late - round(late)) > 1e-6:
        raise SceneError(
            f"{where}: control_delay_s {config.control_delay_s:g} must be a whole number of"
            f" {step:g} s steps"
        )
    for signal in config.signals:
        if signal.delay_s < 0.0:
            raise SceneError(f"{where}: signal {signal.name}: delay_s must not be negative")
        steps = 1.0 / (signal.rate_hz * step) if signal.rate_hz > 0 else 0.0
        if steps < 0.999 or abs(steps - round(steps)) > 1e-6 or config.substeps % round(steps):
            raise SceneError(
                f"{where}: signal {signal.name}: rate_hz {signal.rate_hz:g} must be a multiple of"
                f" {config.rate_hz:g} that divides {1 / step:g}"
            )


def _check_signal(
    signal: SignalConfig, config: SceneConfig, model: mujoco.MjModel, where: str
) -> None:
    at = f"{where}: signal {signal.name}"
    kinds = {
        "site_xy": mujoco.mjtObj.mjOBJ_SITE,
        "body_pose_xy": mujoco.mjtObj.mjOBJ_BODY,
        "site_pose": mujoco.mjtObj.mjOBJ_SITE,
        "body_pose": mujoco.mjtObj.mjOBJ_BODY,
        "joint_position": mujoco.mjtObj.mjOBJ_JOINT,
        "joint_velocity": mujoco.mjtObj.mjOBJ_JOINT,
        "joint_sum": mujoco.mjtObj.mjOBJ_JOINT,
    }
    if not signal.of:
        raise SceneError(f"{at}: 'of' is empty; it names what the {signal.kind} is read from")
    if signal.kind in UNPHYSICAL:
        _check_unphysical(signal, config, model, at)
        return
    for name in signal.of:
        require_name(model, kinds[signal.kind], name, at)
    if signal.kind in FRAMED:
        if len(signal.of) != 1:
            raise SceneError(f"{at}: {signal.kind} reads one object, got {list(signal.of)}")
        _require_frame(signal.frame, config, at, required=True)


def _check_unphysical(
    signal: SignalConfig, config: SceneConfig, model: mujoco.MjModel, at: str
) -> None:
    if signal.kind == "derived":
        from sim.tasks import derived_signal

        derived_signal(config.task.name, signal.name, at)
        if signal.rate_hz != config.rate_hz:
            raise SceneError(f"{at}: a derived signal has the control rate, {config.rate_hz:g} Hz")
        return
    needed = sum(len(s.of) for s in config.signals if s.kind == "given")
    if model.nuserdata < needed:
        raise SceneError(
            f'{at}: given signals need <size nuserdata="{needed}"/> in scene.xml, it has'
            f" {model.nuserdata}"
        )


def _require_frame(frame: str, config: SceneConfig, at: str, *, required: bool = False) -> None:
    if frame or required:
        _require_member(frame, config.frames, at, "frame")


def _require_member(name: str, options: Iterable[str], at: str, kind: str) -> None:
    known = list(options)
    if name not in known:
        raise SceneError(f"{at}: no {kind} '{name}'.{did_you_mean(name, known)} Known: {known}")
