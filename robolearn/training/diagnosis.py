"""Reads a critic's curves: over- or underfitting, values beyond what is possible, and what helps.

The rules are those of the workflow of Kumar et al. 2021 (arXiv 2109.10813), which was tried on
conservative critics only; for other critics they are a hint. What of it is taken:

    overfit     mean Q on recorded actions rises, then falls; or the TD error of held-out episodes
                rises while that of the training data does not
    underfit    the TD error stays large beside the spread of Q
    diverging   |Q| is larger than any sum of the rewards can be

Values of observations alone (V) are judged alike, but not by their rise and fall: they follow the
recordings, whatever the policy makes of them. A critic that tells goals apart (f) has its
cross-entropy for a TD error, and is underfit while that is near what knowing nothing costs.

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
UNTOLD = 0.9
"""Cross-entropy of goals, of that of a critic that knows nothing, that counts as large (ours)."""
SLACK, FLAT = 0.05, 0.05
"""By how much of what is possible values may err before they diverge; and the spread of values, of
their mean, below which they say the same of everything."""
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


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of critic: the letter of its figures, and its words."""

    letter: str
    value: str
    # Its error, of training and of held-out episodes.
    error: str
    error_words: str
    # Whether values that rise, then fall are a sign of overfitting.
    peaks: bool = False


_KINDS = (
    _Kind("q", "Q", "td_error", "the TD error", peaks=True),
    _Kind("v", "V", "td_error", "the TD error"),
    _Kind("f", "f", "contrast", "the cross-entropy of goals"),
)


def diagnose(log: Sequence[Mapping[str, Any]]) -> Diagnosis | None:
    """Of the lines of ``metrics.jsonl``; None for a run without a critic's figures."""
    curves = _curves(log)
    kind = next((k for k in _KINDS if f"{k.letter}_data" in curves), None)
    if kind is None:
        return None
    last = log[-1]
    share = float(last.get("diagnosis_seconds", 0.0)) / max(float(last.get("seconds", 0.0)), 1e-9)
    points = len(curves[f"{kind.letter}_data"].steps)
    if points < MIN_POINTS:
        words = (
            f"{points} diagnoses are too few to tell a course: train for longer, or lower"
            " fit.log_every or fit.diagnose_every"
        )
        return Diagnosis("unclear", (words,), None, share)
    verdict, words, peak = _verdict(curves, kind)
    return Diagnosis(verdict, (words, *_notes(curves, kind)), peak, share)


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


def _verdict(curves: Mapping[str, _Curve], kind: _Kind) -> tuple[Verdict, str, int | None]:
    share = curves.get(f"{kind.letter}_share")
    if share is not None and share.last > 1.0 + SLACK:
        words = "values are {:.1f} times what the largest reward for ever would be worth: {}"
        return "diverging", words.format(share.last, NEARER), None
    peak = _peak(curves[f"{kind.letter}_data"]) if kind.peaks else None
    if peak is not None:
        words = (
            "{} on recorded actions rose until update {} and has fallen since, the sign of"
            " overfitting: {}"
        )
        return "overfit", words.format(kind.value, peak, LESS_CAPACITY), peak
    parted = _parted(curves, kind.error)
    if parted is not None:
        words = (
            "{} of held-out episodes has risen since update {}, that of the training"
            " data has not, the sign of overfitting: {}"
        )
        return "overfit", words.format(kind.error_words, parted, LESS_CAPACITY), parted
    underfit = _underfit(curves, kind)
    if underfit is not None:
        return "underfit", f"{underfit}: {MORE_CAPACITY}", None
    return "sound", "the curves show neither over- nor underfitting", None


def _peak(q: _Curve) -> int | None:
    """The update since which Q has fallen, after it had risen."""
    values = q.smooth
    at, span = int(values.argmax()), float(np.ptp(values))
    if span <= MIN_RANGE * float(np.abs(values).max()) or at >= LATE * (len(values) - 1):
        return None
    rise, fall = values[at] - values[0], values[at] - q.last
    return int(q.steps[at]) if rise > RISE * span and fall > FALL * span else None


def _parted(curves: Mapping[str, _Curve], error: str) -> int | None:
    """The update since which held-out errors have risen while those of training did not."""
    trained, kept = curves.get(error), curves.get(f"{error}_held_out")
    if trained is None or kept is None or len(kept.steps) != len(trained.steps):
        return None
    values = kept.smooth
    at = int(values.argmin())
    rose = kept.last > GAP * float(values[at]) and kept.last > GAP * trained.last
    held = trained.last <= 1.1 * float(trained.smooth[at])
    return int(kept.steps[at]) if rose and held and at < LATE * (len(values) - 1) else None


def _underfit(curves: Mapping[str, _Curve], kind: _Kind) -> str | None:
    """Which error stays large, in words."""
    untold = curves.get("contrast_share")
    if untold is not None and untold.last > UNTOLD:
        return (
            f"{kind.error_words} stays at {untold.last:.0%} of what knowing nothing costs, the sign"
            " of underfitting (or of goals that look alike)"
        )
    error, spread = curves.get("td_error"), curves.get(f"{kind.letter}_std")
    if error is None or spread is None:
        return None
    # Squared TD error over the variance of values on recordings.
    unexplained = error.last**2 / max(spread.last**2, 1e-12)
    if unexplained <= UNEXPLAINED:
        return None
    return (
        f"the squared TD error stays at {unexplained:.0%} of the variance of {kind.value}, the sign"
        " of underfitting (or of rewards that are noise)"
    )


def _notes(curves: Mapping[str, _Curve], kind: _Kind) -> list[str]:
    notes: list[str] = []
    q, own, spread = (curves.get(f"{kind.letter}_{k}") for k in ("data", "policy", "std"))
    if q is not None and own is not None and spread is not None:
        beyond = (own.last - q.last) / max(spread.last, 1e-9)
        if beyond > BEYOND:
            notes.append(
                f"the policy's own actions are believed to be worth {beyond:.1f} spreads of"
                f" {kind.value} more than the recorded ones, which is more likely an error than an"
                " improvement:"
                f" {NEARER}"
            )
    share = curves.get(f"{kind.letter}_share")
    if share is not None and q is not None and spread is not None:
        flat = spread.last < FLAT * abs(q.last) and q.last < 0.0
        if flat and abs(share.last - 1.0) <= SLACK:
            notes.append(
                f"{kind.value} is what never reaching anything is worth, nearly everywhere: the"
                " reward hardly occurs in what is drawn, or too far ahead to be seen; check that"
                " episodes reach it, draw those more often (data.quality), look further ahead (a"
                " higher discount, longer chunks) or reward what is on the way"
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
