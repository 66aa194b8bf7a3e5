"""Writes the sections that look into trials: which policy is better, variants, failures, clips."""

from __future__ import annotations

import math
from collections.abc import Sequence

from eval.breakdown import VariantEffect
from eval.compare import Comparison, WorldComparison
from eval.report.data import Clip, ReportData
from eval.report.page import clip, note, paragraph, picture, table, text, tiles
from eval.report.plots import DifferenceBar, difference_plot, seeds_plot
from eval.report.text import estimate_text, number, p_text, reached, reason_words, sentence
from eval.report.training import loss_curves, run_families
from eval.standing import standing_lines, standing_of

# A page that can still be mailed: what is beyond is left beside the page. Base64 adds a third.
BUDGET_BYTES = 9_000_000


def comparison_section(data: ReportData) -> str:
    """Letters, differences and conclusions, by one declared rule."""
    comparison = data.evaluation.comparison if data.evaluation is not None else None
    if comparison is None:
        return ""
    body = paragraph(
        f"Declared rule: {comparison.rule.words()}.",
        f"Letters are about the declared measure, {comparison.rule.by}: policies that share one"
        " were not separated by these trials, which does not make them equal.",
        "All differences of this section were decided together: an interval leaves out 0 exactly"
        " where its difference is decided.",
        "Perturbed worlds are a family of their own."
        if any("~" in w.world for w in comparison.worlds)
        else "",
    )
    body += "".join(note(sentence(line)) for line in standing_lines(comparison))
    body += "".join(_world(w, comparison) for w in comparison.worlds)
    return body + _differences(comparison)


def _world(w: WorldComparison, comparison: Comparison) -> str:
    body = f"<h3>{text(w.world)}</h3>" + table(
        ["policy", "letters", "success [95 %]", "score [95 %]", "trials", "training runs"],
        [
            [e.name, e.letters, estimate_text(e.success, 2), estimate_text(e.score), str(e.n),
             str(len(e.runs))]
            for e in w.entries
        ],
        numeric_from=2,
    )  # fmt: skip
    spreads = [(e.name, e.spread) for e in w.entries if e.spread is not None]
    if spreads:
        body += table(
            ["method", "between training runs", "between episodes of a run", "due to the run"],
            [
                [name, number(spread.between), number(spread.within),
                 "–" if math.isnan(spread.share) else f"{100 * spread.share:.0f} %"]
                for name, spread in spreads
            ],
            "Standard deviations of the score: how much the luck of training matters, apart from"
            " that of single episodes; and the share of the variance that is due to the run.",
        )  # fmt: skip
    if w.effects:
        body += table(
            ["difference", "success [95 %, family]", "score [95 %, family]",
             f"p of {comparison.rule.by}", "n", "standing"],
            [
                [f"{f.b} − {f.a}", estimate_text(f.success, 2, sign=True),
                 estimate_text(f.score, sign=True), p_text(f.p), str(f.n),
                 standing_of(comparison, w.world, f)]
                for f in w.effects
            ],
            "Paired by start and seed. p is adjusted for the family; the intervals hold together.",
        )  # fmt: skip
    items = "".join(f"<li>{text(sentence(f.words))}</li>" for f in w.effects)
    notes = "".join(note(sentence(n)) for n in w.notes)
    return f"{body}<ul>{items}</ul>{notes}"


def _differences(comparison: Comparison) -> str:
    """All worlds as they are in one picture; variants have a section of their own."""
    bars = [
        DifferenceBar(f"{f.b} − {f.a}\n{w.world}", f.score, f.success)
        for w in comparison.worlds
        if "~" not in w.world
        for f in w.effects
    ]
    if not bars:
        return ""
    return picture(
        difference_plot(bars),
        "Paired differences with intervals",
        "The same differences: an interval that reaches the dashed line leaves open who is better.",
    )


def variants_section(data: ReportData) -> str:
    """Each variant against the world as it is."""
    effects = data.evaluation.variants if data.evaluation is not None else ()
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


