"""Says which parameters of a simulator explain its gap to reality, and what that leaves open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval.statistics.intervals import Estimate, mean_t
from eval.trust.causes.cells import Cells, Shift
from eval.trust.causes.response import (
    exchanged,
    largest_of_chance,
    responses,
    squared_gap,
)
from eval.trust.measures import mmrv, pearson
from eval.trust.pairing import By
from robolearn.seeding import child_seed
from robolearn.shapes import FloatRows, Floats

# "found": one parameter explains the gap best, and no other as well. "several": more than one, and
# these trials do not tell them apart. "unexplained": there is a gap, and no parameter that was
# shifted explains it. "nothing shown": neither a gap nor a cause.
CauseVerdict = Literal["found", "several", "unexplained", "nothing shown"]
ALPHA = 0.05
# A level that fits is believed up to so many times the one that was tried.
FURTHEST = 2.0
_RESAMPLES = 2_000

RULE = (
    "A parameter is a cause if reality lies on the side to which its shift moves simulated"
    f" outcomes (p <= {ALPHA:g} for all shifts together, by signs of starts drawn anew)."
    " Of several causes one is 'found' if it fits better than each of the others (95 % interval of"
    " the squared error that it takes away)."
    " A gap is shown if real trials could not be simulated ones of the same starts (exact"
    f" permutation test, p <= {ALPHA:g})."
)


@dataclass(frozen=True, slots=True)
class ShiftFinding:
    """What the trials say of one shift."""

    shift: Shift
    # How far it moves simulated outcomes.
    effect: Estimate
    # Whether it moves them at all (mean square, one-sided).
    moves: bool
    # Whether reality lies on that side: p value of it alone, and for all shifts at once.
    p_alone: float
    p: float
    # Squared error that it explains, at the level that fits best.
    explained: float
    # The level that fits best, with its interval over starts; None where nothing moves.
    level: Estimate | None


@dataclass(frozen=True, slots=True)
class ParameterFinding:
    """What the trials say of one parameter, by the shift of it that says most."""

    parameter: str
    best: ShiftFinding
    shifts: tuple[ShiftFinding, ...]
    cause: bool
    # Levels that the trials leave open: what to train on; None where outcomes do not tell.
    plausible: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class MixedRate:
    """Mean outcomes of a policy: real, simulated as the world is, and over all shifted worlds."""

    policy: str
    real: float
    nominal: float
    mixed: float
    lowest: float
    highest: float


@dataclass(frozen=True, slots=True)
class Mixed:
    """A simulator that is the world and all its shifts in equal parts: what to fall back on."""

    # Squared error that it takes away.
    gain: Estimate
    rates: tuple[MixedRate, ...]
    # Pearson's correlation and MMRV of the nominal and of the mixed rates; None: not defined.
    nominal_agreement: Mapping[str, float | None]
    mixed_agreement: Mapping[str, float | None]


@dataclass(frozen=True, slots=True)
class CausesReport:
    """What explains the gap between a simulated world and reality."""

    world: str
    by: By
    policies: int
    starts: int
    rollouts: int
    # Mean squared error of simulated outcomes, less what noise alone gives.
    gap: Estimate
    gap_p: float
    # The one that explains most first.
    parameters: tuple[ParameterFinding, ...]
    # Causes that these trials do not tell apart, the best first.
    suspects: tuple[str, ...]
    verdict: CauseVerdict
    mixed: Mixed
    # Parameter -> why it was not shifted.
    left_out: Mapping[str, str]
    rule: str = RULE


def causes_report(
    cells: Cells,
    shifts: Sequence[Shift],
    world: str,
    *,
    by: By = "success",
    left_out: Mapping[str, str] | None = None,
    seed: int = 0,
) -> CausesReport:
    """Judge ``shifts`` (in the order of ``cells.shifted``); the same seed gives the same report."""
    real, nominal = cells.means, cells.nominal
    every = [responses(real, nominal, x, cells.policy) for x in cells.shifted]
    u, d2 = ([cells.per_start(found[i]) for found in every] for i in (0, 1))
    rng = np.random.default_rng(child_seed(seed, "causes"))
    _, p = largest_of_chance(np.array(u).T, rng)
    found = tuple(
        _finding(cells, i, shift, (u[i], d2[i]), float(p[i]), rng) for i, shift in enumerate(shifts)
    )
    parameters = _ranked(found)
    suspects = _suspects(parameters, dict(zip(shifts, zip(u, d2, strict=True), strict=True)))
    gap = mean_t(cells.per_start(squared_gap(cells.real, nominal)))
    gap_p = exchanged(cells.real, nominal, cells.policy, rng)
    return CausesReport(
        world,
        by,
        len(cells.policies),
        cells.starts,
        nominal.shape[1],
        gap,
        gap_p,
        parameters,
        suspects,
        _verdict(suspects, gap_p),
        _mixed(cells),
        dict(left_out or {}),
    )


def _finding(
    cells: Cells,
    index: int,
    shift: Shift,
    per_start: tuple[Floats, Floats],
    p: float,
    rng: np.random.Generator,
) -> ShiftFinding:
    u, d2 = per_start
    moved = cells.per_start((cells.shifted[index] - cells.nominal).mean(axis=1))
    moves = mean_t(d2, level=1.0 - 2.0 * ALPHA).low > 0.0
    _, alone = largest_of_chance(u[:, None], rng)
    explained = float(_taken(u, d2).mean()) if moves else 0.0
    level = _level(u, d2, shift.level, rng) if moves else None
    return ShiftFinding(shift, mean_t(moved), moves, float(alone[0]), p, explained, level)


def _level(u: Floats, d2: Floats, level: float, rng: np.random.Generator) -> Estimate:
    """The level that fits best, ``level`` times mean u over mean d^2."""
    drawn = rng.integers(0, u.size, (_RESAMPLES, u.size))
    above, below = u[drawn].mean(axis=1), d2[drawn].mean(axis=1)
    steps = above / np.maximum(below, 1e-12)
    ends = level * np.quantile(steps, [0.025, 0.975], method="nearest")
    return Estimate(
        level * float(u.mean() / d2.mean()),
        float(ends.min()),
        float(ends.max()),
        int(u.size),
        "bootstrap over starts",
    )


def _ranked(found: Sequence[ShiftFinding]) -> tuple[ParameterFinding, ...]:
    of: dict[str, list[ShiftFinding]] = {}
    for f in found:
        of.setdefault(f.shift.parameter, []).append(f)
    listed: list[ParameterFinding] = []
    for name, shifts in of.items():
        best = min(shifts, key=lambda f: (not f.moves, f.p_alone, -f.explained))
        cause = best.moves and best.p <= ALPHA
        listed.append(ParameterFinding(name, best, tuple(shifts), cause, _plausible(best, shifts)))
    return tuple(sorted(listed, key=lambda q: (not q.cause, -q.best.explained, q.parameter)))


def _plausible(best: ShiftFinding, shifts: Sequence[ShiftFinding]) -> tuple[float, float] | None:
    """The interval of the level, near what was tried: beyond that nobody looked."""
    if best.level is None:
        return None
    tried = [f.shift.level for f in shifts]
    least, most = FURTHEST * min(0.0, *tried), FURTHEST * max(0.0, *tried)
    low, high = (float(np.clip(v, least, most)) for v in (best.level.low, best.level.high))
    return low, high


def _suspects(
    parameters: Sequence[ParameterFinding], per_start: Mapping[Shift, tuple[Floats, Floats]]
) -> tuple[str, ...]:
    causes = [q for q in parameters if q.cause]
    if not causes:
        return ()
    taken = [_taken(*per_start[q.best.shift]) for q in causes]
    return tuple(
        q.parameter
        for q, mine in zip(causes, taken, strict=True)
        if q is causes[0] or mean_t(taken[0] - mine).low <= 0.0
    )


def _taken(u: Floats, d2: Floats) -> Floats:
    """Squared error that the best step takes away, per start; of steps that somebody looked at."""
    step = float(np.clip(u.mean() / d2.mean(), 0.0, FURTHEST))
    return 2.0 * step * u - step**2 * d2


def _verdict(suspects: Sequence[str], gap_p: float) -> CauseVerdict:
    if suspects:
        return "found" if len(suspects) == 1 else "several"
    return "unexplained" if gap_p <= ALPHA else "nothing shown"


def _mixed(cells: Cells) -> Mixed:
    every = np.array([cells.nominal, *cells.shifted])
    mixed = every.mean(axis=0)
    real = cells.means
    gain = _error(real, cells.nominal) - _error(real, mixed)
    numbers = np.array(cells.policy)
    rates: list[MixedRate] = []
    for i, name in enumerate(cells.policies):
        mine = numbers == i
        worlds = every[:, mine].mean(axis=(1, 2))
        rates.append(
            MixedRate(
                name,
                float(real[mine].mean()),
                float(worlds[0]),
                float(worlds.mean()),
                float(worlds.min()),
                float(worlds.max()),
            )
        )
    seen, plain, over = (
        np.array([[getattr(r, name) for r in rates]]) for name in ("real", "nominal", "mixed")
    )
    return Mixed(
        mean_t(cells.per_start(gain)),
        tuple(rates),
        _agreement(plain, seen),
        _agreement(over, seen),
    )


def _error(real: Floats, rollouts: FloatRows) -> Floats:
    """Squared error of the mean over rollouts, without what their number adds."""
    n = rollouts.shape[1]
    return (real - rollouts.mean(axis=1)) ** 2 - rollouts.var(axis=1, ddof=1) / n


def _agreement(sim: FloatRows, real: FloatRows) -> dict[str, float | None]:
    found = {"pearson": pearson(sim=sim, real=real), "mmrv": mmrv(sim=sim, real=real)}
    enough = {"pearson": sim.shape[1] >= 3, "mmrv": sim.shape[1] >= 2}
    return {
        name: float(v[0]) if enough[name] and np.isfinite(v[0]) else None
        for name, v in found.items()
    }
