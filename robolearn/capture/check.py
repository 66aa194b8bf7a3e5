"""Checks a capture folder before anything is computed from it: what is wrong, where, what to do.

What a camera's own pictures tell (sharpness, exposure, missing files), what poses tell (rigid,
right-handed), what clocks tell (in order, within the arm's record), and what depth tells against
the poses: cameras of a scan look at one place, and how far that is does not depend on units.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import cv2
import numpy as np

from robolearn.capture.clocks import Level, clock_problems
from robolearn.capture.folder import Capture, Frame, matrix
from robolearn.capture.registered import turned_depth
from robolearn.capture.sharpness import WIDEST_EDGE_PX, Grey, edge_px
from robolearn.errors import DataError
from robolearn.geometry import Pose, Vector, VectorRows
from robolearn.shapes import Floats

# A picture this much less sharp than the set's median is blurred.
BLURRED = 0.2
# Share of pixels at an end of the scale beyond which a picture is dark or burnt out.
CLIPPED = 0.5
# Depth against the distance of what the cameras look at: beyond, it is in other units.
WORST_RATIO = 2.5
# No frame of anybody's is farther away, in whatever unit [m].
_FARTHEST_M = 1e5
# What is fixed to the arm or the table is nearer [m].
_RIG_M = 20.0
# A rotation's rows may be this far from orthonormal.
_RIGID = 1e-3
_PREFIXES = {1e3: "1000", 1e-3: "0.001", 1e2: "100", 1e-2: "0.01", 10.0: "10", 0.1: "0.1"}


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is wrong, in a sentence that says what to do; the frames that it is about."""

    level: Level
    what: str
    frames: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What the checks found, and the frames that can be used."""

    findings: tuple[Finding, ...]
    usable: tuple[Frame, ...]
    # Sharpness (variance of the Laplacian) by frame.
    sharpness: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def errors(self) -> tuple[str, ...]:
        """The sentences of what makes the capture useless."""
        return tuple(f.what for f in self.findings if f.level == "error")


def check_capture(capture: Capture) -> CaptureReport:
    """Run every check. Frames with an unusable picture, depth or pose are left out of ``usable``;
    an error says that what is left is not enough, or wrong as a whole.
    """
    places = _places(capture)
    if places:
        return CaptureReport(tuple(places), ())
    findings: list[Finding] = []
    good = list(capture.frames)
    good = _without(good, _bad_poses, findings)
    sharpness: dict[str, float] = {}
    digests: dict[str, bytes] = {}
    good = _without(good, lambda frames: _unreadable(frames, sharpness, digests), findings)
    good = _without(good, lambda frames: _blurred(frames, sharpness), findings)
    good = _without(good, lambda frames: _copies(frames, digests), findings)
    findings += [Finding(level, what) for level, what in clock_problems(capture)]
    findings += _units(capture, good)
    findings += _turned(good)
    findings += list(_too_few(capture, good, findings))
    return CaptureReport(tuple(findings), tuple(good), sharpness)


def _too_few(
    capture: Capture, good: Sequence[Frame], findings: Sequence[Finding]
) -> Iterator[Finding]:
    """Sets of which less than half can be used, with what most of the others lack."""
    for entry in capture.config.sets:
        everyone = [f for f in capture.frames if f.set.name == entry.name]
        left = [f for f in good if f.set.name == entry.name]
        if 2 * len(left) >= len(everyone):
            continue
        what = "the scan" if entry.purpose == "scan" else f"set '{entry.name}'"
        text = (
            f"only {len(left)} of {len(everyone)} pictures of {what} can be used; at least half of"
            " them are needed: take it again"
        )
        names = {f.name for f in everyone}
        usual = max(findings, key=lambda f: len(names.intersection(f.frames)), default=None)
        if usual is not None and names.intersection(usual.frames):
            text += f" ({usual.what})"
        # Without one object seen by itself the table is still worth something.
        yield Finding("warning" if entry.purpose == "object" else "error", text)


def picture_problem(grey: Grey) -> str:
    """Why a grey picture is of no use; empty when it is."""
    if float((grey < 8).mean()) > CLIPPED:
        return "the picture is almost black; more light, or a longer exposure"
    if float((grey > 250).mean()) > CLIPPED:
        return "the picture is burnt out; less light, or a shorter exposure"
    if edge_px(grey) > WIDEST_EDGE_PX:
        return "blurred, also its sharpest edges; focus, stand still, more light"
    return ""


def rigid_problem(T: Pose) -> str:
    """Why a matrix ``[4, 4]`` is no pose; empty when it is one."""
    if not np.isfinite(T).all():
        return "holds numbers that are not finite"
    if np.abs(T).max() > _FARTHEST_M:
        return f"it is {np.abs(T).max():.3g} m away; positions are in metres"
    if np.abs(T[3] - [0.0, 0.0, 0.0, 1.0]).max() > 1e-6:
        return f"its last row must be 0 0 0 1, got {T[3].tolist()}; are columns and rows exchanged?"
    R = T[:3, :3]
    off = float(np.abs(R @ R.T - np.eye(3)).max())
    if off > _RIGID:
        return f"its rotation is not orthonormal (off by {off:.2g}): a scale, or rounded too much"
    if float(np.linalg.det(R)) < 0:
        return (
            "it is left-handed (determinant -1): an axis is mirrored, as game engines and some AR"
            " kits write poses; negate that axis on both sides"
        )
    return ""


def _places(capture: Capture) -> list[Finding]:
    """What is wrong with the places that capture.yaml gives."""
    config = capture.config
    given = {f"cameras.{n}.T_mount_camera": c.T_mount_camera for n, c in config.cameras.items()}
    given["arm.T_table_base"] = config.arm and config.arm.T_table_base
    given["board.T_table_board"] = config.board and config.board.T_table_board
    findings: list[Finding] = []
    for what, values in given.items():
        if values is None:
            continue
        T = matrix(values)
        why = rigid_problem(T)
        if not why and np.abs(T[:3, 3]).max() > _RIG_M:
            why = f"it is {np.abs(T[:3, 3]).max():.3g} m away; positions are in metres"
        if why:
            findings.append(Finding("error", f"capture.yaml: {what} is no pose: {why}"))
    return findings


def gaze(positions: VectorRows, axes: VectorRows) -> Vector:
    """The point ``[3]`` nearest to all optical axes (unit vectors ``[n, 3]`` from ``[n, 3]``)."""
    across = np.eye(3) - axes[:, :, None] * axes[:, None, :]
    A = across.sum(axis=0) + 1e-9 * np.eye(3)
    b = (across @ positions[:, :, None]).sum(axis=0)[:, 0]
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def camera_pose(frame: Frame, capture: Capture) -> Pose | None:
    """Where the camera was, as far as the row itself says: in some frame that stands still."""
    if frame.T_world_camera is not None:
        return frame.T_world_camera
    place = frame.camera.T_mount_camera
    if place is None:
        return None
    if frame.camera.mount == "table":
        return matrix(place)
    if frame.camera.mount == "flange" and frame.T_base_tool is not None:
        arm = capture.config.arm
        base = np.eye(4) if arm is None or arm.T_table_base is None else matrix(arm.T_table_base)
        return base @ frame.T_base_tool @ matrix(place)
    return None


_Check = Callable[[Sequence[Frame]], Iterable[tuple[Frame, str]]]


def _without(frames: list[Frame], check: _Check, findings: list[Finding]) -> list[Frame]:
    """The frames that a check does not name; what it says is kept, alike sentences together."""
    bad: dict[str, list[Frame]] = {}
    for frame, why in check(frames):
        bad.setdefault(why, []).append(frame)
    for why, named in bad.items():
        names = tuple(f.name for f in named)
        findings.append(Finding("warning", f"{_listed(names)}: {why}", names))
    dropped = {f.name for named in bad.values() for f in named}
    return [f for f in frames if f.name not in dropped]


def _bad_poses(frames: Sequence[Frame]) -> Iterable[tuple[Frame, str]]:
    for frame in frames:
        for what, T in (
            ("T_base_tool", frame.T_base_tool),
            ("T_world_camera", frame.T_world_camera),
        ):
            why = "" if T is None else rigid_problem(T)
            if why:
                yield frame, f"{what} is no pose: {why}"
                break


def _unreadable(
    frames: Sequence[Frame], sharpness: dict[str, float], digests: dict[str, bytes]
) -> Iterable[tuple[Frame, str]]:
    for frame in frames:
        try:
            image = frame.picture()
            if frame.depth_file is not None and not (frame.depth_m() > 0).any():
                yield frame, "the depth picture is empty; nothing was within the camera's range"
                continue
            if frame.mask_file is not None:
                frame.mask()
        except DataError as error:
            files = (frame.file, frame.depth_file, frame.mask_file)
            missing = any(path is not None and not path.is_file() for path in files)
            yield frame, "the file is missing" if missing else str(error)
            continue
        grey = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
        digests[frame.name] = hashlib.blake2b(image.tobytes(), digest_size=16).digest()
        sharpness[frame.name] = float(cv2.Laplacian(grey, cv2.CV_64F).var())
        why = picture_problem(np.asarray(grey, dtype=np.uint8))
        if why:
            yield frame, why


def _blurred(frames: Sequence[Frame], sharpness: dict[str, float]) -> Iterable[tuple[Frame, str]]:
    usual: dict[str, float] = {}
    for name in {f.set.name for f in frames}:
        usual[name] = float(np.median([sharpness[f.name] for f in frames if f.set.name == name]))
    for frame in frames:
        if sharpness[frame.name] < BLURRED * usual[frame.set.name]:
            yield frame, "blurred; stand still while the picture is taken"


def _copies(frames: Sequence[Frame], digests: dict[str, bytes]) -> Iterable[tuple[Frame, str]]:
    """Pictures of a set that are another one's, to the pixel: no camera takes one twice. Views that
    stand still (a background) may be drawn ones.
    """
    first: dict[tuple[str, bytes], str] = {}
    for frame in frames:
        if frame.set.purpose not in ("lens", "handeye", "scan", "object"):
            continue
        before = first.setdefault((frame.set.name, digests[frame.name]), frame.name)
        if before != frame.name:
            why = "to the pixel: the camera's pictures froze, or files were copied"
            yield frame, f"the picture is that of {before}, {why}"


def _turned(frames: Sequence[Frame]) -> Iterator[Finding]:
    """Cameras whose depth lies in their pictures of the table the wrong way."""
    scanned = [f for f in frames if f.set.purpose == "scan"]
    for camera in sorted({f.set.camera for f in scanned}):
        what = turned_depth([f for f in scanned if f.set.camera == camera])
        if what:
            yield Finding("error", f"camera '{camera}': {what}")


def _units(capture: Capture, frames: Sequence[Frame]) -> list[Finding]:
    """Depth at the picture's middle against the point that all cameras of a world look at: that of
    the table, or that of an object.
    """
    worlds: dict[str, list[Frame]] = {}
    for frame in frames:
        if frame.set.purpose in ("scan", "object"):
            turned = frame.set.name if frame.set.purpose == "object" else ""
            worlds.setdefault(turned, []).append(frame)
    found = [_world_units(capture, some) for some in worlds.values()]
    return [finding for some in found for finding in some]


def _world_units(capture: Capture, frames: Sequence[Frame]) -> list[Finding]:
    seen: list[tuple[Pose, float]] = []
    for frame in frames:
        T = camera_pose(frame, capture)
        if T is None or frame.depth_file is None:
            continue
        depth = frame.depth_m()
        h, w = depth.shape
        middle = depth[h * 3 // 8 : h * 5 // 8 + 1, w * 3 // 8 : w * 5 // 8 + 1]
        if (middle > 0).any():
            seen.append((T, float(np.median(middle[middle > 0]))))
    if len(seen) < 3:
        return []
    positions = np.stack([T[:3, 3] for T, _ in seen])
    axes = np.stack([T[:3, 2] for T, _ in seen])
    # Cameras that all look the same way do not say where.
    if float(np.linalg.eigvalsh(axes.T @ axes / len(axes))[1]) < 0.005:
        return []
    far = ((gaze(positions, axes) - positions) * axes).sum(axis=1)
    what = units_problem(far, np.array([d for _, d in seen]))
    return [Finding("error", what)] if what else []


def units_problem(far: Floats, measured: Floats) -> str:
    """What is wrong with depth that was ``measured [n]`` [m] where the cameras' poses say that it
    is ``far [n]`` [m] along the optical axis; "" where its units are right.
    """
    if float(np.median(far)) <= 0:
        return (
            "the cameras look away from what they see: expected +z along the optical axis, x right,"
            " y down (OpenCV); OpenGL's and ARKit's cameras look along -z: turn T_world_camera by"
            " 180 degrees about x"
        )
    ratio = float(np.median(measured / far))
    if 1 / WORST_RATIO < ratio < WORST_RATIO:
        return ""
    nearest = min(_PREFIXES, key=lambda f: abs(np.log(ratio / f)))
    return (
        f"depth is in other units: the cameras' poses put what they look at {np.median(far):.2f} m"
        f" away, the depth pictures {np.median(measured):.4g} m; divide depth.scale_m by about"
        f" {_PREFIXES[nearest]}, or the poses are not in metres"
    )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:4])
    return shown if len(names) <= 4 else f"{shown} and {len(names) - 4} more"
