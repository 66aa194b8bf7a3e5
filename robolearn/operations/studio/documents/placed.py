"""Shows a photograph with a reconstructed scene's objects where somebody would put them."""

from __future__ import annotations

import atexit
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from robolearn.operations.scenes.by_hand import Move, Placing, pose_values
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.pictures import as_address
from sim.scene.load import content_hash, load_scene


@dataclass(frozen=True, slots=True)
class PlacedObject:
    """``pose``: x y z [m] and quaternion in the table's frame, moved; ``command`` writes it, empty
    for what was not moved. ``iou``: of its silhouette in this picture, None out of view.
    """

    name: str
    pose: tuple[float, ...]
    iou: float | None
    command: str


@dataclass(frozen=True, slots=True)
class PlacedDocument:
    """One picture: ``outlined`` is the photograph with the scene's outlines, ``drawn`` the scene;
    ``data:`` addresses. ``focal_px``, ``centre_px`` and ``T_table_camera`` (row by row) tell where
    a pixel looks.
    """

    pictures: tuple[str, ...]
    picture: int
    width: int
    height: int
    focal_px: tuple[float, float]
    centre_px: tuple[float, float]
    T_table_camera: tuple[float, ...]
    outlined: str
    drawn: str
    edge_px: float
    depth_mm: float
    objects: tuple[PlacedObject, ...]


def placed_document(
    scene: Path, capture: Path, picture: int, moves: Mapping[str, Any]
) -> PlacedDocument:
    """``moves``: by object, six numbers (:meth:`Move.of`). Nothing is written."""
    placing = _placing(scene, capture)
    wanted = {name: Move.of(values, name) for name, values in moves.items()}
    seen = placing.seen(picture, wanted)
    frame = placing.frames[picture]
    height, width = seen.photo.shape[:2]
    objects: list[PlacedObject] = []
    for name, T in placing.poses(wanted).items():
        values = pose_values(T)
        moved = wanted.get(name, Move()) != Move()
        told = command_line("scene override", scene, name, pose=values) if moved else ""
        objects.append(PlacedObject(name, values, seen.iou.get(name), told))
    K = frame.K
    return PlacedDocument(
        pictures=tuple(f.name for f in placing.frames),
        picture=picture,
        width=width,
        height=height,
        focal_px=(float(K[0, 0]), float(K[1, 1])),
        centre_px=(float(K[0, 2]), float(K[1, 2])),
        T_table_camera=tuple(float(v) for v in frame.T_table_camera.ravel()),
        outlined=as_address(seen.outlined),
        drawn=as_address(seen.drawn),
        edge_px=seen.edge_px,
        depth_mm=seen.depth_mm,
        objects=tuple(objects),
    )


# The last one that was looked at: whoever drags asks many times a minute.
_open: list[tuple[tuple[Path, str, Path], Placing]] = []


def _placing(scene: Path, capture: Path) -> Placing:
    key = (scene, content_hash(scene), capture)
    if not _open or _open[0][0] != key:
        _close()
        _open.append((key, Placing(load_scene(scene), capture)))
        # Before the renderer's own end: it needs its display.
        atexit.unregister(_close)
        atexit.register(_close)
    return _open[0][1]


def _close() -> None:
    while _open:
        _open.pop()[1].close()
