"""Writes results as plain lines, for a terminal, and comparisons as a Markdown page."""

from __future__ import annotations

import math

from eval.compare import Comparison, WorldComparison
from eval.report.data import EvaluationData
from eval.report.results import T_METHOD, T_WORDS, generalisation_rows, score_method
from eval.report.text import estimate_text, interval, markdown_table, number, p_text, rate, sentence
from eval.standing import standing_lines
from eval.statistics.intervals import Estimate
from eval.summary import FIGURES, Result
from eval.trials.instruments import FORBIDDEN


def evaluation_lines(evaluation: EvaluationData) -> list[str]:
    """What an evaluation says: rates and scores, differences, how worlds agree."""
    lines: list[str] = []
    if evaluation.asked.batch > 1:
        batch = evaluation.asked.batch
        lines.append(f"batched inference: up to {batch} environments per forward pass")
    width = max(len(r.policy) + len(r.world) for r in evaluation.results) + 4
    method = score_method(evaluation.results)
    head = f"mean score [95 %, {method}]"
    lines.append(f"{'':<{width}} {head:<32} success [95 %, Wilson]")
    for r in evaluation.results:
        lines += _result(evaluation, r, width)
    if method == T_METHOD:
        lines.append(T_WORDS)
    comparison = evaluation.comparison
    if comparison is not None:
        lines.append(f"rule: {comparison.rule.words()}")
        for world in comparison.worlds:
            for f in world.effects:
                lines.append(
                    f"{f.b} - {f.a} in {world.world}:"
                    f" success {estimate_text(f.success, sign=True)},"
                    f" score {estimate_text(f.score, sign=True)}, n = {f.n},"
                    f" p {p_text(f.p)}; {sentence(f.words)}"
                )
        lines += standing_lines(comparison)
    for policy, world, over, measure, *figures, n in generalisation_rows(evaluation.generalisation):
        seen, unseen, gap = figures
        lines.append(
            f"{policy} in {world}, {measure}: seen {seen}, unseen {unseen}, gap {gap}, {over} {n}"
        )
    lines += evaluation.not_generalised
    lines += [*evaluation.apart, *evaluation.not_agreed]
    return lines + [f"{a.policy}: {a.words}" for a in evaluation.agreement]


def _result(evaluation: EvaluationData, r: Result, width: int) -> list[str]:
    label = f"{r.policy} in {r.world}"
    lines = [f"{label:<{width}} {number(r.score.value)} {interval(r.score):<26} {rate(r)}"]
    lines += [
        f"{'':<{width}} corrected for the classifier's errors: {estimate_text(j.success, 2)}"
        f" ({j.success.method})"
        for j in evaluation.judged
        if (j.policy, j.world) == (r.policy, r.world)
    ]
    if FORBIDDEN in r.measures:
        share = estimate_text(r.measures[FORBIDDEN], 4)
        lines.append(f"{'':<{width}} {FIGURES[FORBIDDEN]}: {share}")
    if r.technical:
        lines.append(f"{'':<{width}} of these lost for technical reasons: {dict(r.reasons)}")
    if r.changed is not None:
        lines.append(f"{'':<{width}} the critic changed {r.changed} of {r.chunks} chunks")
    return lines


def comparison_lines(comparison: Comparison) -> list[str]:
    """A comparison as plain lines, for a terminal."""
    rule = comparison.rule
    lines = [f"rule: {rule.words()}"]
    for world in comparison.worlds:
        lines += ["", f"{world.world}, suite {world.suite}", *_entries(world)]
        for f in world.effects:
            p = p_text(f.p)
            verdict = f"p {p}" if p[0] == "<" else f"p = {p}"
            lines.append(
                f"  {f.b} - {f.a}: success {_interval(f.success)}, score {_interval(f.score)},"
                f" {verdict}"
            )
            lines.append(f"    {f.words}.")
        lines += [f"  note: {n}" for n in world.notes]
    return [*lines, "", *standing_lines(comparison), *alone_lines(comparison)]


def alone_lines(comparison: Comparison) -> list[str]:
    """What was left out: nothing stands beside it, or it was made otherwise."""
    alone = [f"not compared: {p} is the only one in {world}" for world, p in comparison.alone]
    return [*alone, *comparison.apart]


def comparison_markdown(comparison: Comparison) -> str:
    """A comparison as a Markdown page."""
    rule = comparison.rule
    lines = ["# Comparison", "", f"Rule: {rule.words()}."]
    for w in comparison.worlds:
        lines += ["", f"## {w.world}", "", f"Suite `{w.suite}`.", ""]
        lines += markdown_table(
            ["policy", "letters", "success", "score", "trials"],
            [
                [e.name, e.letters, _interval(e.success), _interval(e.score), str(e.n)]
                for e in w.entries
            ],
        )
        lines += markdown_table(
            ["pair", "success", "score", "adjusted p", "conclusion"],
            [
                [f"{f.b} - {f.a}", _interval(f.success), _interval(f.score), p_text(f.p),
                 f.words]
                for f in w.effects
            ],
        )  # fmt: skip
        lines += [f"* {n}" for n in w.notes]
    lines += ["", *(f"* {line}" for line in standing_lines(comparison))]
    lines += [f"\n* {line}" for line in alone_lines(comparison)]
    return "\n".join(lines) + "\n"


def _entries(world: WorldComparison) -> list[str]:
    width = max(len(e.name) for e in world.entries) + 2
    lines = [f"  {'':<{width}}{'':<6}{'success':<26}score"]
    for e in world.entries:
        runs = f", {len(e.runs)} training runs" if len(e.runs) > 1 else ""
        lines.append(
            f"  {e.name:<{width}}{e.letters:<6}{_interval(e.success):<26}{_interval(e.score)}"
            f"  ({e.n} trials{runs})"
        )
        if e.spread is not None:
            lines.append(
                f"  {'':<{width}}      standard deviation of score between runs"
                f" {e.spread.between:.3f}, between episodes of a run {e.spread.within:.3f}"
            )
    return [*lines, "  policies that share a letter are not separated"]


def _interval(e: Estimate) -> str:
    if not math.isfinite(e.low):
        return f"{e.value:.3f} [unknown: one run]"
    return f"{e.value:.3f} [{e.low:.3f}, {e.high:.3f}]"
