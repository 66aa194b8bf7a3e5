"""Reads a critic's curves: over- or underfitting, values beyond what is possible, and what helps.

The rules are those of the workflow of Kumar et al. 2021 (arXiv 2109.10813), which was tried on
conservative critics only; for other critics they are a hint. What of it is taken:

    overfit     mean Q on recorded actions rises, then falls; or the TD error of held-out episodes
                rises while that of the training data does not
    underfit    the TD error stays large beside the spread of Q
    diverging   |Q| is larger than any sum of the rewards can be

Critic values across different hyper-parameters mean nothing beside each other: discount, expectile,
pessimism and penalties shift them. ``robolearn rank`` is what compares policies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from robolearn.shapes import Floats

PREFIX = "critic/"
Verdict = Literal["diverging", "overfit", "underfit", "sound", "unclear"]

MIN_POINTS = 5
"""Fewer diagnoses tell no course."""
RISE, FALL = 0.2, 0.2
"""Shares of the curve's range that count as a rise and a fall, and how much of the larger |Q| the
range must be: less is noise."""
MIN_RANGE = 0.05
LATE = 0.8
"""A peak in the last fifth of training may yet be none."""
GAP = 1.5
"""Held-out TD errors so many times their least, and those of training, have risen."""
UNEXPLAINED = 0.5
"""Squared TD error over the variance of Q that counts as large."""
COLLAPSED_RANK, DORMANT, CLIPPED, BEYOND = 0.05, 0.5, 0.2, 3.0
"""Share of the possible rank below which, and of silent units and clipped weights above which, it
is said; and by how many spreads of Q a policy may be said to be better than the data."""

LESS_CAPACITY = (
    "take a checkpoint at or before that update (fit.steps), and regularise: more data, weight"
    " decay, smaller networks, or a bottleneck in the critic's features"
)
MORE_CAPACITY = (
    "larger networks (width, depth), a higher lr, or more updates if it is still falling"
)
NEARER = (
    "a lower lr or discount, bounds on the targets, more critics (members), or more weight on"
    " staying near the data"
)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What the curves of one run say."""

    verdict: Verdict
    # What is seen and the standard remedy, one sentence each.
    words: tuple[str, ...]
    # Update at which Q on the data was highest, where it has fallen since.
    peak: int | None
    # Share of training's time that taking the figures took.
    time_share: float


@dataclass(frozen=True, slots=True)
class _Curve:
    steps: Floats
    values: Floats

    @property
    def last(self) -> float:
        """Over the last three points."""
        return float(np.median(self.values[-3:]))

    @property
    def smooth(self) -> Floats:
        """Medians of three neighbours: one odd point is no peak."""
        padded = np.concatenate([self.values[:1], self.values, self.values[-1:]])
        return np.median(np.lib.stride_tricks.sliding_window_view(padded, 3), axis=1)


def diagnose(log: Sequence[Mapping[str, Any]]) -> Diagnosis | None:
    """Of the lines of ``metrics.jsonl``; None for a run without a critic's figures."""
    curves = _curves(log)
    if "q_data" not in curves:
        return None
    last = log[-1]
    share = float(last.get("diagnosis_seconds", 0.0)) / max(float(last.get("seconds", 0.0)), 1e-9)
    points = len(curves["q_data"].steps)
    if points < MIN_POINTS:
        words = (
            f"{points} diagnoses are too few to tell a course: train for longer, or lower"
            " fit.log_every or fit.diagnose_every"
        )
        return Diagnosis("unclear", (words,), None, share)
    verdict, words, peak = _verdict(curves)
    return Diagnosis(verdict, (words, *_notes(curves)), peak, share)


def _curves(log: Sequence[Mapping[str, Any]]) -> dict[str, _Curve]:
    points: dict[str, list[tuple[float, float]]] = {}
    for line in log:
        for key, value in line.items():
            if key.startswith(PREFIX):
                name = key.removeprefix(PREFIX)
                points.setdefault(name, []).append((float(line["step"]), float(value)))
    found: dict[str, _Curve] = {}
    for name, pairs in points.items():
        array = np.asarray(pairs, dtype=np.float64)
        found[name] = _Curve(array[:, 0], array[:, 1])
    return found


