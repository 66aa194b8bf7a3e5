"""Writes what stands beside the agreement of rates: changes that hurt, replayed recordings, another
simulator. As table rows and sentences, for the terminal, Markdown and the page alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eval.report.text import estimate_text, reason_words
from eval.trust.closer import Change, Closer
from eval.trust.endings import Endings
from eval.trust.measures import MEASURES
from eval.trust.report import TaskTrust
from eval.trust.trajectories import Trajectories
from eval.trust.variants import Variants
from eval.words import count_of


@dataclass(frozen=True, slots=True)
class Panel:
    """One table with what is said about it."""

    title: str
    said: tuple[str, ...]
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def panels(t: TaskTrust) -> tuple[Panel, ...]:
    """What there is of a task."""
    found: list[Panel] = []
    if t.endings is not None:
        found.append(_endings(t.endings))
    if t.closer is not None:
        found.append(_closer(t.closer))
    if t.variants is not None:
        found.append(_variants(t.variants))
    if t.trajectories is not None:
        found.append(_trajectories(t.trajectories))
    return tuple(found)


def panel_lines(panel: Panel) -> list[str]:
    """For a terminal."""
    table: Sequence[Sequence[str]] = [panel.header, *panel.rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(panel.header))]
    rows = ["  ".join(f"{c:<{w}}" for c, w in zip(r, widths, strict=True)).rstrip() for r in table]
    return [f"  {panel.title}", *(f"    {row}" for row in rows), *(f"  {s}" for s in panel.said)]


def _endings(found: Endings) -> Panel:
    rows = [
        (
            reason_words(r.reason) or "not said",
            f"{100 * r.real:.1f} %",
            f"{100 * r.sim:.1f} %",
            estimate_text(r.difference, sign=True),
        )
        for r in found.rows
    ]
    pairs = count_of(found.cells, "pair", "pairs")
    how = f"of {pairs} of a policy and a start, each counted once; interval over starts"
    return Panel(
        "How trials ended",
        (how, *_lacking(found)),
        ("end", "in reality", "in simulation", "difference"),
        tuple(rows),
    )


def _lacking(found: Endings) -> list[str]:
    """Of ways to end that the simulator does not know, what they do to the outcome."""
    names = [f"'{reason_words(r.reason)}'" for r in found.rows if r.lacking]
    if not names:
        return []
    elsewhere = "nothing else happened in reality"
    if found.bias_elsewhere is not None:
        elsewhere = (
            f"over the {count_of(found.elsewhere, 'other pair')} of a policy and a start simulated"
            f" outcomes are {found.bias_elsewhere:+z.3f} from the real ones, over all"
            f" {found.bias:+z.3f}"
        )
    what = f"{' and '.join(names)} is how real trials end and no simulated one does"
    return [f"{what}: the simulator lacks it; {elsewhere}"]


def _closer(found: Closer) -> Panel:
    rows = [
        (
            MEASURES[name].words,
            f"{change.before:.3f}",
            f"{change.after:.3f}",
            f"{change.difference:+z.3f}",
            _span(change.over_starts),
            _span(change.over_policies),
        )
        for name, change in found.changes.items()
    ]
    paired = (
        f"{count_of(found.policies, 'policy', 'policies')} and {count_of(found.starts, 'start')}"
        " that reality and both simulators have; intervals of the difference, starts or policies"
        " drawn anew, the same for both"
    )
    said = (paired, _verdict(found))
    header = ("measure", "the other", "this one", "difference", "other starts", "other policies")
    return Panel("Against the other simulator", said, header, tuple(rows))


def _verdict(found: Closer) -> str:
    """By the two that the question is about: order, and rates."""
    words: list[str] = []
    for name, better in (("pearson", 1.0), ("mae", -1.0)):
        change = found.changes[name]
        words.append(f"{_told(change, better)} by {MEASURES[name].words}")
    return f"closer to reality than the other: {', '.join(words)}"


def _told(change: Change, better: float) -> str:
    spans = (change.over_starts, change.over_policies)
    if any(span is None for span in spans):
        return "not known"
    signed = [sorted(better * v for v in span) for span in spans if span is not None]
    if all(low > 0.0 for low, _ in signed):
        return "yes"
    return "no, farther away" if all(high < 0.0 for _, high in signed) else "not shown"


def _variants(found: Variants) -> Panel:
    rows = [
        (
            c.name,
            str(len(c.policies)),
            str(c.real.n),
            estimate_text(c.real, sign=True),
            estimate_text(c.sim, sign=True),
        )
        for c in found.changes
    ]
    if found.clear:
        way = (
            f"{count_of(found.clear, 'change')} clearly matter{'s' * (found.clear == 1)} in reality"
        )
        way += f", of which the simulator moves {found.same_way} the same way"
    else:
        way = "no change clearly matters in reality"
    correlation = "not defined (fewer than three effects, or all alike)"
    if found.correlation is not None:
        correlation = estimate_text(found.correlation, 2)
    figures = ", ".join(
        f"{MEASURES[n].words} {'not defined' if v is None else f'{v:.3f}'}"
        for n, v in found.aggregated.items()
    )
    aggregated = (
        f"variant aggregation (rates averaged over"
        f" {count_of(found.aggregated_worlds, 'simulated world')}, against the real ones as they"
        f" are, over {count_of(found.aggregated_starts, 'start')} that all policies share there):"
        f" {figures}"
    )
    said = (
        f"{way}; effects on single policies correlate by {correlation}",
        f"what hurts most: {found.worst_real} in reality, {found.worst_sim} in simulation",
        aggregated,
    )
    header = ("change", "policies", "starts", "in reality", "in simulation")
    return Panel("Does it know which change hurts?", said, header, tuple(rows))


def _trajectories(found: Trajectories) -> Panel:
    rows = [
        (
            f"{r.after_s:g} s",
            str(r.recordings),
            f"{r.position_mm[0]:.2f} / {r.position_mm[1]:.2f}",
            f"{r.rotation_deg[0]:.2f} / {r.rotation_deg[1]:.2f}",
        )
        for r in found.rows
    ]
    grows = "the error does not grow, or the recordings are too short to tell"
    if found.doubles_s is not None:
        grows = f"the median error doubles in about {found.doubles_s:.2g} s"
    if found.diverged:
        grows += f"; physics diverged in {count_of(found.diverged, 'recording')}"
    said = (f"recorded actions of '{found.source}' commanded open loop in {found.world}; {grows}",)
    header = ("after", "recordings", "position [mm], median / 90th", "rotation [deg]")
    return Panel("Whole motions", said, header, tuple(rows))


def _span(span: tuple[float, float] | None) -> str:
    return "not known" if span is None else f"[{span[0]:+z.3f}, {span[1]:+z.3f}]"
