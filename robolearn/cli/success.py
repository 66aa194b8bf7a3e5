"""``robolearn success STORE --out RUN``: a classifier of success from labelled episodes."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError


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
    from eval.statistics.intervals import clopper_pearson
    from policies.imitation.success_classifier import SuccessConfig, train_success
    from robolearn.data.store.store import EpisodeStore

    config = SuccessConfig(
        signal=args.signal, held_out=args.held_out, epochs=args.epochs, seed=args.seed
    )
    output_folder(args.out, "--out", "a success classifier")
    store = EpisodeStore.open(args.store)
    infos = [i for i in store.list() if args.signal in i.signals and i.steps]
    if not infos:
        raise ConfigError(f"no episode of '{args.store}' has the signal '{args.signal}'")
    pictures: list[Any] = []
    with progress("read", len(infos), quiet=args.json) as advance:
        for info in infos:
            pictures.append(store.read(info.id).observed(args.signal)[-1])
            advance()
    classifier = train_success(pictures, [i.success for i in infos], config)
    classifier.save(args.out)
    h = classifier.held_out
    error = clopper_pearson(h.errors, h.successes + h.failures)
    document = {
        "classifier": str(args.out),
        "hash": classifier.hash,
        "episodes": len(infos),
        "held_out": dataclasses.asdict(h),
        "error": {"value": error.value, "low": error.low, "high": error.high, "n": error.n,
                  "method": error.method},
        "words": h.words(),
    }  # fmt: skip
    if args.json:
        print_json(document)
    else:
        say(f"{args.out}: {document['words']} ({len(infos)} labelled episodes)")
        say(f"held-out error {error.text()} (exact)")
    return 0