def _variants(rows: Sequence[VariantEffect]) -> str:
    clear = [e.words for e in rows if e.direction != "undecided"]
    findings = "; ".join(clear) if clear else "no variant was shown to change success"
    bars = [
        DifferenceBar(f"{e.variant} − nominal", e.score_difference, e.success_difference)
        for e in rows
    ]
    return (
        table(
            ["variant", "success [95 %]", "change of success", "change of score", "p", "n"],
            [
                [e.variant, estimate_text(e.success, 2),
                 estimate_text(e.success_difference, 2, sign=True),
                 estimate_text(e.score_difference, 2, sign=True), f"{e.p:.3f}", str(e.n)]
                for e in rows
            ],
            sentence(findings[:1].upper() + findings[1:]),
        )
        + picture(
            difference_plot(bars),
            "Change of score and of success under each variant",
            "Left of the dashed line: worse than in the nominal world. An interval that reaches it"
            " leaves open whether anything changed.",
        )
    )  # fmt: skip


def failures_section(data: ReportData) -> str:
    """How episodes fail, with counts and where to look."""
    rows = data.evaluation.failures if data.evaluation is not None else ()
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
                 estimate_text(f.share, 2), reached(f.score)]
                for f in rows if f.policy == policy
            ],
            numeric_from=3,
        )  # fmt: skip
    return body


def clips_section(data: ReportData) -> str:
    """A grid of clips per policy and world, failures first."""
    evaluation = data.evaluation
    if evaluation is None or not evaluation.clips:
        return ""
    body = paragraph(
        "The episodes were chosen by a rule that knows outcomes and no pictures: per policy and"
        " world a failure of each kind (the first in the order of the starts), the success of"
        " median length, then the worst failure, the longest success, the nearest miss and the"
        " shortest success, as far as there is room. They show how things go, not how often: for"
        " that, read the tables.",
        "Policies start from the same conditions, so clips of one start may be compared.",
    )
    shown, left, used = 0, 0, 0
    for policy, world in dict.fromkeys((c.policy, c.world) for c in evaluation.clips):
        parts: list[str] = []
        mine = [c for c in evaluation.clips if (c.policy, c.world) == (policy, world)]
        for one in sorted(mine, key=lambda c: c.success):
            path = evaluation.folder / one.file
            size = path.stat().st_size
            if used + size > BUDGET_BYTES:
                left += 1
                continue
            used, shown = used + size, shown + 1
            mark, caption = _clip_words(one)
            parts.append(clip(path, mark, caption, good=one.success))
        if parts:
            body += f"<h3>{text(f'{policy} in {world}')}</h3>" + tiles(parts)
    if left:
        body += note(
            f"{left} of {shown + left} clips would make this page too large; they are in the"
            " results folder (videos/)."
        )
    return body


def _clip_words(one: Clip) -> tuple[str, str]:
    mark = "Solved" if one.success else f"Failed: {reason_words(one.reason or 'not said')}"
    return mark, (
        f"{one.why}; start {one.condition}, best score {reached(one.score)}, {one.duration_s:.1f} s"
    )


def seeds_section(data: ReportData) -> str:
    """Learning curves of runs that differ in nothing but the seed."""
    plots: list[str] = []
    for runs in run_families(data.runs):
        loss, curves = loss_curves(runs)
        if curves:
            names = ", ".join(f"{r.name} (seed {r.seed})" for r in runs)
            plots.append(
                picture(
                    seeds_plot(curves, loss),
                    f"{loss} of {len(runs)} runs over training",
                    f"Thin: each run; thick: their mean; band: smallest to largest. {names}.",
                )
            )
    if not plots:
        return ""
    return paragraph(
        "The same experiment with other seeds. Losses that agree do not mean that policies do: how"
        " far the runs are apart in trials is in the comparison above, when their trials are here."
    ) + "".join(plots)
