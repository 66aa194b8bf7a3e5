"""``robolearn success STORE --out RUN`` trains a classifier of success from labelled episodes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say


@dataclass(frozen=True, slots=True)
class Args:
    """Train a classifier of success from the last pictures of labelled episodes."""

    # Episode store whose outcomes (as annotated, else as recorded) are the labels.
    store: Annotated[Path, tyro.conf.Positional]
    # Folder to write: success.json, success.safetensors.
    out: Path
    # Picture that is judged.
    signal: str = "top/image"
    # Share of the episodes that only measures the error.
    held_out: float = 0.4
    # Passes over the training pictures.
    epochs: int = 60
    # Everything random follows from this number.
    seed: int = 0
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Read the last pictures, train, measure, write."""
    args = parse(Args, argv, "success", Args.__doc__ or "")
    output_folder(args.out, "--out", "a success classifier")
    from robolearn.operations.success import train_classifier

    with progress("read", None, quiet=args.json) as advance:
        done = train_classifier(
            args.store,
            args.out,
            signal=args.signal,
            held_out=args.held_out,
            epochs=args.epochs,
            seed=args.seed,
            on_read=lambda _, total: advance(total=total),
        )
    if args.json:
        print_json(done.document())
    else:
        say(f"{args.out}: {done.held_out.words()} ({done.episodes} labelled episodes)")
        say(f"held-out error {done.error.text()} (exact)")
    return 0
