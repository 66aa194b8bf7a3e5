"""Films an episode: drawn from its recorded poses, or what a camera saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from hardware.cell.config import CellConfig
from hardware.devices.gripper_config import WIDTH
from hardware.devices.tracker import object_of
from robolearn.data.episode import Episode
from robolearn.pusht import (
    BLOCK,
    GOAL,
    TABLE_SIZE_M,
    TOOL,
    TOOL_RADIUS_M,
    Pose,
    recorded_goal,
    tee_polygons,
    transform_points,
)
from robolearn.shapes import Picture

if TYPE_CHECKING:
    from sim.plants.scene import ScenePlantConfig

JOINTS, _TOOL_POSE = "arm/joint_position", "tool/pose"
_GOAL, _BLOCK = (144, 238, 144), (119, 136, 153)
_TOOL, _TARGET, _INK = (65, 105, 225), (220, 60, 60), (60, 60, 60)
_SIZE = 384


@runtime_checkable
class Film(Protocol):
    """Makes a video of an episode."""

    def write(self, episode: Episode, path: Path) -> int:
        """Write one mp4; returns the number of frames."""
        ...


def film_of(cell: CellConfig, config: Path, *, lab: bool) -> Film | None:
    """How episodes of a cell are drawn; ``config`` is its file, ``lab``: a virtual one. None where
    nothing shows them: an arm without a scene, and no camera.
    """
    if cell.table is not None and BLOCK in cell.trackers:
        return TableFilm(config if lab else None)
    if lab and _drawn_by_scene(config):
        return WorkcellFilm(config)
    scene = _lab_scene(config)
    if scene is not None:
        return SceneFilm(scene)
    recorded = [c.spec.name for c in cell.cameras if c.signal]
    return CameraFilm(recorded[0]) if recorded else None


class TableFilm:
    """The tool and the T from above. With ``workcell``, a robot config with a ``lab:`` section, the
    virtual arm is drawn beside it, and every second tick is shown (drawing costs more than the
    control period).
    """

    def __init__(self, workcell: Path | None, size: int = _SIZE) -> None:
        self._workcell, self._size = workcell, size

    def write(self, episode: Episode, path: Path) -> int:
        """Write one mp4; returns the number of frames."""
        size = self._size
        if self._workcell is None or JOINTS not in episode.streams:
            return _write(episode, path, lambda k: _above(episode, k, size))
        from robolearn.operations.lab.view import lab_view
        from robolearn.operations.lab.workcell import load_lab

        view = lab_view(load_lab(self._workcell))

        def frame(k: int) -> Picture:
            q, block = episode.observed(JOINTS)[k], episode.observed(BLOCK)[k]
            beside = view.draw("perspective", size, size, q, {"block": block})
            return np.concatenate([beside, _above(episode, k, size)], axis=1)

        try:
            return _write(episode, path, frame, stride=2)
        finally:
            view.close()


class WorkcellFilm:
    """A virtual workcell that a scene draws: arm, fingers and objects as they were observed."""

    def __init__(self, workcell: Path) -> None:
        self._workcell = workcell

    def write(self, episode: Episode, path: Path) -> int:
        """Write one mp4; returns the number of frames."""
        from robolearn.operations.lab.view import lab_view
        from robolearn.operations.lab.workcell import load_lab

        view = lab_view(load_lab(self._workcell))
        signals = [s.name for s in episode.meta.embodiment.signals if s.name.endswith("/pose")]
        objects = [s for s in signals if s != _TOOL_POSE and s in episode.streams]

        def frame(k: int) -> Picture:
            poses = {object_of(s): episode.observed(s)[k] for s in objects}
            q, opening_m = episode.observed(JOINTS)[k], None
            if WIDTH in episode.streams:
                opening_m = episode.observed(WIDTH)[k].item()
            return view.draw("perspective", _SIZE, _SIZE, q, poses, opening_m)

        try:
            return _write(episode, path, frame, stride=2)
        finally:
            view.close()


class SceneFilm:
    """The arm of a scene at the recorded joints; of other motors (a jaw) the scene's start."""

    def __init__(self, scene: ScenePlantConfig) -> None:
        self._scene = scene

    def write(self, episode: Episode, path: Path) -> int:
        """Write one mp4; returns the number of frames."""
        from sim.plants.plant_view import PlantView
        from sim.plants.scene import ScenePlant

        plant = ScenePlant(dataclasses.replace(self._scene, spread=0.0))
        home, view = plant.joint_positions().copy(), PlantView(plant)

        def frame(k: int) -> Picture:
            q = episode.observed(JOINTS)[k]
            return view.draw("perspective", _SIZE, _SIZE, np.concatenate([q, home[len(q) :]]), {})

        try:
            return _write(episode, path, frame)
        finally:
            view.close()


