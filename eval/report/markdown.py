"""The report as JSON values and as Markdown, for programs and for pull requests."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from eval.breakdown import failures, variant_effects
from eval.report.breakdown import RULE, comparisons, reason_words, seed_of
from eval.report.data import ReportData
from eval.report.text import Json, estimate_text, interval, number, rate, signed
from eval.statistics.intervals import Estimate

VERSION = 1


def report_document(data: ReportData, title: str, summary: Sequence[str]) -> dict[str, Any]:
    """Everything that the page says in figures; null where something is not defined."""
    document = {
        "format": "robolearn report",
        "version": VERSION,
        "title": title,
        "summary": list(summary),
        "evaluation": data.evaluation,
        "comparison": {
            "rule": RULE.words(),
            "worlds": [dataclasses.asdict(w) for w in comparisons(data)],
        },
        "variants": [dataclasses.asdict(e) for e in variant_effects(data.trials)],
        "failures": [dataclasses.asdict(f) for f in failures(data.trials)],
        "runs": [
            {
                "name": r.name,
                "seed": seed_of(r),
                "settings": r.settings,
                "last": r.metrics[-1] if r.metrics else None,
            }
            for r in data.runs
        ],
        "replays": {k: _without_episodes(v) for k, v in data.replays.items()},
        "deployed": list(data.deploy.trials) if data.deploy else [],
    }
    return json.loads(json.dumps(document, default=str), parse_constant=lambda _: None)


def report_markdown(data: ReportData, title: str, summary: Sequence[str]) -> str:
    """The tables of the page; plots and videos are only in the page."""
    lines = [f"# {title}", "", *(f"* {s}" for s in summary), ""]
    lines += _results(data) + _comparison(data) + _variants(data) + _failures(data)
    if data.runs:
        lines += ["## Training", ""]
        lines += _table(
            ["run", "seed", "updates", "minutes"],
            [
                [r.name, seed_of(r), str(r.metrics[-1].get("step", "–")),
                 f"{float(r.metrics[-1].get('seconds', 0.0)) / 60:.1f}"]
                for r in data.runs if r.metrics
            ],
        )  # fmt: skip
    evaluation = data.evaluation
    if evaluation is not None:
        lines += ["## Where this comes from", "", f"Suite `{evaluation['suite']}`."]
        lines += [f"Protocol: {evaluation.get('protocol', '')}.", "", "```bash"]
        lines += [str(evaluation.get("command", "")), "```"]
    return "\n".join(lines).rstrip() + "\n"


def _results(data: ReportData) -> list[str]:
    if data.evaluation is None:
        return []
    rows = [
        [r["policy"], r["world"], f"{number(r['score']['value'])} {interval(r['score'])}", rate(r)]
        for r in data.evaluation["results"]
    ]
    lines = ["## Results", "", *_table(["policy", "world", "score", "success"], rows)]
    for c in data.evaluation.get("paired", ()):
        what = f"{c['b']} − {c['a']} in {c['world']}"
        lines.append(f"* {what}: score {signed(c['score_difference'])}: {c['words']}.")
    return [*lines, ""]


def _comparison(data: ReportData) -> list[str]:
    worlds = comparisons(data)
    if not worlds:
        return []
    lines = ["## Which policy is better", "", f"Rule: {RULE.words()}.", ""]
    for w in worlds:
        rows = [[e.name, e.letters, _e(e.success), _e(e.score), str(e.n)] for e in w.entries]
        lines += [f"### {w.world}", ""]
        lines += _table(["policy", "letters", "success", "score", "trials"], rows)
        lines += [*(f"* {f.words}." for f in w.effects), *(f"* {n}" for n in w.notes), ""]
    return lines


def _variants(data: ReportData) -> list[str]:
    effects = variant_effects(data.trials)
    if not effects:
        return []
    rows = [
        [e.policy, e.world, e.variant, _e(e.success), estimate_text(e.success_difference, 2,
         sign=True), f"{e.p:.3f}", str(e.n)]
        for e in effects
    ]  # fmt: skip
    header = ["policy", "world", "variant", "success", "change", "p (Holm)", "n"]
    return ["## Variants of the worlds", "", *_table(header, rows)]


def _failures(data: ReportData) -> list[str]:
    rows = [
        [f.policy, f.world, reason_words(f.reason), f"{f.count}/{f.n}", _e(f.share),
         number(f.score, 2), ", ".join(f.examples)]
        for f in failures(data.trials)
    ]  # fmt: skip
    header = ["policy", "world", "reason", "count", "share", "mean score", "for example"]
    return ["## How episodes fail", "", *_table(header, rows)] if rows else []


def _e(e: Estimate) -> str:
    return estimate_text(e, 2)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(str(c).replace("|", "\\|") for c in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *(line(r) for r in rows), ""]


def _without_episodes(document: Json) -> dict[str, Any]:
    return {k: v for k, v in document.items() if k != "per_episode"}
