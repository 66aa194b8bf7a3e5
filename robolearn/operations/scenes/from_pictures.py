"""Makes a capture with depth of one whose pictures have none: where and how far, from colours."""

from __future__ import annotations

import dataclasses
import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from robolearn.capture.check import check_capture
from robolearn.capture.config import CaptureCamera, CaptureConfig, CaptureDepth
from robolearn.capture.folder import Capture, Frame, read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose
from sim.reconstruction.colours.sfm import LEAST_PICTURES, Structure, require_pycolmap, structure
from sim.reconstruction.colours.sweep import Swept, sweep
from sim.reconstruction.frames import PosedFrame, known_lenses, posed_frames
from sim.reconstruction.pipeline import COMPUTED

# Metres per number of the depth pictures that are written.
_SCALE_M = 0.0001
# Less of the pictures with depth is no scan.
_LEAST_SHARE = 0.05
_LEAST_NOISE_M = 0.0005


@dataclass(frozen=True, slots=True)
class FromPictures:
    """The capture that was written to ``out``: pictures with depth, how sure the scale is (half a
    95 % interval, as a share), how far the known places lie off [m], share of pixels with depth
    and their standard deviation [m]; ``note`` says so.
    """

    out: Path
    pictures: int
    scale_half: float
    off_m: float
    share: float
    noise_m: float
    note: str


def depth_from_pictures(
    folder: Path, out: Path, on_note: Callable[[str], None] | None = None
) -> FromPictures:
    """Place a scan's pictures by structure from motion, in metres by what is known of their places
    (arm, board, AR kit), compute their depth from each other, and write it all as the capture
    ``out``, a new folder.

    Errors: ConfigError for an ``out`` that is not empty; MissingDependencyError without pycolmap;
    DataError for pictures that are too few, show no texture, or contradict what is known of their
    places.
    """
    tell: Callable[[str], None] = on_note or (lambda _: None)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"'{out}' is not empty; a capture starts in a new folder")
    require_pycolmap()
    capture = read_capture(folder)
    frames = _frames(capture)
    known = _known(capture, frames)
    with tempfile.TemporaryDirectory() as work:
        found = structure(_unplaced(capture, frames), known, Path(work))
    tell(
        f"{len(found.poses)} of {len(frames)} pictures placed; metres to"
        f" +- {100 * found.scale_half:.2f} % from {len(known)} known places"
    )
    placed = [
        dataclasses.replace(f, T_table_camera=found.poses[f.name])
        for f in _unplaced(capture, frames)
        if f.name in found.poses
    ]
    swept = sweep(placed, found.points)
    if swept.share < _LEAST_SHARE or not math.isfinite(swept.noise_m):
        raise DataError(
            f"{folder}: only {swept.share:.0%} of the pictures can be seen in depth, at least"
            f" {_LEAST_SHARE:.0%} are needed: textureless tables, walls and objects have none. Lay"
            " printed paper under the objects, add light, or use a depth camera"
        )
    note = _note(found, swept, len(frames))
    _write(capture, placed, swept, note, out)
    tell(note)
    return FromPictures(
        out, len(placed), found.scale_half, found.off_m, swept.share, swept.noise_m, note
    )


def _frames(capture: Capture) -> list[Frame]:
    report = check_capture(capture)
    if report.errors:
        raise DataError(f"{capture.path}: {'; '.join(report.errors)}")
    frames = [f for f in report.usable if f.set.purpose == "scan"]
    if len(frames) < LEAST_PICTURES:
        raise DataError(
            f"{capture.path}: {len(frames)} usable pictures in sets with 'purpose: scan', at least"
            f" {LEAST_PICTURES} are needed, 40 from all around with much overlap are good"
        )
    return frames


def _known(capture: Capture, frames: Sequence[Frame]) -> dict[str, Pose]:
    """What is known of the places, before any structure; empty where nothing is."""
    return {f.name: f.T_table_camera for f in posed_frames(capture, frames).frames}


def _unplaced(capture: Capture, frames: Sequence[Frame]) -> list[PosedFrame]:
    """Straight pictures whose places are still to be found."""
    lenses = known_lenses(capture, frames)
    return [PosedFrame(f, lenses[f.set.camera], np.eye(4)) for f in frames]


def _note(found: Structure, swept: Swept, count: int) -> str:
    doubted = f", {', '.join(found.doubted)} not believed" if found.doubted else ""
    return (
        f"no depth was measured: {len(found.poses)} of {count} pictures were placed by structure"
        f" from motion, metres known to +- {100 * found.scale_half:.2f} % (known places"
        f" {1e3 * found.off_m:.1f} mm off{doubted}); {swept.share:.0%} of their pixels have depth,"
        f" +- {1e3 * swept.noise_m:.1f} mm; what has no texture is missing"
    )


def _write(
    capture: Capture, placed: Sequence[PosedFrame], swept: Swept, note: str, out: Path
) -> None:
    noise = max(swept.noise_m, _LEAST_NOISE_M)
    lenses = {f.frame.set.camera: f.lens for f in placed}
    cameras: dict[str, CaptureCamera] = {
        name: dataclasses.replace(
            camera,
            lens=dataclasses.replace(lenses[name], distortion=()),
            depth=CaptureDepth(_SCALE_M, noise),
        )
        if name in lenses
        else camera
        for name, camera in capture.config.cameras.items()
    }
    backgrounds = [f for f in capture.of("background") if f.set.camera not in lenses]
    names = {f.frame.set.name for f in placed} | {f.set.name for f in backgrounds}
    config: CaptureConfig = dataclasses.replace(
        capture.config,
        cameras=cameras,
        sets=tuple(s for s in capture.config.sets if s.name in names),
        notes={**capture.config.notes, COMPUTED: note},
    )
    writer = CaptureWriter(out, config)
    for f, depth in zip(placed, swept.depths, strict=True):
        writer.add(
            f.frame.set.name,
            f.picture(),
            depth,
            t_s=f.frame.t_s,
            T_base_tool=f.frame.T_base_tool,
            T_world_camera=f.T_table_camera,
        )
    for f in backgrounds:
        writer.add(
            f.set.name,
            f.picture(),
            t_s=f.t_s,
            T_base_tool=f.T_base_tool,
            T_world_camera=f.T_world_camera,
        )
