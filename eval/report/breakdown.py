"""Sections of the report that rest on single trials: which policy is better, variants, failures."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from eval.breakdown import VariantEffect, failures, variant_effects
from eval.compare import Rule, WorldComparison, compare_policies
from eval.report.data import ReportData, RunFacts
from eval.report.page import note, paragraph, picture, table, text
from eval.report.plots import difference_plot, seeds_plot
from eval.report.text import REASON_WORDS, estimate_text, number
from eval.summary import estimate_json

MIN_RUNS = 2


def reason_words(reason: str) -> str:
    """A reason in words for people."""
    return REASON_WORDS.get(reason, reason.replace("_", " "))


def comparisons(data: ReportData) -> tuple[WorldComparison, ...]:
    """Every pair of policies in every world, by the fixed rule; nothing with a single policy."""
    if len({r.policy for r in data.trials}) < MIN_RUNS:
        return ()
    return compare_policies(data.trials, RULE, groups=data.groups, common=True, least=1)


RULE = Rule()


def comparison_section(data: ReportData) -> str:
    """Letters, effects and conclusions."""
    worlds = comparisons(data)
    if not worlds:
        return ""
    body = paragraph(
        f"Declared rule: {RULE.words()}.",
        "Policies that share a letter were not separated by these trials, which does not make them"
        " equal.",
    )
    return body + "".join(_world(w) for w in worlds)


def _world(w: WorldComparison) -> str:
    body = f"<h3>{text(w.world)}</h3>" + table(
        ["policy", "letters", "success [95 %]", "score [95 %]", "trials", "training runs"],
        [
            [e.name, e.letters, estimate_text(e.success, 2), estimate_text(e.score), str(e.n),
             str(len(e.runs))]
            for e in w.entries
        ],
        numeric_from=2,
    )  # fmt: skip
    spreads = [e for e in w.entries if e.spread is not None]
    if spreads:
        body += table(
            ["method", "between training runs", "between episodes of a run", "due to the run"],
            [
                [e.name, number(_finite(e.spread.between)), number(_finite(e.spread.within)),
                 "–" if math.isnan(e.spread.share) else f"{100 * e.spread.share:.0f} %"]
                for e in spreads if e.spread is not None
            ],
            "Standard deviations of the score: how much the luck of training matters, apart from"
            " that of single episodes; and the share of the variance that is due to the run.",
        )  # fmt: skip
    items = "".join(f"<li>{text(_sentence(f.words))}</li>" for f in w.effects)
    notes = "".join(note(_sentence(n)) for n in w.notes)
    return f"{body}<ul>{items}</ul>{notes}"


def variants_section(data: ReportData) -> str:
    """Each variant against the world as it is."""
    effects = variant_effects(data.trials)
    if not effects:
        return ""
    body = paragraph(
        "Each variant changes one thing about the world (or several at once) and keeps starts and"
        " seeds; the difference is read off start by start. Perturbations of magnitude 1 are"
        " described in the documentation. p values are McNemar's, corrected for the number of"
        " variants (Holm)."
    )
    for policy, world in dict.fromkeys((e.policy, e.world) for e in effects):
        rows = [e for e in effects if (e.policy, e.world) == (policy, world)]
        body += f"<h3>{text(f'{policy} in {world}')}</h3>" + _variants(rows)
    return body


def _variants(rows: list[VariantEffect]) -> str:
    plotted = [
        {
            "a": "nominal",
            "b": e.variant,
            "world": "",
            "score_difference": estimate_json(e.score_difference),
            "success_difference": estimate_json(e.success_difference),
        }
        for e in rows
    ]
    clear = [e.words for e in rows if e.p <= RULE.alpha]
    said = "; ".join(clear) if clear else "no variant was shown to change success"
    return (
        table(
            ["variant", "success [95 %]", "change of success", "change of score", "p", "n"],
            [
                [e.variant, estimate_text(e.success, 2),
                 estimate_text(e.success_difference, 2, sign=True),
                 estimate_text(e.score_difference, 2, sign=True), f"{e.p:.3f}", str(e.n)]
                for e in rows
            ],
            _sentence(said[:1].upper() + said[1:]),
        )
        + picture(
            difference_plot(plotted),
            "Change of score and of success under each variant",
            "Left of the dashed line: worse than in the nominal world. An interval that crosses it"
            " leaves open whether anything changed.",
        )
    )  # fmt: skip


def failures_section(data: ReportData) -> str:
    """How episodes fail, with counts and where to look."""
    rows = failures(data.trials)
    if not rows:
        return ""
    body = paragraph(
        "Every episode that did not succeed, by the reason why it ended. The score says how far"
        " such episodes had come at best. Conditions are named as in the suite."
    )
    for policy in dict.fromkeys(f.policy for f in rows):
        body += f"<h3>{text(policy)}</h3>" + table(
            ["world", "reason", "for example", "count", "share [95 %, Wilson]", "mean score"],
            [
                [f.world, reason_words(f.reason), ", ".join(f.examples), f"{f.count} of {f.n}",
                 estimate_text(f.share, 2), number(f.score, 2)]
                for f in rows if f.policy == policy
            ],
            numeric_from=3,
        )  # fmt: skip
    return body


def seeds_section(data: ReportData) -> str:
    """Learning curves of runs that differ in nothing but the seed."""
    plots: list[str] = []
    for runs in run_families(data.runs):
        key, curves = _curves(runs)
        if curves:
            names = ", ".join(f"{r.name} (seed {seed_of(r)})" for r in runs)
            plots.append(
                picture(
                    seeds_plot(curves, key),
                    f"{key} of {len(runs)} runs over training",
                    f"Thin: each run; thick: their mean; band: smallest to largest. {names}.",
                )
            )
    if not plots:
        return ""
    return paragraph(
        "The same experiment with other seeds. Losses that agree do not mean that policies do: how"
        " far the runs are apart in trials is in the comparison above, when their trials are here."
    ) + "".join(plots)


def seed_of(run: RunFacts) -> str:
    """The seed of a run."""
    return str(run.provenance.get("seed", run.settings.get("seed", "–")))


def run_families(runs: tuple[RunFacts, ...]) -> list[list[RunFacts]]:
    """Runs that differ in nothing but their seed, where there are several."""
    families: dict[str, list[RunFacts]] = {}
    for run in runs:
        rest = {k: v for k, v in run.settings.items() if k != "seed"}
        if run.settings and run.metrics:
            families.setdefault(json.dumps(rest, sort_keys=True, default=str), []).append(run)
    return [f for f in families.values() if len(f) >= MIN_RUNS]


def _curves(runs: list[RunFacts]) -> tuple[str, dict[str, tuple[Any, Any]]]:
    names = [k for k in runs[0].metrics[0] if k.startswith("loss")]
    if not names:
        return "", {}
    curves: dict[str, tuple[Any, Any]] = {}
    for run in runs:
        points = [(line["step"], line[names[0]]) for line in run.metrics if names[0] in line]
        if len(points) >= MIN_RUNS:
            steps, values = zip(*points, strict=True)
            curves[run.name] = (np.asarray(steps), np.asarray(values, dtype=np.float64))
    return names[0], curves


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _sentence(words: str) -> str:
    return words if words.endswith(".") else words + "."
