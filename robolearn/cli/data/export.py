"""``robolearn data export`` writes a store in another format."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro

from robolearn.cli.shared.parse import parse, print_json, progress, say


@dataclass(frozen=True)
class Export:
    """Write a store in another format."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # File or folder to write; it must not exist.
    out: Path
    # lerobot (v3.0), robomimic (HDF5) or diffusion-policy (zarr v2).
    format: str
    # Ids of the episodes to write (none: all).
    episodes: tuple[str, ...] = ()
    # Write pictures too.
    images: bool = True
    # Keep pictures bit for bit where the format compresses them.
    lossless: bool = False
    # Print one JSON document.
    json: bool = False


def export(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Export, argv, "data export", Export.__doc__ or "")
    from robolearn.data.exporters.common import ExportOptions
    from robolearn.data.exporters.registry import export_store
    from robolearn.data.store.store import EpisodeStore

    store = EpisodeStore.open(args.store)
    ids = args.episodes or store.ids()
    with progress("export", len(ids), quiet=args.json) as advance:

        def step(done: int, of: int) -> None:
            del done, of
            advance(1)

        options = ExportOptions(images=args.images, lossless=args.lossless, on_episode=step)
        report = export_store(store, args.out, args.format, options, ids)
    if args.json:
        print_json(dataclasses.asdict(report))
        return 0
    say(f"exported {report.episodes} episodes, {report.steps} steps, to {report.path}")
    for what in report.not_held:
        say(f"not held by the format: {what}")
    return 0


EXPORT_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"export": (Export, export)}
