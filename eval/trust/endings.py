"""Compares how trials end in both worlds: a way to fail that a simulator lacks shows here first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.statistics.intervals import Estimate, mean_t
from eval.summary import own_trials
from eval.trust.pairing import By, PairedTask
from eval.trust.repetition import means
from robolearn.types import TrialRecord

# Rarer ways to end are left out.
_RARE = 0.005
# One policy under one start: how its trials ended, and their mean outcome.
Cell = tuple[Mapping[str, float], float]


@dataclass(frozen=True, slots=True)
class Ending:
    """One way to end: the share of real and of simulated trials, every policy and start counting
    once; ``difference``: simulated less real, with its interval over starts.
    """

    reason: str
    real: float
    sim: float
    difference: Estimate

    @property
    def lacking(self) -> bool:
        """Whether it happens in reality, clearly, and never in simulation."""
        return self.sim == 0.0 and self.difference.high < 0.0


@dataclass(frozen=True, slots=True)
class Endings:
    """How trials ended that pair up, over ``cells`` of policies and starts. ``bias``: simulated
    less real outcome; ``bias_elsewhere`` over the ``elsewhere`` cells whose real trials did not end
    in a way that simulation lacks (None: there is no such way, or nothing else).
    """

    rows: tuple[Ending, ...]
    cells: int
    bias: float
    elsewhere: int
    bias_elsewhere: float | None


def endings(
    task: PairedTask, real: Sequence[TrialRecord], sim: Sequence[TrialRecord]
) -> Endings | None:
    """``real``, ``sim``: the trials that ``task`` was made of. None where either side does not say
    how its trials ended.
    """
    paired = {(c.policy, name) for c in task.conditions for name in c.real}
    here, there = (_cells(side, paired, task.by) for side in (real, sim))
    if not any(r for shares, _ in here.values() for r in shares) or not any(
        r for shares, _ in there.values() for r in shares
    ):
        return None
    keys = sorted(paired)
    reasons = dict.fromkeys(r for k in keys for side in (here, there) for r in side[k][0])
    rows = [_row(reason, keys, here, there) for reason in reasons]
    kept = [r for r in rows if max(r.real, r.sim) >= _RARE]
    kept.sort(key=lambda r: -max(r.real, r.sim))
    lacking = {r.reason for r in kept if r.lacking}
    others = [k for k in keys if not lacking & here[k][0].keys()]
    return Endings(
        tuple(kept),
        len(keys),
        _bias(keys, here, there),
        len(others),
        _bias(others, here, there) if lacking and others else None,
    )


def _cells(
    side: Sequence[TrialRecord], paired: set[tuple[str, str]], by: By
) -> dict[tuple[str, str], Cell]:
    found: dict[tuple[str, str], list[TrialRecord]] = {}
    for r in own_trials(side)[0]:
        if (r.policy, r.condition) in paired:
            found.setdefault((r.policy, r.condition), []).append(r)
    outcomes = means(
        [
            tuple(float(r.success) if by == "success" else float(r.score) for r in trials)
            for trials in found.values()
        ]
    ).tolist()
    return {
        key: (_shares(trials), mean)
        for (key, trials), mean in zip(found.items(), outcomes, strict=True)
    }


def _shares(trials: Sequence[TrialRecord]) -> Mapping[str, float]:
    shares: dict[str, float] = {}
    for r in trials:
        shares[r.reason] = shares.get(r.reason, 0.0) + 1.0 / len(trials)
    return shares


def _row(
    reason: str,
    keys: Sequence[tuple[str, str]],
    here: Mapping[tuple[str, str], Cell],
    there: Mapping[tuple[str, str], Cell],
) -> Ending:
    sides = [[side[k][0].get(reason, 0.0) for k in keys] for side in (here, there)]
    by_start: dict[str, list[float]] = {}
    for (_, start), a, b in zip(keys, *sides, strict=True):
        by_start.setdefault(start, []).append(b - a)
    gaps = means([tuple(v) for v in by_start.values()])
    real, sim = (float(np.mean(v)) for v in sides)
    return Ending(reason, real, sim, mean_t(gaps, bounds=(-1.0, 1.0)))


def _bias(
    keys: Sequence[tuple[str, str]],
    here: Mapping[tuple[str, str], Cell],
    there: Mapping[tuple[str, str], Cell],
) -> float:
    return float(np.mean([there[k][1] - here[k][1] for k in keys]))
