"""Reports results: one self-contained page, the same as Markdown and as JSON values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.plain import write_text
from eval.report.benchmark_page import (
    benchmark_document,
    benchmark_markdown,
    benchmark_page,
    load_benchmark,
)
from eval.report.build import build_report, summary_points
from eval.report.data import load_evaluation, load_report_data
from eval.report.markdown import report_document, report_markdown
from eval.rule import ScoreInterval
from eval.summary import Result


@dataclass(frozen=True, slots=True)
class Report:
    """Three renderings of the same data, and their conclusions in sentences."""

    # Self-contained HTML.
    page: str
    markdown: str
    document: Mapping[str, Any]
    points: tuple[str, ...]

    def write(self, out: Path) -> None:
        """Write ``out`` (HTML), and beside it .md and .json, each whole or not at all."""
        write_text(out, self.page)
        write_text(out.with_suffix(".md"), self.markdown)
        write_text(out.with_suffix(".json"), json.dumps(self.document, indent=1) + "\n")


def report(
    folder: Path,
    *,
    title: str = "",
    groups: Mapping[str, Sequence[str]] | None = None,
    interval: ScoreInterval = "bounded_mean",
) -> Report:
    """Report a results folder of ``robolearn evaluate``, or the folder of ``robolearn demo``.

    ``groups``: method -> the policies that are its training runs; ``interval``: of mean scores,
    without an assumption or by Student's t. Every figure about policies is
    computed from the folder's trials. Raises :class:`DataError` for files that do not read and for
    results without trials.
    """
    data = load_report_data(folder, groups, interval)
    name = "From demonstrations to a robot" if data.stores else "Results of an evaluation"
    title, points = title or name, summary_points(data)
    return Report(
        build_report(data, title),
        report_markdown(data, title, points),
        report_document(data, title, points),
        tuple(points),
    )


def benchmark(folders: Sequence[Path], *, title: str = "Benchmark record") -> Report:
    """Report many run directories and results folders on one page, an open record."""
    found = load_benchmark(folders)
    return Report(
        benchmark_page(found, title),
        benchmark_markdown(found, title),
        benchmark_document(found, title),
        (f"{len(found.entries)} results, {len(found.runs)} training runs",),
    )


def best_run(results: Path, world: str) -> Path:
    """The run directory of the policy that is best in ``world`` by the measure that its comparison
    decides by, in a results folder of ``robolearn evaluate``; ties go to the other measure, then to
    the first.
    """
    evaluation = load_evaluation(results)
    comparison = evaluation.comparison
    by_success = comparison is not None and comparison.rule.by == "success"

    def worth(result: Result) -> tuple[float, float]:
        score, success = result.score.value, result.success.value
        return (success, score) if by_success else (score, success)

    best = max(evaluation.in_world(world), key=worth)
    return Path(evaluation.asked.run_of(best.policy))
