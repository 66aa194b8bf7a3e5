"""Finds where pictures were taken from the pictures alone: structure from motion, by pycolmap.

What comes out has no scale. Where it also is known from elsewhere where some pictures were taken
(the arm's poses, the board), the similarity between both (Umeyama 1991, with Huber's weights) gives
metres, and how sure they are.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from robolearn.errors import DataError, MissingDependencyError
from robolearn.geometry import Pose, Rotation, Vector, inverse, pose, pose_error
from robolearn.shapes import Floats, Picture
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.shapes import OwnPoints, Points

# Pictures that must come out as one model: a share, and at least.
_LEAST_SHARE, LEAST_PICTURES = 0.6, 8
# Known places that give metres: at least so many, so far apart [m], and so near to what the
# pictures say (a share of that).
_LEAST_PLACES, _LEAST_SPREAD_M, _WORST_SHARE = 5, 0.05, 0.05
# A pose's rotation, between what is known and what the pictures say [rad].
_WORST_RAD = float(np.deg2rad(15.0))
_ROUNDS = 20
# 95 % of a normal distribution.
_WIDE = 1.96


@dataclass(frozen=True, slots=True)
class Structure:
    """Pictures' poses ``T_world_camera`` by name, in metres, points of what they saw ``[n, 3]``
    [m], how sure the scale is (half a 95 % interval, as a share), how far the given places lie from
    those found [m] (RMS), and which of them were not believed.
    """

    poses: dict[str, Pose]
    points: OwnPoints
    scale_half: float
    off_m: float
    doubted: tuple[str, ...]


def require_pycolmap() -> Any:
    """The library. MissingDependencyError where it is not installed."""
    try:
        return importlib.import_module("pycolmap")
    except ImportError as error:
        raise MissingDependencyError(
            f"pictures without depth are placed by pycolmap ({error}); run: pip install -c"
            " constraints.txt 'robolearn[sfm]', or take the scan with a depth camera"
        ) from error


def structure(frames: Sequence[PosedFrame], known: Mapping[str, Pose], work: Path) -> Structure:
    """Structure and motion of the pictures of ``frames`` (their own poses are not used), in the
    world of the places that are ``known`` by name. ``work``: an empty folder.

    DataError: too few pictures come out as one model, or the known places contradict it.
    """
    pycolmap = require_pycolmap()
    model = _model(pycolmap, frames, work)
    found: dict[str, Pose] = {}
    for image in model.images.values():
        rows = image.cam_from_world().matrix()
        found[Path(image.name).stem] = inverse(np.vstack([rows, [0.0, 0.0, 0.0, 1.0]]))
    names = {_file(f): f.name for f in frames}
    poses = {names[stem]: T for stem, T in found.items()}
    points = np.array([p.xyz for p in model.points3D.values()], dtype=np.float64).reshape(-1, 3)
    return in_metres(poses, points, known)


def _file(f: PosedFrame) -> str:
    return f.name.rsplit(".", 1)[0].replace("/", "__")


def _model(pycolmap: Any, frames: Sequence[PosedFrame], work: Path) -> Any:
    # Errors only: what it does is told by us.
    pycolmap.logging.minloglevel = int(pycolmap.logging.Level.ERROR)
    database, images = work / "database.db", work / "images"
    images.mkdir()
    for camera in sorted({f.frame.set.camera for f in frames}):
        own = [f for f in frames if f.frame.set.camera == camera]
        names: list[str] = []
        for f in own:
            names.append(f"{_file(f)}.png")
            picture: Picture = f.picture()
            cv2.imwrite(str(images / names[-1]), np.ascontiguousarray(picture[..., ::-1]))
        K = own[0].K
        # COLMAP's pixels have their corner at whole numbers, ours their centre.
        lens = (K[0, 0], K[1, 1], K[0, 2] + 0.5, K[1, 2] + 0.5)
        options = pycolmap.ImageReaderOptions()
        options.camera_model = "PINHOLE"
        options.camera_params = ",".join(f"{float(v):.9g}" for v in lens)
        pycolmap.extract_features(
            str(database),
            str(images),
            image_names=names,
            camera_mode=pycolmap.CameraMode.SINGLE,
            reader_options=options,
            device=pycolmap.Device.cpu,
        )
    pycolmap.match_exhaustive(str(database), device=pycolmap.Device.cpu)
    (work / "models").mkdir()
    mapping = pycolmap.IncrementalPipelineOptions()
    mapping.ba_refine_focal_length = False
    mapping.ba_refine_principal_point = False
    mapping.ba_refine_extra_params = False
    mapping.random_seed = 0
    models = pycolmap.incremental_mapping(
        str(database), str(images), str(work / "models"), options=mapping
    )
    best = max(models.values(), key=lambda m: len(m.images), default=None)
    placed = 0 if best is None else len(best.images)
    if placed < max(LEAST_PICTURES, _LEAST_SHARE * len(frames)):
        raise DataError(
            f"structure from motion places {placed} of {len(frames)} pictures together, at least"
            f" {max(LEAST_PICTURES, round(_LEAST_SHARE * len(frames)))} are needed: neighbouring"
            " pictures must overlap by two thirds, and what they show must have texture (lay a"
            " printed cloth or newspaper under the objects; bare walls and table tops have none)"
        )
    return best


def in_metres(poses: Mapping[str, Pose], points: Points, known: Mapping[str, Pose]) -> Structure:
    """Poses and points of any scale and world in those of the ``known`` places. DataError where
    these are too few, too near to each other, or lie elsewhere.
    """
    both = [n for n in poses if n in known]
    if len(both) < _LEAST_PLACES:
        raise DataError(
            f"where a picture was taken is known of {len(both)} that structure from motion placed,"
            f" at least {_LEAST_PLACES} are needed for metres: T_base_tool with the camera's place"
            " on the flange, T_world_camera, or the board on the table in view"
        )
    found, given = (np.stack([T[n][:3, 3] for n in both]) for T in (poses, known))
    spread = float(np.linalg.norm(given - given.mean(axis=0), axis=1).mean())
    if spread < _LEAST_SPREAD_M:
        raise DataError(
            f"the known places lie {1e3 * spread:.0f} mm around their middle, at least"
            f" {1e3 * _LEAST_SPREAD_M:.0f} mm are needed for metres: move the camera around the"
            " table"
        )
    scale, R, move = _similarity(found, given, np.ones(len(both)))
    for _ in range(_ROUNDS):
        off = _distances(found, given, scale, R, move)
        near = 2.0 * max(float(np.median(off)), 1e-6)
        scale, R, move = _similarity(found, given, np.minimum(1.0, near / np.maximum(off, 1e-12)))
    off = _distances(found, given, scale, R, move)
    usual = max(float(np.median(off)), 1e-6)
    placed = {n: pose(R @ T[:3, :3], scale * R @ T[:3, 3] + move) for n, T in poses.items()}
    turned = np.array([pose_error(placed[n], known[n])[1] for n in both])
    good = (off < max(6.0 * usual, 0.002)) & (turned < _WORST_RAD)
    rms = float(np.sqrt((off[good] ** 2).mean())) if good.any() else float("inf")
    if good.mean() < 0.7 or rms > _WORST_SHARE * spread:
        raise DataError(
            f"the known places contradict the pictures: {int((~good).sum())} of {len(both)} lie"
            f" elsewhere than structure from motion has them, the others {1e3 * rms:.0f} mm off."
            " The usual causes: pictures and poses out of step, a wrong place of the camera on the"
            " flange, a lens that is not the camera's, cameras that look along -z"
        )
    half = _WIDE * rms / (spread * float(np.sqrt(3.0 * good.sum())))
    moved = scale * points @ R.T + move
    doubted = tuple(n for n, fine in zip(both, good, strict=True) if not fine)
    return Structure(placed, moved, half, rms, doubted)


def _distances(found: Points, given: Points, scale: float, R: Rotation, move: Vector) -> Floats:
    return np.linalg.norm(scale * found @ R.T + move - given, axis=1)


def _similarity(found: Points, given: Points, weight: Floats) -> tuple[float, Rotation, Vector]:
    """``given = scale * R @ found + move``, weighted least squares."""
    w = (weight / weight.sum())[:, None]
    a, b = (w * found).sum(axis=0), (w * given).sum(axis=0)
    p, q = found - a, given - b
    u, s, vt = np.linalg.svd((w * q).T @ p)
    flip = np.array([1.0, 1.0, float(np.sign(np.linalg.det(u @ vt)))])
    R = u @ np.diag(flip) @ vt
    scale = float((s * flip).sum() / (w * p**2).sum())
    return scale, R, b - scale * R @ a
