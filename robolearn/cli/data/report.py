"""``robolearn data report`` says what a store is good for, as a page and in short."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro

from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import parse, print_json, say


@dataclass(frozen=True)
class DataReport:
    """Say what a store is good for (imitation, reinforcement learning, which), with reasons."""

    # Store to look at.
    store: tyro.conf.Positional[Path]
    # The page to write, one self-contained HTML file.
    out: Path = Path("data_report.html")
    # Look at whole episodes until this many steps are reached.
    rows: int = 50_000
    # Which episodes are looked at, where not all are.
    seed: int = 0
    # Print one JSON document.
    json: bool = False


def report(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(DataReport, argv, "data report", DataReport.__doc__ or "")
    output_file(args.out, "--out", (".html", ".htm"))
    from robolearn.operations.stores.report import report_store

    made = report_store(args.store, rows=args.rows, seed=args.seed)
    made.write(args.out)
    if args.json:
        print_json(
            {
                "store": made.store,
                "report": str(args.out),
                "advice": dataclasses.asdict(made.advice),
                "measures": dataclasses.asdict(made.measures),
            }
        )
        return 0
    measures, advice = made.measures, made.advice
    looked = f"{measures.sampled_steps} of {measures.steps} steps looked at"
    say(f"{measures.episodes} episodes, {looked}")
    say(advice.headline)
    for sentence in (*advice.reasons, *advice.remedies):
        say(f"- {sentence}")
    say(f"try: {', '.join(advice.algorithms)}")
    say(f"report: {args.out}")
    return 0


REPORT_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"report": (DataReport, report)}
