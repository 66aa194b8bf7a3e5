"""Puts a scene's things right by hand: seen in photographs first, then written as overrides."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import yaml

from robolearn.capture.folder import read_capture
from robolearn.config import load_yaml
from robolearn.errors import DataError, SceneError, did_you_mean
from robolearn.files import write_atomic
from robolearn.geometry import Pose, quat_from_rotation, rotation_from_rotvec
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.verify import (
    found_boxes,
    judging_frames,
    reconstructed_details,
    scene_viewer,
)
from sim.reconstruction.views import Compared
from sim.scene.config import Override, Scene
from sim.scene.load import load_scene, scene_names, scene_of

FARTHEST_MM = 2000.0


@dataclass(frozen=True, slots=True)
class Move:
    """How far from where it is, in the table's frame: ``mm`` along its axes, then ``deg``, a
    rotation vector about the thing's own origin.
    """

    mm: tuple[float, float, float] = (0.0, 0.0, 0.0)
    deg: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @classmethod
    def of(cls, values: object, name: str) -> Move:
        """Of six numbers; :class:`DataError` for anything else."""
        numbers: list[float] = []
        shown = str(values)
        if isinstance(values, list | tuple):
            given = cast("Sequence[Any]", values)
            numbers = [float(v) for v in given if isinstance(v, int | float)]
            numbers = numbers if len(numbers) == len(given) else []
        if len(numbers) != 6 or not all(abs(v) <= FARTHEST_MM for v in numbers):
            raise DataError(
                f"'{name}' moves by six numbers up to {FARTHEST_MM:g} (x y z in mm, then a turn"
                f" about x y z in degrees), got {shown[:80]}"
            )
        x, y, z, a, b, c = numbers
        return cls((x, y, z), (a, b, c))

    def applied(self, T: Pose) -> Pose:
        """The pose that it leads to."""
        out = T.copy()
        out[:3, :3] = rotation_from_rotvec(np.radians(self.deg)) @ T[:3, :3]
        out[:3, 3] += np.array(self.mm) / 1e3
        return out


class Placing:
    """A reconstructed scene before the pictures that judge it, its objects where somebody puts
    them. Nothing is written. SceneError and DataError as ``verify`` has them.
    """

    def __init__(self, scene: Scene, capture: Path) -> None:
        details = reconstructed_details(scene)
        self._frames, _ = judging_frames(read_capture(capture), details)
        self._found = found_boxes(details)
        self._viewer = scene_viewer(scene, self._found)

    def close(self) -> None:
        """Free the renderer."""
        self._viewer.close()

    @property
    def frames(self) -> tuple[PosedFrame, ...]:
        """The pictures, in order."""
        return tuple(self._frames)

    def poses(self, moves: Mapping[str, Move]) -> dict[str, Pose]:
        """``T_table_body`` of every object; DataError names one that is not there."""
        for name in moves:
            if name not in self._found:
                raise DataError(
                    f"the scene has no object '{name}'.{did_you_mean(name, list(self._found))}"
                    f" It has: {sorted(self._found)}"
                )
        return {
            name: moves.get(name, Move()).applied(box.T_table_body)
            for name, box in self._found.items()
        }

    def seen(self, picture: int, moves: Mapping[str, Move]) -> Compared:
        """A picture against the scene with its objects moved; DataError for one that is not."""
        if not 0 <= picture < len(self._frames):
            raise DataError(f"there are {len(self._frames)} pictures, got number {picture}")
        for name, T in self.poses(moves).items():
            self._viewer.place(name, T)
        return self._viewer.compare(self._frames[picture])


def pose_values(T: Pose) -> tuple[float, ...]:
    """A pose as ``overrides`` write it: x y z [m], quaternion w x y z; to a hundredth of a mm."""
    position = [round(float(v), 5) for v in T[:3, 3]]
    return (*position, *(round(float(v), 6) for v in quat_from_rotation(T[:3, :3])))


def override_by_hand(folder: Path, body: str, change: Override | None) -> Scene:
    """Write what a person knows of a body into ``overrides`` of ``scene.yaml``, beside what stands
    there; None: nothing any more. The rest of the file stays as it is.

    Errors: SceneError for a scene that comes with a package, for a body or a value that cannot be,
    and for a file that is written in a way in which only its owner can change it; nothing is
    changed then.
    """
    if not folder.is_dir():
        named = str(folder) in scene_names()
        raise SceneError(
            f"'{folder}' comes with a package and stays as it is; copy its folder first"
            if named
            else f"no scene folder '{folder}'"
        )
    # As a path: in a folder that is called as a packaged scene is, that one would be found.
    scene = load_scene(folder.resolve())
    path = scene.path / "scene.yaml"
    text, raw = path.read_text(encoding="utf-8"), load_yaml(path)
    overrides: dict[str, Any] = dict(raw.get("overrides") or {})
    if change is None:
        if body not in overrides:
            raise SceneError(
                f"{path}: nothing of '{body}' was set by hand; of these it was:"
                f" {sorted(overrides) or 'none'}"
            )
        del overrides[body]
    else:
        overrides[body] = {**(overrides.get(body) or {}), **_plain(change)}
    wanted = {k: v for k, v in raw.items() if k != "overrides"}
    if overrides:
        wanted["overrides"] = overrides
    scene_of(scene.path, wanted)
    changed = _with_overrides(text, overrides)
    if _read(changed) != wanted:
        raise SceneError(
            f"{path} is written in a way that cannot be changed in place (JSON, anchors, or a"
            f" second document); write this into it: {_block(overrides).strip()}"
        )
    write_atomic(path, changed)
    return load_scene(scene.path)


def _read(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _plain(change: Override) -> dict[str, Any]:
    found = {"pose": change.pose, "mass_kg": change.mass_kg, "friction": change.friction}
    return {k: list(v) if isinstance(v, tuple) else v for k, v in found.items() if v is not None}


def _block(overrides: Mapping[str, Any]) -> str:
    if not overrides:
        return ""
    return yaml.safe_dump({"overrides": dict(overrides)}, sort_keys=False, default_flow_style=None)


# A key at the margin with what is indented under it; blank lines and comments at the margin that
# follow belong to the next key.
_OVERRIDES = re.compile(r"^overrides:[^\n]*(?:\n(?:[ \t-][^\n]*|(?=\n[ \t])))*\n?", re.MULTILINE)


def _with_overrides(text: str, overrides: Mapping[str, Any]) -> str:
    block = _block(overrides)
    if _OVERRIDES.search(text):
        return _OVERRIDES.sub(lambda _: block, text, count=1)
    return f"{text}{'' if text.endswith(chr(10)) or not text else chr(10)}{block}"