def _verdict(curves: Mapping[str, _Curve]) -> tuple[Verdict, str, int | None]:
    share = curves.get("q_share")
    if share is not None and share.last > 1.0:
        words = "values are {:.1f} times what the largest reward for ever would be worth: {}"
        return "diverging", words.format(share.last, NEARER), None
    peak = _peak(curves["q_data"])
    if peak is not None:
        words = (
            "Q on recorded actions rose until update {} and has fallen since, the sign of"
            " overfitting: {}"
        )
        return "overfit", words.format(peak, LESS_CAPACITY), peak
    parted = _parted(curves)
    if parted is not None:
        words = (
            "the TD error of held-out episodes has risen since update {}, that of the training"
            " data has not, the sign of overfitting: {}"
        )
        return "overfit", words.format(parted, LESS_CAPACITY), parted
    unexplained = _unexplained(curves)
    if unexplained is not None and unexplained > UNEXPLAINED:
        words = (
            "the squared TD error stays at {:.0%} of the variance of Q, the sign of underfitting"
            " (or of rewards that are noise): {}"
        )
        return "underfit", words.format(unexplained, MORE_CAPACITY), None
    return "sound", "the curves show neither over- nor underfitting", None


def _peak(q: _Curve) -> int | None:
    """The update since which Q has fallen, after it had risen."""
    values = q.smooth
    at, span = int(values.argmax()), float(np.ptp(values))
    if span <= MIN_RANGE * float(np.abs(values).max()) or at >= LATE * (len(values) - 1):
        return None
    rise, fall = values[at] - values[0], values[at] - q.last
    return int(q.steps[at]) if rise > RISE * span and fall > FALL * span else None


def _parted(curves: Mapping[str, _Curve]) -> int | None:
    """The update since which held-out TD errors have risen while those of training did not."""
    trained, kept = curves.get("td_error"), curves.get("td_error_held_out")
    if trained is None or kept is None or len(kept.steps) != len(trained.steps):
        return None
    values = kept.smooth
    at = int(values.argmin())
    rose = kept.last > GAP * float(values[at]) and kept.last > GAP * trained.last
    held = trained.last <= 1.1 * float(trained.smooth[at])
    return int(kept.steps[at]) if rose and held and at < LATE * (len(values) - 1) else None


def _unexplained(curves: Mapping[str, _Curve]) -> float | None:
    """Squared TD error over the variance of Q on recorded actions."""
    error, spread = curves.get("td_error"), curves.get("q_std")
    if error is None or spread is None:
        return None
    return error.last**2 / max(spread.last**2, 1e-12)


def _notes(curves: Mapping[str, _Curve]) -> list[str]:
    notes: list[str] = []
    q, own, spread = (curves.get(k) for k in ("q_data", "q_policy", "q_std"))
    if q is not None and own is not None and spread is not None:
        beyond = (own.last - q.last) / max(spread.last, 1e-9)
        if beyond > BEYOND:
            notes.append(
                f"the policy's own actions are believed to be worth {beyond:.1f} spreads of Q more"
                " than the recorded ones, which is more likely an error than an improvement:"
                f" {NEARER}"
            )
    rank = curves.get("rank_share")
    if rank is not None and rank.last < COLLAPSED_RANK:
        notes.append(
            f"the critic's features have {rank.last:.0%} of the rank they could have: a lower lr,"
            " weight decay or fewer updates on the same data keep it up"
        )
    dormant = curves.get("dormant")
    if dormant is not None and dormant.last > DORMANT:
        notes.append(f"{dormant.last:.0%} of the critic's units hardly ever speak: a lower lr")
    clipped = curves.get("weights_clipped")
    if clipped is not None and clipped.last > CLIPPED:
        notes.append(
            f"{clipped.last:.0%} of the weights are at their largest, so that the actor cannot tell"
            " good from better: a lower beta, or smaller rewards"
        )
    return notes
