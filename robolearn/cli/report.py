"""``robolearn report``: one self-contained HTML page from results; Markdown and JSON beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Args:
    """Write one self-contained HTML page (it works offline), and the same as Markdown and JSON."""

    # Folder of the demo (import/, identify/, train/, evaluate/, deploy/).
    demo: Path | None = None
    # Results folder of 'robolearn evaluate' (summary.json).
    results: Path | None = None
    # Many run directories and results folders: a benchmark page over all of them.
    runs: tuple[Path, ...] = ()
    # Training runs of one method: NAME=POLICY,POLICY,... (may be given several times).
    group: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
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
    page, markdown, document, points = _many(args) if args.runs else _one(args)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    values = json.dumps(document, indent=1, default=str) + "\n"
    for path, text in (
        (args.out, page),
        (args.out.with_suffix(".md"), markdown),
        (args.out.with_suffix(".json"), values),
    ):
        partial = path.with_name(path.name + ".partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
    if args.json:
        print_json({"report": str(args.out), "bytes": len(page.encode()), "summary": points})
        return 0
    for point in points:
        say(f"- {point}")
    say(f"report: {args.out} ({len(page.encode()) / 1e6:.1f} MB)")
    return 0


def _one(args: Args) -> tuple[str, str, dict[str, Any], list[str]]:
    from eval.report.build import build_report, summary_points
    from eval.report.data import load_report_data
    from eval.report.markdown import report_document, report_markdown
    from robolearn.cli.compare import group_of

    groups = dict(group_of(g) for g in args.group)
    data = load_report_data(args.demo or args.results or Path(), groups)
    name = "From demonstrations to a robot" if args.demo else "Results of an evaluation"
    title, points = args.title or name, summary_points(data)
    return (
        build_report(data, title),
        report_markdown(data, title, points),
        report_document(data, title, points),
        points,
    )


def _many(args: Args) -> tuple[str, str, dict[str, Any], list[str]]:
    from eval.report.benchmark_page import (
        benchmark_document,
        benchmark_markdown,
        benchmark_page,
        load_benchmark,
    )

    benchmark = load_benchmark(args.runs)
    title = args.title or "Benchmark record"
    points = [f"{len(benchmark.entries)} results, {len(benchmark.runs)} training runs"]
    return (
        benchmark_page(benchmark, title),
        benchmark_markdown(benchmark, title),
        benchmark_document(benchmark, title),
        points,
    )
