"""Describes a capture: its cameras, its sets of pictures, and what its checks find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from robolearn.capture.check import Finding, check_capture
from robolearn.capture.folder import Capture, Frame, read_capture
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.problems import Problem, Problems, gone


@dataclass(frozen=True, slots=True)
class CameraRow:
    """A camera of the rig."""

    name: str
    mount: str
    width: int
    height: int
    calibrated: bool
    depth: bool


@dataclass(frozen=True, slots=True)
class SetRow:
    """A set of pictures, and how many of them have depth and a known pose."""

    name: str
    camera: str
    purpose: str
    pictures: int
    with_depth: int
    with_pose: int


@dataclass(frozen=True, slots=True)
class FrameRow:
    """A picture; ``number``: by which it is asked for."""

    number: int
    name: str
    set: str
    there: bool
    t_s: float | None


@dataclass(frozen=True, slots=True)
class CaptureDocument:
    """A capture folder."""

    name: str
    path: str
    made_by: str
    cameras: tuple[CameraRow, ...]
    sets: tuple[SetRow, ...]
    objects: tuple[str, ...]
    board: str
    frames: tuple[FrameRow, ...]
    commands: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """What the checks of a capture find; they look at every picture."""

    pictures: int
    usable: int
    findings: tuple[Finding, ...]
    problems: tuple[Problem, ...]


def capture_document(path: Path) -> CaptureDocument:
    """What a capture folder says of itself; no picture is opened."""
    problems = Problems()
    if missing := gone(path):
        problems.say("capture", missing)
    found = problems.attempt("capture", lambda: read_capture(path), None)
    config = None if found is None else found.config
    return CaptureDocument(
        name=path.name if config is None else config.name,
        path=str(path),
        made_by="" if config is None else config.made_by,
        cameras=() if found is None else _cameras(found),
        sets=() if found is None else _sets(found),
        objects=() if config is None else tuple(o.name for o in config.objects),
        board="" if config is None or config.board is None else str(config.board.kind),
        frames=() if found is None else _frames(found.frames),
        commands=(command_line("reconstruct", path, out="SCENE"),),
        problems=problems.found,
    )


def checked_document(path: Path) -> CheckedDocument:
    """Run every check of a capture. It opens all pictures: some seconds."""
    problems = Problems()
    capture = problems.attempt("capture", lambda: read_capture(path), None)
    if capture is None:
        return CheckedDocument(0, 0, (), problems.found)
    report = problems.attempt("check", lambda: check_capture(capture), None)
    findings = () if report is None else report.findings
    usable = 0 if report is None else len(report.usable)
    return CheckedDocument(len(capture.frames), usable, findings, problems.found)


def _cameras(found: Capture) -> tuple[CameraRow, ...]:
    return tuple(
        CameraRow(name, c.mount, *c.size, c.lens is not None, c.depth is not None)
        for name, c in found.config.cameras.items()
    )


def _sets(found: Capture) -> tuple[SetRow, ...]:
    rows: list[SetRow] = []
    for entry in found.config.sets:
        mine = [f for f in found.frames if f.set.name == entry.name]
        depth = sum(f.depth_file is not None for f in mine)
        posed = sum(f.T_base_tool is not None or f.T_world_camera is not None for f in mine)
        rows.append(SetRow(entry.name, entry.camera, entry.purpose, len(mine), depth, posed))
    return tuple(rows)


def _frames(frames: Sequence[Frame]) -> tuple[FrameRow, ...]:
    return tuple(
        FrameRow(n, f.name, f.set.name, f.file.is_file(), f.t_s) for n, f in enumerate(frames)
    )
