"""Renders a trust report as one self-contained page."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from eval.report.page import (
    Plot,
    Section,
    Tile,
    columns,
    details,
    note,
    page,
    paragraph,
    picture,
    table,
)
from eval.report.plots import COLOURS, INK, SOFT, drawn
from eval.report.text import sentence
from eval.report.trust.beside import panels
from eval.report.trust.causes import causes_section
from eval.report.trust.lines import (
    AGREEMENT_HEADER,
    ESTIMATE_HEADER,
    HEADER,
    OFF_POLICY_CAPTION,
    OFF_POLICY_HEADER,
    POLICY_HEADER,
    agreement_rows,
    estimate_rows,
    mean_lines,
    measure_rows,
    off_policy_rows,
    policy_rows,
    remarks,
)
from eval.trust.measures import MEASURES
from eval.trust.outcomes import Side
from eval.trust.report import TaskTrust, TrustReport
from eval.trust.tables import TaskTable, rate_interval
from eval.words import count_of

# More names beside points cannot be read.
_NAMED = 12
# Dots as near as this in both rates have one name: names are long, and a line high.
_NEAR = (0.15, 0.035)
_WIDTH = 4.4
# Lines along the simulated axis and across it.
_SIDES: tuple[tuple[Side, bool], ...] = (("sim", False), ("real", True))
# Measures in the plot of what noise explains.
_SHOWN = ("pearson", "spearman", "kendall", "ccc", "mmrv", "pairwise_rank_loss", "top1_regret")


def trust_page(report: TrustReport, title: str) -> str:
    """The whole document."""
    every = [*report.tasks, *([report.pooled] if report.pooled is not None else [])]
    sections = [
        Section(f"task-{i}", "All tasks pooled" if t.table.pooled else t.task, _task(t))
        for i, t in enumerate(every)
    ]
    sections += [
        Section(f"causes-{i}", f"What is wrong with {t.causes.world}?", causes_section(t.causes))
        for i, t in enumerate(every)
        if t.causes is not None
    ]
    sections.append(Section("reading", "How to read this", _reading(report)))
    verdicts = [f"{t.task}: {t.judgement.verdict}" for t in report.tasks]
    if len(verdicts) > 4:
        counts = dict.fromkeys(("ranks reliably", "screens only", "not shown"), 0)
        for t in report.tasks:
            counts[t.judgement.verdict] += 1
        verdicts = [f"{v} in {n} of {len(report.tasks)} tasks" for v, n in counts.items() if n]
    summary = [sentence("; ".join(verdicts))]
    summary += [sentence(f"{t.task}: {t.judgement.verdict}. {t.judgement.why}") for t in every]
    return page(title, _subtitle(report), summary, _tiles(_headline(every)), sections)


def _subtitle(report: TrustReport) -> str:
    policies = {p.policy for t in report.tasks for p in t.table.pairs}
    who = count_of(len(policies), "policy", "policies")
    return f"Simulated and real results of {who} in {count_of(len(report.tasks), 'task')}."


def _headline(every: list[TaskTrust]) -> TaskTrust:
    """All tasks pooled, or where that says nothing the first that says something."""
    said = [t for t in reversed(every) if t.measures["spearman"].value is not None]
    return said[0] if said and said[0].table.pooled else (said or every)[-1]


def _tiles(t: TaskTrust) -> list[Tile]:
    tiles: list[Tile] = []
    over = " (pooled)" if t.table.pooled else f" ({t.task})"
    for name, label in (("spearman", "Spearman"), ("pearson", "Pearson"), ("mmrv", "MMRV")):
        m = t.measures[name]
        if m.value is None:
            tiles.append(Tile("–", m.why, f"{label}{over}"))
            continue
        parts = [f"k = {t.table.k}"]
        if m.fisher_z is not None:
            parts.append(f"[{m.fisher_z[0]:z.2f}, {m.fisher_z[1]:z.2f}]")
        if m.noise is not None:
            bound = f"≥ {m.noise.p5:z.2f}" if name != "mmrv" else f"≤ {m.noise.p95:.3f}"
            parts.append(f"perfect simulator: {bound}")
        tiles.append(Tile(f"{m.value:z.3f}", ", ".join(parts), f"{label}{over}"))
    return tiles


def _task(t: TaskTrust) -> str:
    body = paragraph(f"{t.judgement.verdict.capitalize()}.", sentence(t.judgement.why))
    if t.judgement.more:
        body += note(f"What would settle it: {sentence(t.judgement.more)}")
    if t.table.k:
        plots = [picture(_scatter(t), f"Real over simulated rates, {t.task}",
                         "Each policy with its interval (Wilson); on the line simulation and"
                         " reality agree.")]  # fmt: skip
        if any(t.measures[n].noise is not None for n in _SHOWN):
            plots.append(picture(_against_noise(t), f"Agreement and noise, {t.task}",
                                 "Dot: this simulator. Bar: a perfect simulator with these trial"
                                 " numbers in 90 of 100 repetitions."))  # fmt: skip
        body += columns(plots)
    body += table(HEADER, measure_rows(t), f"{count_of(t.table.k, 'policy', 'policies')}.")
    body += "".join(paragraph(sentence(s[:1].upper() + s[1:])) for s in remarks(t, short=True))
    if t.agreement:
        caption = (
            "Condition by condition. Ceiling: how well a real trial predicts its repetition;"
            " perfect simulator: what one reaches with as many trials of each condition."
        )
        body += table(AGREEMENT_HEADER, agreement_rows(t), caption)
    if t.estimates:
        body += table(
            ESTIMATE_HEADER,
            estimate_rows(t),
            "Real outcomes with the help of simulation. Coverage here: how often the interval holds"
            " the true value in repetitions with as many trials and this correlation. A perfect"
            " simulator: what one would save, predicted from the ceiling.",
        )
    for panel in panels(t):
        body += table(panel.header, panel.rows, f"{panel.title}. {sentence(panel.said[0])}")
        body += "".join(note(sentence(s[:1].upper() + s[1:])) for s in panel.said[1:])
    if t.off_policy:
        body += table(OFF_POLICY_HEADER, off_policy_rows(t), OFF_POLICY_CAPTION)
    if t.table.k:
        body += details("Every policy", table(POLICY_HEADER, policy_rows(t)))
    return body


def _reading(report: TrustReport) -> str:
    level = f"{100 * report.level:g} %"
    parts = [
        paragraph(report.rule),
        paragraph(sentence(report.convention)),
        paragraph(
            f"Intervals have the level {level}. Fisher z: over policies, a sample of those that",
            "could have been tried. Other trials: what endless trials of these policies would say;",
            "as noise hides agreement, mostly more than was seen. Other policies: drawn with",
            "replacement from these. One left out: the smallest and the largest value",
            "without any one policy. Perfect simulator: what one with exactly the real rates has",
            "in 95 of 100 repetitions, because trials are few. By chance: how often rates dealt",
            "out at random agree as well.",
        ),
    ]
    return "".join(parts) + "".join(note(sentence(n)) for n in (*mean_lines(report), *report.notes))


def _scatter(t: TaskTrust) -> Plot:
    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=SOFT, lw=1, ls="--")
        for pair, x, y in zip(t.table.pairs, t.table.sim, t.table.real, strict=True):
            for side, across in _SIDES:
                found = rate_interval(pair, side)
                if found is not None:
                    ends = [found.low, found.high]
                    line = ([x, x], ends) if across else (ends, [y, y])
                    axes.plot(*line, color=COLOURS[0], lw=1.2, alpha=0.45)
            axes.plot(x, y, "o", color=COLOURS[0], ms=6 if t.table.k <= 60 else 3, mec="white")
        for at, words in labels(t.table) if t.table.k <= _NAMED else ():
            axes.annotate(words, at, xytext=(5, 4), textcoords="offset points",
                          fontsize=8, color=INK, parse_math=False)  # fmt: skip
        axes.set(xlabel="simulated rate", ylabel="real rate", xlim=(-0.03, 1.03),
                 ylim=(-0.03, 1.03), aspect="equal")  # fmt: skip
        axes.grid(alpha=0.25)

    return drawn(draw, _WIDTH, _WIDTH)


def labels(table: TaskTable) -> list[tuple[tuple[float, float], str]]:
    """Where names stand beside dots ``(sim, real)``: one for all that are too near to each other to
    be read one by one.
    """
    crowds: list[tuple[tuple[float, float], list[str]]] = []
    for pair, x, y in zip(table.pairs, table.sim.tolist(), table.real.tolist(), strict=True):
        for at, names in crowds:
            if abs(at[0] - x) < _NEAR[0] and abs(at[1] - y) < _NEAR[1]:
                names.append(pair.policy)
                break
        else:
            crowds.append(((x, y), [pair.policy]))
    return [
        (at, names[0][:24] + (f" and {count_of(len(names) - 1, 'other')}" if names[1:] else ""))
        for at, names in crowds
    ]


def _against_noise(t: TaskTrust) -> Plot:
    rows = [(n, m) for n in _SHOWN if (m := t.measures[n]).value is not None and m.noise]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for y, (_, m) in enumerate(reversed(rows)):
            if m.noise is None or m.value is None:
                continue
            axes.plot([m.noise.p5, m.noise.p95], [y, y], color=SOFT, lw=7, alpha=0.6,
                      solid_capstyle="butt")  # fmt: skip
            axes.plot(m.value, y, "o", color=COLOURS[1], ms=7, mec="white")
        names = [MEASURES[n].name.replace("_", " ") for n, _ in rows]
        axes.set_yticks(range(len(rows)), names[::-1])
        least = min((m.value for _, m in rows if m.value is not None), default=0.0)
        axes.set(xlim=(float(np.floor(10 * min(0.0, least)) / 10) - 0.03, 1.03))
        axes.axvline(0, color=SOFT, lw=0.8)
        axes.grid(axis="x", alpha=0.25)

    return drawn(draw, _WIDTH, _WIDTH)
