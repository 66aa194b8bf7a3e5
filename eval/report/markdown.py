"""Writes the report as JSON values and as Markdown, for programs and for pull requests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from eval.plain import plain_values
from eval.report.data import EvaluationData, ReportData
from eval.report.results import (
    GENERALISATION_HEADER,
    T_METHOD,
    T_WORDS,
    generalisation_rows,
    score_method,
    score_text,
)
from eval.report.text import (
    estimate_text,
    markdown_table,
    p_text,
    rate,
    reached,
    reason_words,
    sentence,
)
from eval.report.training import RunFacts
from eval.standing import standing_lines, standing_of
from eval.statistics.intervals import Estimate

VERSION = 2


def evaluation_document(evaluation: EvaluationData) -> dict[str, Any]:
    """An evaluation as JSON values: what was asked, then what its trials say (``summary.json``)."""
    figures = {
        f.name: getattr(evaluation, f.name)
        for f in dataclasses.fields(evaluation)
        if f.name not in ("asked", "folder")
    }
    head = {"format": "robolearn evaluation summary", "version": VERSION}
    return head | plain_values(evaluation.asked) | plain_values(figures)


def report_document(data: ReportData, title: str, summary: Sequence[str]) -> dict[str, Any]:
    """Everything that the page says in figures; null where something is not defined."""
    return plain_values(
        {
            "format": "robolearn report",
            "version": VERSION,
            "title": title,
            "summary": list(summary),
            "task": data.task,
            "evaluation": None if data.evaluation is None else evaluation_document(data.evaluation),
            "runs": [
                {
                    "name": r.name,
                    "seed": r.seed,
                    "settings": r.settings,
                    "last": r.log[-1] if r.log else None,
                    "diagnosis": r.diagnosis,
                }
                for r in data.runs
            ],
            "identification": data.identification,
            "replays": [dataclasses.replace(r, each=()) for r in data.replays],
            "deployed": data.deploy.trials if data.deploy is not None else (),
        }
    )


def report_markdown(data: ReportData, title: str, summary: Sequence[str]) -> str:
    """The tables of the page; plots and videos are only in the page."""
    lines = [f"# {title}", "", *(f"* {s}" for s in summary), ""]
    evaluation = data.evaluation
    if evaluation is not None:
        lines += _results(evaluation) + _comparison(evaluation)
        lines += _generalisation(evaluation)
        lines += _variants(evaluation) + _failures(evaluation)
    if data.runs:
        lines += ["## Training", ""]
        lines += markdown_table(
            ["run", "seed", "updates", "minutes"],
            [
                [r.name, r.seed, str(r.updates), f"{r.seconds / 60:.1f}"]
                for r in data.runs
                if r.updates is not None
            ],
        )
        lines += diagnosis_lines(data.runs)
    if evaluation is not None:
        asked = evaluation.asked
        lines += ["## Where this comes from", "", f"Suite `{asked.suite}`."]
        lines += [f"Protocol: {asked.protocol}.", ""] if asked.protocol else [""]
        lines += ["```bash", asked.command, "```"] if asked.command else []
    return "\n".join(lines).rstrip() + "\n"


def diagnosis_lines(runs: Sequence[RunFacts]) -> list[str]:
    """A line for each run with a critic, and an empty one; nothing without any."""
    told = [(r.name, r.diagnosis) for r in runs]
    lines = [f"* Critic of {n} ({d.verdict}): {'; '.join(d.words)}." for n, d in told if d]
    return [*lines, ""] if lines else []


def _results(evaluation: EvaluationData) -> list[str]:
    rows = [[r.policy, r.world, score_text(r), rate(r)] for r in evaluation.results]
    method = score_method(evaluation.results)
    header = ["policy", "world", f"score [95 %, {method}]", "success [95 %, Wilson]"]
    lines = ["## Results", "", *markdown_table(header, rows)]
    return [*lines, T_WORDS, ""] if method == T_METHOD else lines


def _comparison(evaluation: EvaluationData) -> list[str]:
    comparison = evaluation.comparison
    if comparison is None:
        return []
    rule = comparison.rule
    lines = ["## Which policy is better", "", f"Rule: {rule.words()}.", ""]
    for w in comparison.worlds:
        entries = [[e.name, e.letters, _two(e.success), _two(e.score), str(e.n)] for e in w.entries]
        effects = [
            [f"{f.b} − {f.a}", estimate_text(f.success, 2, sign=True),
             estimate_text(f.score, sign=True), p_text(f.p), str(f.n),
             standing_of(comparison, w.world, f)]
            for f in w.effects
        ]  # fmt: skip
        lines += [f"### {w.world}", ""]
        lines += markdown_table(["policy", "letters", "success", "score", "trials"], entries)
        if effects:
            lines += markdown_table(
                ["difference", "success", "score", "p", "n", "standing"], effects
            )
        lines += [*(f"* {f.words}." for f in w.effects), *(f"* {n}" for n in w.notes), ""]
    return [*lines, *(f"* {sentence(line)}" for line in standing_lines(comparison)), ""]


def _generalisation(evaluation: EvaluationData) -> list[str]:
    notes = [f"* {words}." for words in evaluation.not_generalised]
    if not evaluation.generalisation:
        return [*notes, ""] if notes else []
    rows = generalisation_rows(evaluation.generalisation)
    lines = markdown_table(GENERALISATION_HEADER, rows)
    return ["## Where training has not been", "", *lines, *notes, ""]


def _variants(evaluation: EvaluationData) -> list[str]:
    rows = [
        [e.policy, e.world, e.variant, _two(e.success), estimate_text(e.success_difference, 2,
         sign=True), f"{e.p:.3f}", str(e.n)]
        for e in evaluation.variants
    ]  # fmt: skip
    header = ["policy", "world", "variant", "success", "change", "p (Holm)", "n"]
    return ["## Variants of the worlds", "", *markdown_table(header, rows)] if rows else []


def _failures(evaluation: EvaluationData) -> list[str]:
    rows = [
        [f.policy, f.world, reason_words(f.reason), f"{f.count}/{f.n}", _two(f.share),
         reached(f.score), ", ".join(f.examples)]
        for f in evaluation.failures
    ]  # fmt: skip
    header = ["policy", "world", "reason", "count", "share", "mean score", "for example"]
    return ["## How episodes fail", "", *markdown_table(header, rows)] if rows else []


def _two(e: Estimate) -> str:
    return estimate_text(e, 2)
