"""``robolearn calibrate handeye`` finds where a camera is on the arm's tool, or beside the arm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.operations.cell.hand_eye import HandEyeCalibrated


@dataclass(frozen=True)
class HandEyeArgs:
    """Find where a camera is: on the tool (eye-in-hand) or fixed beside the arm (eye-to-hand)."""

    # Capture folder with pictures of the board and the arm's poses (docs/capture_format.md); or
    # give --poses.
    capture: Annotated[Path | None, tyro.conf.Positional] = None
    # Which camera of the capture, where several have hand-eye pictures.
    camera: str = ""
    # A JSON list of {"T_base_tool": 4x4, "T_camera_board": 4x4} [m]: the arm's pose and that of a
    # board before the camera at the same moment, at 15 to 30 places; turn the tool about two axes.
    poses: Path | None = None
    # What moves with the tool: the camera (the board stands still), or the board (the camera
    # does).
    setup: Literal["eye-in-hand", "eye-to-hand"] | None = None
    # Print one JSON document.
    json: bool = False


def run(argv: list[str]) -> int:
    """Run the verb."""
    args = parse(HandEyeArgs, argv, "calibrate handeye", HandEyeArgs.__doc__ or "")
    found = _pictures(args) if args.poses is None else _poses(args, args.poses)
    if args.json:
        print_json(_document(found))
    else:
        _show(found)
    return 0


def _pictures(args: HandEyeArgs) -> HandEyeCalibrated:
    if args.capture is None:
        raise ConfigError(
            "give a capture folder with pictures of the board, or --poses: a JSON file with the"
            " pairs of poses"
        )
    if args.setup is not None:
        raise ConfigError("--setup goes with --poses; a capture says what camera and board ride on")
    from robolearn.operations.capture.hand_eye import calibrate_hand_eye_pictures

    return calibrate_hand_eye_pictures(args.capture, args.camera)


def _poses(args: HandEyeArgs, poses: Path) -> HandEyeCalibrated:
    if args.capture is not None or args.camera:
        raise ConfigError("give either a capture folder or --poses, not both")
    if args.setup is None:
        raise ConfigError(
            "--setup is missing: eye-in-hand (the camera moves with the tool) or eye-to-hand (the"
            " camera stands still, the tool carries the board)"
        )
    from robolearn.operations.cell.hand_eye import calibrate_hand_eye

    return calibrate_hand_eye(poses, args.setup)


def _names(found: HandEyeCalibrated) -> tuple[str, str]:
    """What camera and board are places in."""
    return ("tool", "base") if found.found.setup == "eye-in-hand" else ("base", "tool")


def _document(found: HandEyeCalibrated) -> dict[str, Any]:
    result, (parent, other) = found.found, _names(found)
    T, half_m = result.T_parent_camera, result.half_m
    return {
        "setup": result.setup,
        f"T_{parent}_camera": T.tolist(),
        "intervals": {
            "position_m": [[p - h, p + h] for p, h in zip(T[:3, 3], half_m, strict=True)],
            "rotation_deg": [[-h, h] for h in _degrees(result.half_rad)],
        },
        f"T_{other}_board": result.T_parent_board.tolist(),
        "outliers": list(result.outliers),
        "copies": list(result.copies),
        "places": result.places,
        "exchanged": [list(pair) for pair in found.exchanged],
        "poses": found.poses,
        **({"pictures": list(found.names)} if found.names else {}),
        "notes": list(found.notes),
        "residual": {"position_m": result.rms_m, "rotation_deg": math.degrees(result.rms_rad)},
        "held_out": {
            "position_m": result.held_out_m,
            "rotation_deg": math.degrees(result.held_out_rad),
            **({"reprojection_px": found.held_out_px} if found.names else {}),
        },
        "methods": {
            m.name: {"position_m": m.distance_m, "rotation_deg": math.degrees(m.distance_rad)}
            for m in result.methods
        },
    }


def _degrees(values: Any) -> list[float]:
    return [math.degrees(v) for v in values]


def _show(found: HandEyeCalibrated) -> None:
    result, (parent, _) = found.found, _names(found)
    T = result.T_parent_camera
    x, y, z = (1e3 * v for v in T[:3, 3])
    dx, dy, dz = (1e3 * v for v in result.half_m)
    rx, ry, rz = _degrees(result.half_rad)
    say(f"T_{parent}_camera, the camera (x right, y down, z away) in the {parent}'s frame [m]:")
    for row in T:
        say("  " + " ".join(f"{v:9.5f}" for v in row))
    say(f"position     {x:.2f} +- {dx:.2f}, {y:.2f} +- {dy:.2f}, {z:.2f} +- {dz:.2f} mm (95 %)")
    say(f"orientation  +- {rx:.3f}, {ry:.3f}, {rz:.3f} degrees about the {parent}'s axes (95 %)")
    say(
        f"left over    {1e3 * result.rms_m:.2f} mm, {math.degrees(result.rms_rad):.3f} degrees of"
        f" the board's pose; {1e3 * result.held_out_m:.2f} mm,"
        f" {math.degrees(result.held_out_rad):.3f} degrees where a pose was left out"
        + (f", {found.held_out_px:.2f} px of its picture" if found.names else "")
    )
    used = found.poses - len(result.outliers) - len(result.copies)
    say(f"poses        {used} of {found.poses} believed")
    for i in result.outliers:
        partner = next((set(p) - {i} for p in found.exchanged if i in p), None)
        other = found.name(partner.pop()) if partner else ""
        why = f"; it fits the place of {other}: exchanged" if other else ""
        say(f"  {found.name(i)} is wrong: {result.distances[i]:.0f} standard deviations off{why}")
    apart = ", ".join(f"{m.name} {1e3 * m.distance_m:.1f}" for m in result.methods)
    say(f"closed forms of the same poses are so far from it [mm]: {apart}")
    for note in found.notes:
        say(f"note: {note}")
