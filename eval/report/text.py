"""Puts numbers into words: always with interval and n."""

from __future__ import annotations

import math
from collections.abc import Mapping

from eval.compare import Comparison, Effect, Rule, WorldComparison
from eval.statistics.intervals import Estimate
from eval.summary import AgreementKind, Result

AGREEMENT_WORDS: Mapping[AgreementKind, str] = {
    "moved": "with itself, starts moved by 0.3 mm (ceiling)",
    "noise": "with itself, other noise of the policy",
}
REASON_WORDS: Mapping[str, str] = {
    "success": "solved",
    "time_limit": "time was up",
    "physics_diverged": "simulation became unstable",
    "judged_failed": "judged not successful",
    "not_finite": "progress was not a number",
    "worker_crashed": "computing process died twice",
    "safety_stop": "the supervisor stopped the robot",
    "dropped": "an object was dropped",
    "missed_grasp": "the gripper closed beside the object",
    "jammed": "a part got stuck",
    "out_of_reach": "an object left the workspace",
}


def number(value: float | None, digits: int = 3) -> str:
    """A plain figure; an en dash when there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def reason_words(reason: str) -> str:
    """A reason why an episode ended, in words for people."""
    return REASON_WORDS.get(reason, reason.replace("_", " "))


def interval(e: Estimate, digits: int = 3) -> str:
    """``[low, high]``."""
    if not (math.isfinite(e.low) and math.isfinite(e.high)):
        return "[not defined]"
    return f"[{e.low:.{digits}f}, {e.high:.{digits}f}]"


def estimate_text(e: Estimate, digits: int = 3, *, sign: bool = False) -> str:
    """``0.81 [0.70, 0.89]``; with ``sign`` as a difference."""
    if math.isnan(e.value):
        return "not defined"
    mark = "+" if sign else ""
    value = f"{e.value:{mark}.{digits}f}"
    if not (math.isfinite(e.low) and math.isfinite(e.high)):
        return f"{value} [not known]"
    return f"{value} [{e.low:{mark}.{digits}f}, {e.high:{mark}.{digits}f}]"


def counted(e: Estimate, digits: int = 3, *, sign: bool = False) -> str:
    """``0.885 [0.851, 0.917], n = 100``; or that it is not defined."""
    if math.isnan(e.value):
        return f"not defined (n = {e.n})"
    return f"{estimate_text(e, digits, sign=sign)}, n = {e.n}"


def rate(result: Result) -> str:
    """``32/100 = 0.32 [0.24, 0.42]`` of a result."""
    if not result.n:
        return "0/0"
    e = result.success
    return f"{result.successes}/{result.n} = {e.value:.2f} {interval(e, 2)}"


def p_text(effect: Effect, rule: Rule) -> str:
    """The adjusted p value, never rounded to zero; the sequential test of success has only
    decisions.
    """
    if rule.kind == "sequential" and rule.by == "success":
        return "decided" if effect.decision else "undecided"
    return "< 0.0001" if effect.p < 0.0001 else f"{effect.p:.4f}"


def percent(share: float) -> str:
    """``12 %``."""
    return f"{100 * share:.0f} %"


def sentence(words: str) -> str:
    """Closed by a full stop."""
    return words if words.endswith(".") else words + "."


def comparison_lines(comparison: Comparison) -> list[str]:
    """A comparison as plain lines, for a terminal."""
    rule = comparison.rule
    lines = [f"rule: {rule.words()}"]
    for world in comparison.worlds:
        lines += ["", f"{world.world}, suite {world.suite}", *_entries(world)]
        for f in world.effects:
            p = p_text(f, rule)
            said = p if p.endswith("decided") else f"p {p}" if p[0] == "<" else f"p = {p}"
            lines.append(
                f"  {f.b} - {f.a}: success {_interval(f.success)}, score {_interval(f.score)},"
                f" {said}"
            )
            lines.append(f"    {f.words}.")
        lines += [f"  note: {n}" for n in world.notes]
    return lines + alone_lines(comparison)


def alone_lines(comparison: Comparison) -> list[str]:
    """What was left out, because nothing stands beside it."""
    return [f"not compared: {p} is the only one in {world}" for world, p in comparison.alone]


def comparison_markdown(comparison: Comparison) -> str:
    """A comparison as a Markdown page."""
    rule = comparison.rule
    lines = ["# Comparison", "", f"Rule: {rule.words()}."]
    for w in comparison.worlds:
        lines += ["", f"## {w.world}", "", f"Suite `{w.suite}`.", ""]
        lines += ["| policy | letters | success | score | trials |", "|---|---|---|---|---|"]
        lines += [
            f"| {e.name} | {e.letters} | {_interval(e.success)} | {_interval(e.score)} | {e.n} |"
            for e in w.entries
        ]
        lines += [
            "",
            "| pair | success | score | adjusted p | conclusion |",
            "|---|---|---|---|---|",
        ]
        lines += [
            f"| {f.b} - {f.a} | {_interval(f.success)} | {_interval(f.score)} | {p_text(f, rule)}"
            f" | {f.words} |"
            for f in w.effects
        ]
        lines += ["", *(f"* {n}" for n in w.notes)]
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
