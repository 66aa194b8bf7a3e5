"""``robolearn report``: one self-contained HTML page from results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from robolearn.cli.common import parse, print_json, say
from robolearn.cli.outputs import output_file
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Args:
    """Write one self-contained HTML page (it works offline) from a demo or results folder."""

    # Folder of the demo (import/, identify/, train/, evaluate/, deploy/).
    demo: Path | None = None
    # Results folder of 'robolearn evaluate' (summary.json).
    results: Path | None = None
    # The page to write.
    out: Path = Path("report.html")
    # The page's title.
    title: str = "From demonstrations to a robot"
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "report", Args.__doc__ or "")
    if (args.demo is None) == (args.results is None):
        raise ConfigError("give either --demo FOLDER or --results FOLDER")
    output_file(args.out, "--out", (".html", ".htm"))
    from eval.report import build_report, summary_points
    from eval.report_data import load_report_data

    data = load_report_data(args.demo or args.results or Path())
    page = build_report(data, args.title)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    partial = args.out.with_name(args.out.name + ".partial")
    partial.write_text(page, encoding="utf-8")
    partial.replace(args.out)
    points = summary_points(data)
    if args.json:
        print_json({"report": str(args.out), "bytes": len(page.encode()), "summary": points})
        return 0
    for point in points:
        say(f"- {point}")
    say(f"report: {args.out} ({len(page.encode()) / 1e6:.1f} MB)")
    return 0
