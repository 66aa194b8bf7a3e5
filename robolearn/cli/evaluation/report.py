"""``robolearn report`` writes one self-contained HTML page, Markdown and JSON beside it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from robolearn.cli.evaluation.compare import group_of
from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Args:
    """Write one self-contained HTML page (it works offline), and the same as Markdown and JSON."""

    # Folder of the demo (import/, identify/, train/, evaluate/, deploy/).
    demo: Path | None = None
    # Results folder of 'robolearn evaluate' (trials.sqlite).
    results: Path | None = None
    # Many run directories and results folders: a benchmark page over all of them.
    runs: tuple[Path, ...] = ()
    # Training runs of one method: NAME=POLICY,POLICY,... (may be given several times).
    group: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    # The interval of mean scores: bounded_mean assumes nothing but that scores lie between 0 and 1;
    # t (Student's) that their mean is nearly normal, which few trials and rare failures are not.
    interval: Literal["bounded_mean", "t"] = "bounded_mean"
    # The page to write; .md and .json go beside it.
    out: Path = Path("report.html")
    # The page's title.
    title: str = ""
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "report", Args.__doc__ or "")
    if sum((args.demo is not None, args.results is not None, bool(args.runs))) != 1:
        raise ConfigError(
            "give either --demo FOLDER or --results FOLDER or --runs FOLDER [FOLDER ...]"
        )
    output_file(args.out, "--out", (".html", ".htm"))
    from robolearn.operations.report import benchmark, report

    groups = dict(group_of(g) for g in args.group)
    if args.runs:
        made = benchmark(args.runs, title=args.title or "Benchmark record")
    else:
        made = report(
            args.demo or args.results or Path(),
            title=args.title,
            groups=groups,
            interval=args.interval,
        )
    made.write(args.out)
    size = len(made.page.encode())
    if args.json:
        print_json({"report": str(args.out), "bytes": size, "summary": made.points})
        return 0
    for point in made.points:
        say(f"- {point}")
    say(f"report: {args.out} ({size / 1e6:.1f} MB)")
    return 0
