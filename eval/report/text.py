"""Numbers in words: always with interval and n."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from eval.statistics.intervals import Estimate

Json = Mapping[str, Any]

AGREEMENT_WORDS: Mapping[str, str] = {
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
    return "–" if value is None else f"{value:.{digits}f}"


def interval(e: Json, digits: int = 3) -> str:
    """``[low, high]``."""
    if e["low"] is None or e["high"] is None:
        return "[not defined]"
    return f"[{e['low']:.{digits}f}, {e['high']:.{digits}f}]"


def mean(e: Json, digits: int = 3) -> str:
    """``0.885 [0.851, 0.917], n = 100``; or that it is not defined."""
    if e["value"] is None:
        return f"not defined (n = {e['n']})"
    return f"{e['value']:.{digits}f} {interval(e, digits)}, n = {e['n']}"


def signed(e: Json, digits: int = 3) -> str:
    """A difference with its sign."""
    if e["value"] is None:
        return f"not defined (n = {e['n']})"
    low = "" if e["low"] is None else f" [{e['low']:+.{digits}f}, {e['high']:+.{digits}f}]"
    return f"{e['value']:+.{digits}f}{low}, n = {e['n']}"


def estimate_text(e: Estimate, digits: int = 3, *, sign: bool = False) -> str:
    """``0.81 [0.70, 0.89]``; with ``sign`` as a difference."""
    if math.isnan(e.value):
        return "not defined"
    mark = "+" if sign else ""
    value = f"{e.value:{mark}.{digits}f}"
    if not (math.isfinite(e.low) and math.isfinite(e.high)):
        return f"{value} [not known]"
    return f"{value} [{e.low:{mark}.{digits}f}, {e.high:{mark}.{digits}f}]"


def rate(result: Json) -> str:
    """``32/100 = 0.32 [0.24, 0.42]`` of a result row."""
    e = result["success"]
    if e["value"] is None:
        return "0/0"
    return f"{result['successes']}/{result['n']} = {e['value']:.2f} {interval(e, 2)}"


def p_text(p: float) -> str:
    """A p value, never rounded to zero."""
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"


def percent(share: float) -> str:
    """``12 %``."""
    return f"{100 * share:.0f} %"
