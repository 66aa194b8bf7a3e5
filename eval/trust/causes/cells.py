"""Lays out real trials beside simulated ones of several worlds: a cell per policy and start.

Rollouts of a cell have the same starts and seeds in every world (common random numbers), so that
what a shifted parameter changes is seen rollout by rollout.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.trust.pairing import By
from robolearn.errors import DataError
from robolearn.shapes import FloatRows, Floats, OwnFloats
from robolearn.types import TrialRecord

# Rollouts of a start that are needed to tell what is noise.
LEAST_ROLLOUTS = 2
# Starts that are needed to tell anything.
LEAST_STARTS = 8


@dataclass(frozen=True, slots=True)
class Shift:
    """A parameter that is off by ``level`` in the simulated ``world``."""

    parameter: str
    level: float
    world: str


@dataclass(frozen=True, slots=True)
class Cells:
    """Outcomes per cell ``c`` (a policy at a start)."""

    policies: tuple[str, ...]
    # Of each cell: its policy's number, and its start's; starts are what was drawn independently.
    policy: tuple[int, ...]
    start: tuple[int, ...]
    # Real outcomes of each cell, one or more.
    real: tuple[OwnFloats, ...]
    # Simulated outcomes ``[cells, rollouts]`` of the world as it is, and of every shifted one.
    nominal: FloatRows
    shifted: tuple[FloatRows, ...]

    @property
    def starts(self) -> int:
        """How many."""
        return len(set(self.start))

    @property
    def means(self) -> Floats:
        """Mean real outcome ``[cells]``."""
        return np.array([float(v.mean()) for v in self.real])

    def per_start(self, values: Floats) -> OwnFloats:
        """Means over the cells of each start ``[starts]`` of ``values [cells]``."""
        numbers = np.unique(np.array(self.start), return_inverse=True)[1]
        return np.bincount(numbers, values) / np.bincount(numbers)


def cells_of(
    real: Sequence[TrialRecord],
    sim: Mapping[str, Sequence[TrialRecord]],
    world: str,
    shifts: Sequence[Shift],
    by: By = "success",
) -> Cells:
    """Cells that were tried in reality and in all worlds.

    ``sim``: trials by world, of ``world`` and of those of ``shifts``. :class:`DataError` for too
    few starts or rollouts, and for worlds whose trials began elsewhere.
    """
    outcome = _success if by == "success" else _score
    real_of: dict[tuple[str, str], list[float]] = {}
    for r in real:
        real_of.setdefault((r.policy, r.condition), []).append(outcome(r))
    sims = [_by_seed(sim.get(name, ()), outcome) for name in (world, *(s.world for s in shifts))]
    keys = [key for key in real_of if all(key in found for found in sims)]
    if len({condition for _, condition in keys}) < LEAST_STARTS:
        raise DataError(
            f"{len({c for _, c in keys})} starts were tried in reality and in all worlds; causes"
            f" need {LEAST_STARTS} or more"
        )
    _require_alike(keys, sims, (world, *(s.world for s in shifts)))
    sizes = Counter(len(sims[0][key]) for key in keys)
    (rollouts, _), *others = sizes.most_common()
    if others or rollouts < LEAST_ROLLOUTS:
        raise DataError(
            f"expected equally many rollouts of every start, {LEAST_ROLLOUTS} or more; got"
            f" {sorted(sizes)}"
        )
    policies = tuple(dict.fromkeys(p for p, _ in keys))
    starts = list(dict.fromkeys(c for _, c in keys))
    rows = [np.array([list(found[key].values()) for key in keys]) for found in sims]
    return Cells(
        policies,
        tuple(policies.index(p) for p, _ in keys),
        tuple(starts.index(c) for _, c in keys),
        tuple(np.array(real_of[key]) for key in keys),
        rows[0],
        tuple(rows[1:]),
    )


def _success(record: TrialRecord) -> float:
    return float(record.success)


def _score(record: TrialRecord) -> float:
    return float(record.score)


def _by_seed(
    records: Sequence[TrialRecord], outcome: Callable[[TrialRecord], float]
) -> dict[tuple[str, str], dict[int, float]]:
    found: dict[tuple[str, str], dict[int, float]] = {}
    for r in sorted(records, key=lambda r: r.seed):
        found.setdefault((r.policy, r.condition), {})[r.seed] = outcome(r)
    return found


def _require_alike(
    keys: Sequence[tuple[str, str]],
    sims: Sequence[Mapping[tuple[str, str], Mapping[int, float]]],
    worlds: Sequence[str],
) -> None:
    for name, found in zip(worlds[1:], sims[1:], strict=True):
        for key in keys:
            if list(found[key]) != list(sims[0][key]):
                raise DataError(
                    f"the trials of {key[1]} by '{key[0]}' have other seeds in '{name}' than in"
                    f" '{worlds[0]}': they do not pair up rollout by rollout; simulate both by one"
                    " call"
                )
