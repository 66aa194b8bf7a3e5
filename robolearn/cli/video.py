"""``robolearn video STORE`` writes videos of stored episodes that browsers play."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import counting, parse, print_json, say


@dataclass(frozen=True, slots=True)
class Args:
    """Write a video (H.264, MP4) per episode: its recorded pictures, cameras side by side."""

    # Episode store.
    store: Annotated[Path, tyro.conf.Positional]
    # Folder for <episode>.mp4.
    out: Path = Path("videos")
    # The first N episodes; default every one.
    episodes: int | None = None
    # Image signals, for instance top/image,wrist/image; default all.
    cameras: str = ""
    # Height of the video in pixels; default that of the tallest picture.
    height: int | None = None
    # Do the recorded actions again in this world and film what its cameras see, for instance
    # pick_place,camera=agent+wrist.
    world: str = ""
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Read, draw, write."""
    args = parse(Args, argv, "video", Args.__doc__ or "")
    from robolearn.operations.pictures.film import film_episodes

    output_folder(args.out, "--out", "videos")
    with counting("video", quiet=args.json) as show:
        filmed = film_episodes(
            args.store,
            args.out,
            episodes=args.episodes,
            cameras=[c.strip() for c in args.cameras.split(",") if c.strip()],
            height=args.height,
            world=args.world,
            on_filmed=show,
        )
    if args.json:
        rows = [{"episode": f.episode, "video": str(f.video), "frames": f.frames} for f in filmed]
        print_json({"videos": rows})
    else:
        say(f"{len(filmed)} video(s) in {args.out}")
    return 0
