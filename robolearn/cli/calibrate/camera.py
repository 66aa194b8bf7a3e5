"""``robolearn calibrate camera`` measures a camera's lens from a board, and where the camera is."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from robolearn.cli.shared.consent import require_terminal, wait_for_enter
from robolearn.cli.shared.parse import finite, parse, print_json, say
from robolearn.errors import ConfigError
from robolearn.operations.cell.camera_options import CameraOptions

if TYPE_CHECKING:
    from robolearn.operations.cell.camera import CameraCalibrated


@dataclass(frozen=True)
class CameraArgs:
    """Find a camera's lens and its place: show it a board, then lay the board onto the table."""

    # A file of configs/hardware/ whose camera it is; no arm moves.
    config: Path | None = None
    # Where the board lies on the table for the place: x y yaw of its lower left corner (tags: of
    # their object) [m, m, rad].
    at: tuple[float, float, float] | None = None
    # Which camera, what it is shown, where pictures come from.
    options: Annotated[CameraOptions, tyro.conf.arg(name="")] = field(default_factory=CameraOptions)
    # Write the lens into the config (comments stay).
    write: bool = False
    # Print one JSON document.
    json: bool = False


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(CameraArgs, argv, "calibrate camera", CameraArgs.__doc__ or "")
    if args.config is None:
        raise ConfigError("--config is missing, e.g. --config configs/hardware/my_arm.yaml")
    if args.at is None:
        raise ConfigError(
            "--at X Y YAW is missing: where the board lies on the table for the camera's place"
        )
    from robolearn.operations.cell.camera import CameraListener, calibrate_camera, store_lens

    def show(text: str) -> None:
        say(text, quiet=args.json)

    listener = CameraListener(
        lay=_lay,
        on_live=lambda: show("show the board everywhere in the picture, tilted to all sides"),
        on_view=lambda taken, of: show(f"  {taken}/{of}"),
        on_found=lambda views: show(f"the board was found in {views} picture(s)"),
    )
    found = calibrate_camera(args.config, args.at, args.options, listener)
    if not args.json:
        _show(found)
    if args.write:
        store_lens(args.config, found)
        show(f"written to {args.config}")
    if args.json:
        print_json(_document(found))
    return 0


def _lay() -> None:
    text = "lay the board onto the table as --at says, step back"
    require_terminal(text, "give --table-picture")
    wait_for_enter(text)


def _document(found: CameraCalibrated) -> dict[str, Any]:
    placed, lens, error = found.placed, found.placed.lens, found.place_error
    kept = not found.lens.view_rms_px
    document: dict[str, Any] = {
        "focal_px": list(lens.focal_px),
        "focal_error_px": None if kept else list(found.lens.focal_error_px),
        "centre_px": list(lens.centre_px),
        "centre_error_px": None if kept else list(found.lens.centre_error_px),
        "distortion": list(lens.distortion),
        "distortion_error": None if kept else list(found.lens.distortion_error),
        "views": len(found.lens.view_rms_px),
        "rms_px": found.lens.rms_px,
        "worst_view_px": max(found.lens.view_rms_px, default=0.0),
        "held_out_px": finite(found.held_out_px),
        "position_m": list(lens.position_m),
        "position_error_m": error.position_m.tolist(),
        "quaternion": list(lens.quaternion),
        "rotation_error_deg": np.degrees(error.rotation_rad).tolist(),
        "place_rms_px": placed.rms_px,
        "place_held_out_px": finite(found.place_held_out_px),
        "place_rms_m": placed.rms_m,
        "corners": placed.points,
    }
    if found.T_base_camera is not None:
        document["T_base_camera"] = found.T_base_camera.tolist()
    return document


def _show(found: CameraCalibrated) -> None:
    lens, placed, error = found.lens, found.placed, found.place_error
    (fx, fy), (cx, cy) = lens.focal_px, lens.centre_px
    if not lens.view_rms_px:
        say(
            f"lens          {fx:.1f}, {fy:.1f} px, as it was: nothing here says how well it is"
            " known"
        )
    else:
        (ex, ey), (ecx, ecy) = lens.focal_error_px, lens.centre_error_px
        say("+- is a standard error")
        say(f"focal length  {fx:.1f} +- {ex:.1f}, {fy:.1f} +- {ey:.1f} px")
        say(f"centre        {cx:.1f} +- {ecx:.1f}, {cy:.1f} +- {ecy:.1f} px")
        bent = zip(("k1", "k2", "p1", "p2"), lens.distortion, lens.distortion_error, strict=True)
        say("distortion    " + ", ".join(f"{n} {v:.4f} +- {e:.4f}" for n, v, e in bent))
        say(
            f"left over     {lens.rms_px:.2f} px in {len(lens.view_rms_px)} view(s), the worst"
            f" {max(lens.view_rms_px):.2f}; {found.held_out_px:.2f} px in views that were left out"
        )
    x, y, z = placed.lens.position_m
    dx, dy, dz = (1e3 * v for v in error.position_m)
    rx, ry, rz = np.degrees(error.rotation_rad)
    say(
        f"place         {x:.4f} {y:.4f} {z:.4f} m in the table's frame, +- {dx:.2f} {dy:.2f}"
        f" {dz:.2f} mm, +- {rx:.3f} {ry:.3f} {rz:.3f} degrees about its axes"
    )
    say(
        f"              left over {placed.rms_px:.2f} px, {1e3 * placed.rms_m:.2f} mm on the table"
        f" ({placed.points} corners); {found.place_held_out_px:.2f} px where the other half tells"
    )
