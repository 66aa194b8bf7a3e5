"""Puts numbers into words: always with interval and n."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from eval.statistics.intervals import Estimate
from eval.summary import AgreementKind, Result
from robolearn.data.insight.effort import PEAK_N, Wear
from robolearn.data.names import shown

AGREEMENT_WORDS: Mapping[AgreementKind, str] = {
    "moved": "with itself, starts moved by 0.3 mm (ceiling)",
    "noise": "with itself, other noise of the policy",
}
REASON_WORDS: Mapping[str, str] = {
    "success": "solved",
    "time_limit": "time was up",
    "physics_diverged": "simulation became unstable",
    "judged_failed": "judged not successful",
    "not_finite": "a signal or the progress was not a number",
    "worker_crashed": "computing process died twice",
    "safety_stop": "the supervisor stopped the robot",
    "dropped": "an object was dropped",
    "missed_grasp": "the gripper closed beside the object",
    "jammed": "a part got stuck",
    "out_of_reach": "an object left the workspace",
}


def number(value: float | None, digits: int = 3) -> str:
    """A plain figure; an en dash when there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:z.{digits}f}"


def reached(value: float, digits: int = 2) -> str:
    """A score of a trial that is not solved: below 1, and never rounded to it."""
    figure = f"{value:.{digits}f}"
    return figure if value >= 1 or float(figure) < 1 else f"> {1 - 10**-digits:.{digits}f}"


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
    # Without a sign of what is rounded to zero.
    mark = "+z" if sign else "z"
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


def p_text(p: float) -> str:
    """A p value, never rounded to zero."""
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def percent(share: float) -> str:
    """``12 %``."""
    return f"{100 * share:.0f} %"


def sentence(words: str) -> str:
    """Closed by a full stop."""
    return words if words.endswith(".") else words + "."


def switch_words(regret: int, dip: int) -> str:
    """What it cost to let drive what was only being learned (docs/practice.md: regret, dip)."""
    verb = "cost" if regret > 0 else "gained"
    return (
        f"practising {verb} {abs(regret)} success(es) beside the parent on the same starts; it had"
        f" cost {dip} at most"
    )


def wear_words(wear: Wear) -> str:
    """What a practice cost the arm and the person."""
    driven = wear.robot_seconds
    parts = [f"the arm drove {driven / 60:.1f} min, sent {wear.moves} times"]
    if wear.travel_rad:
        parts.append(f"its joints travelled {wear.travel_rad:.0f} rad")
    if wear.travel_m:
        parts.append(f"the tool {wear.travel_m:.1f} m")
    if wear.largest_force_n:
        parts.append(
            f"{wear.force_peaks} forces beyond {PEAK_N:.0f} N, the largest"
            f" {wear.largest_force_n:.0f} N"
        )
    parts.append(f"{wear.stops} stop(s)")
    if wear.interventions:
        parts.append(f"the supervisor stepped in {wear.interventions} times")
    if wear.take_overs and driven:
        share = wear.person_seconds / driven
        parts.append(f"{wear.take_overs} take-overs, {share:.0%} of the time a person's")
    return "; ".join(parts)


def markdown_text(text: str) -> str:
    """One line of Markdown that shows ``text`` as it is: names hold whatever people wrote."""
    # Figures and intervals stay readable where a page is read as it is: "p < 0.01", "[0.2, 0.9]".
    line = re.sub(r"&(?=#?\w+;)", "&amp;", " ".join(shown(text).split("\n")))
    line = re.sub(r"<(?=[A-Za-z/!?])", "&lt;", line)
    line = re.sub(r"([\\`*|~])", r"\\\1", line)
    line = re.sub(r"\](?=[(\[:])", r"\\]", line)
    return f"\\{line}" if line.startswith("#") else line


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a table and an empty one; what cells hold is text."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(markdown_text(str(c)) for c in cells) + " |"

    return [line(header), "|" + "---|" * len(header), *(line(r) for r in rows), ""]
