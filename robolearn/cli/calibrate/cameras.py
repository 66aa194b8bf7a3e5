"""``robolearn calibrate cameras`` finds lenses and places of a capture's cameras together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.parse import parse, print_json, say

if TYPE_CHECKING:
    from robolearn.calibration.rig import FoundCamera, FoundPlace
    from robolearn.geometry import Pose
    from robolearn.operations.capture.cameras import RigCalibrated

_FRAMES = {
    "base": "the arm's base",
    "board": "the board on the table",
    "camera": "the first camera that shares a board with another one",
}


@dataclass(frozen=True, slots=True)
class CamerasArgs:
    """Find lenses and places of all cameras of a capture, of boards and arm, in one solution."""

    # Capture folder with pictures of the board (docs/capture_format.md).
    capture: Annotated[Path, tyro.conf.Positional]
    # Find the lens of cameras anew whose lens capture.yaml gives.
    find_lenses: bool = False
    # Write lenses, places and the arm's base into capture.yaml (comments stay).
    write: bool = False
    # Print one JSON document.
    json: bool = False


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(CamerasArgs, argv, "calibrate cameras", CamerasArgs.__doc__ or "")
    from robolearn.operations.capture.cameras import calibrate_cameras, store_cameras

    done = calibrate_cameras(args.capture, find_lenses=args.find_lenses)
    if not args.json:
        show_rig(done)
    if args.write:
        path = store_cameras(done)
        say(f"written to {path}", quiet=args.json)
    if args.json:
        print_json(rig_document(done))
    return 0


def rig_document(done: RigCalibrated) -> dict[str, Any]:
    """As a JSON document."""
    found = done.found
    return {
        "frame": found.frame,
        "cameras": {c.name: _camera_document(done, c) for c in found.cameras},
        "T_frame_board": _place_document(found.T_frame_board),
        "T_tool_board": _place_document(found.T_tool_board),
        "T_table_base": _rows(done.T_table_base),
        "T_table_board": _rows(done.T_table_board),
        "outliers": dict(found.outliers),
        "notes": [*found.notes, *done.findings],
    }


def _camera_document(done: RigCalibrated, camera: FoundCamera) -> dict[str, Any]:
    names = ("fx", "fy", "cx", "cy", "k1", "k2", "p1", "p2")
    T = done.place(camera)
    return {
        "lens": dict(zip(names, camera.lens.tolist(), strict=True)),
        "lens_half": dict(zip(names, camera.lens_half.tolist(), strict=True)),
        "place": _place_document(camera.place),
        "T_mount_camera": None if T is None else T.tolist(),
        "pictures": camera.pictures,
        "rms_px": camera.rms_px,
        "held_out_px": camera.held_out_px,
    }


def _rows(T: Pose | None) -> list[list[float]] | None:
    return None if T is None else T.tolist()


def _place_document(place: FoundPlace | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "T": place.T.tolist(),
        "half_m": place.half_m.tolist(),
        "half_deg": [math.degrees(v) for v in place.half_rad],
    }


def show_rig(done: RigCalibrated) -> None:
    """As text."""
    found = done.found
    say(f"places are given in the frame of {_FRAMES[found.frame]}; +- is half a 95 % interval")
    for camera in found.cameras:
        say(f"camera {camera.name} ({camera.pictures} pictures)")
        say(f"  lens         {_lens(camera)}")
        on = "on the flange" if camera.mount == "flange" else "in that frame"
        say(f"  place        {_place(camera.place, on)}")
        say(
            f"  left over    {camera.rms_px:.2f} px; {camera.held_out_px:.2f} px where the others"
            " predict a picture"
        )
    say(f"board on the table   {_place(found.T_frame_board, 'in that frame')}")
    say(f"board on the flange  {_place(found.T_tool_board, 'on the flange')}")
    T_table_base = done.T_table_base
    if T_table_base is not None:
        x, y, z = T_table_base[:3, 3]
        say(f"the arm's base       {x:.4f} {y:.4f} {z:.4f} m in the table's frame")
    for name, why in found.outliers.items():
        say(f"left out: {name}: {why}")
    for note in (*found.notes, *done.findings):
        say(f"note: {note}")


def _lens(camera: FoundCamera) -> str:
    fx, fy, cx, cy, *distortion = camera.lens.tolist()
    if not camera.lens_half.any():
        return f"focal length {fx:.1f}, {fy:.1f} px, as given"
    ex, ey, ecx, ecy, *_ = camera.lens_half.tolist()
    k1, k2, p1, p2 = distortion
    return (
        f"focal length {fx:.1f} +- {ex:.1f}, {fy:.1f} +- {ey:.1f} px; centre {cx:.1f} +- {ecx:.1f},"
        f" {cy:.1f} +- {ecy:.1f} px; distortion {k1:.4f} {k2:.4f} {p1:.5f} {p2:.5f}"
    )


def _place(place: FoundPlace | None, where: str) -> str:
    if place is None:
        return "not known: no picture tells"
    x, y, z = place.T[:3, 3]
    mm, deg = 1e3 * place.half_m, [math.degrees(v) for v in place.half_rad]
    if not place.half_m.any():
        return "the frame of the others"
    return (
        f"{x:.4f} {y:.4f} {z:.4f} m {where}, +- {mm[0]:.2f} {mm[1]:.2f} {mm[2]:.2f} mm,"
        f" +- {deg[0]:.3f} {deg[1]:.3f} {deg[2]:.3f} degrees"
    )