class CameraFilm:
    """What a camera of the cell saw."""

    def __init__(self, signal: str) -> None:
        self._signal = signal

    def write(self, episode: Episode, path: Path) -> int:
        """Write one mp4; returns the number of frames."""
        return _write(episode, path, lambda k: np.asarray(episode.observed(self._signal)[k]))


def _drawn_by_scene(config: Path) -> bool:
    from robolearn.config import load_yaml
    from robolearn.operations.lab.arm import is_arm_lab
    from robolearn.operations.lab.workcell import drawn_scene, load_lab

    raw = load_yaml(config)
    return "lab" in raw and not is_arm_lab(raw) and drawn_scene(load_lab(config)) is not None


def _lab_scene(config: Path) -> ScenePlantConfig | None:
    from robolearn.config import load_yaml
    from robolearn.operations.lab.arm import arm_lab_config, is_arm_lab

    raw = load_yaml(config)
    return arm_lab_config(raw, config).scene if is_arm_lab(raw) else None


def _write(
    episode: Episode, path: Path, frame: Callable[[int], Picture], *, stride: int = 1
) -> int:
    from sim.rendering.video import write_mp4

    frames = (frame(k) for k in range(0, episode.steps, stride))
    return write_mp4(path, frames, episode.meta.embodiment.rate_hz / stride)


def _above(episode: Episode, k: int, size: int) -> Picture:
    block, tool = episode.observed(BLOCK)[k], episode.observed(TOOL)[k]
    score = float(episode.progress[: k + 1].max())
    goal = recorded_goal(episode.meta.provenance)
    return draw(block, tool, episode.action[TOOL][k], score, size, goal)


def draw(block: Any, tool: Any, target: Any, score: float, size: int, goal: Pose = GOAL) -> Picture:
    """One picture ``[size, size, 3]`` RGB from above, as in the recordings."""
    import cv2

    picture = np.full((size, size, 3), 255, dtype=np.uint8)
    scale = size / TABLE_SIZE_M

    def px(points: Any) -> NDArray[np.int32]:
        p = np.atleast_2d(np.asarray(points, dtype=np.float64)) * scale
        return np.round(np.stack([p[:, 0], size - p[:, 1]], axis=-1)).astype(np.int32)

    for pose, colour in ((goal, _GOAL), (block, _BLOCK)):
        for corners in tee_polygons():
            cv2.fillPoly(picture, [px(transform_points(corners, pose))], colour, cv2.LINE_AA)
    x, y = px(tool)[0].tolist()
    cv2.circle(picture, (x, y), round(TOOL_RADIUS_M * scale), _TOOL, -1, cv2.LINE_AA)
    tx, ty = px(target)[0].tolist()
    cv2.drawMarker(picture, (tx, ty), _TARGET, cv2.MARKER_CROSS, 10, 2)
    text = f"score {score:.2f}"
    cv2.putText(picture, text, (8, size - 10), cv2.FONT_HERSHEY_SIMPLEX, 0.5, _INK, 1, cv2.LINE_AA)
    return picture
