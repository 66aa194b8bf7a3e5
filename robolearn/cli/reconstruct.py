"""``robolearn reconstruct CAPTURE --out SCENE`` makes a scene package from a capture folder."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say


@dataclass(frozen=True, slots=True)
class Args:
    """Build a scene of a real table and what stands on it from pictures with depth.

    Exit code 1: the scene is written, but a thing of the capture is missing in it, and why is said.
    """

    # Capture folder (docs/capture_format.md).
    capture: Annotated[Path, tyro.conf.Positional]
    # Folder of the scene package to write.
    out: Path
    # Task of the scene: free, or that of the scene that --arm names.
    task: str = "free"
    # Scene package whose robot stands at the table (ur5e_table, panda_table, a folder); default:
    # the arm that capture.yaml names, else no robot.
    arm: str = ""
    # What CoACD may take per object that is no box, cylinder or sphere [s]; its cut is used where
    # it is nearer to the scan than ours. 0: it is not asked (pip install 'robolearn[decompose]').
    coacd_seconds: float = 0.0
    # New folder of a capture with depth that is made first, of pictures that have none: places by
    # structure from motion, metres by the arm's poses or the board, depth from the pictures
    # themselves (pip install 'robolearn[sfm]').
    from_colours: Path | None = None
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "reconstruct", Args.__doc__ or "")
    from robolearn.operations.scenes.reconstruct import reconstruct

    output_folder(args.out, "--out", "a scene package")
    capture = args.capture
    if args.from_colours is not None:
        from robolearn.operations.scenes.from_pictures import depth_from_pictures

        tell = partial(say, quiet=args.json)
        capture = depth_from_pictures(capture, args.from_colours, tell).out
    made = reconstruct(
        capture,
        args.out,
        task=args.task,
        arm=args.arm,
        coacd_s=args.coacd_seconds,
        on_note=lambda text: say(text, quiet=args.json),
    )
    details = made.scene.config.provenance.details
    code = 1 if made.missing else 0
    if args.json:
        print_json({"scene": str(args.out), "scene_hash": made.scene.content_hash, **details})
        return code
    for line in made.said:
        say(f"look at: {line}")
    for entry in made.assumed:
        say(f"assumed: {entry['what']}: {entry['value']} ({entry['why']})")
    for name, why in made.missing.items():
        say(f"missing: {name}: {why}")
    say(f"{sum(details['seconds'].values()):.0f} s; scene package: {args.out}")
    say(f"next: robolearn scene verify {args.out} --capture {capture}")
    return code
