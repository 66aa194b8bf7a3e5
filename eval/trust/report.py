"""Joins measures, their uncertainty and the verdict into a report per task and over all tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eval.statistics.intervals import check_level
from eval.trust import resampling
from eval.trust.agreement import ConditionAgreement
from eval.trust.causes.report import CausesReport
from eval.trust.closer import Closer
from eval.trust.endings import Endings
from eval.trust.estimates import RealEstimate
from eval.trust.measures import MEASURES, NEEDS_THREE, fisher_z, values
from eval.trust.off_policy import OffPolicyRow
from eval.trust.resampling import Chance, NoiseFloor, Span
from eval.trust.tables import PolicyPair, TaskTable, pooled
from eval.trust.trajectories import Trajectories
from eval.trust.variants import Variants
from eval.trust.verdict import ALPHA, REACHED, RULE, Judgement, Seen, Verdict, decide, judge
from eval.words import count_of, is_nothing, size
from robolearn.errors import DataError

CONVENTION = (
    "MMRV as in SIMPLER's code: for every policy the largest gap of real rates to one with"
    " (sim_i > sim_j) != (real_i > real_j), and the mean of these; not symmetric, order (sim, real)"
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One figure with everything that says how much it is worth; None: not known."""

    # None where it is not defined; ``why`` says why.
    value: float | None
    why: str
    # Over policies, where its assumptions hold.
    fisher_z: Span | None
    # By the bootstrap: the trials done again; other policies.
    over_trials: Span | None
    over_policies: Span | None
    drop_one: Span | None
    chance: Chance | None
    noise: NoiseFloor | None


@dataclass(frozen=True, slots=True)
class Choice:
    """Top 1: the policies that the simulator prefers, and those that are best in reality."""

    chosen: tuple[str, ...]
    best: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WrongPair:
    """A pair that the simulator orders wrong: it prefers ``preferred``, ``better`` is better."""

    preferred: str
    better: str
    # By so much in reality.
    lost: float


@dataclass(frozen=True, slots=True)
class TaskTrust:
    """What a table says about the simulator."""

    table: TaskTable
    measures: Mapping[str, Measured]
    # The p value of a perfect order of so many policies.
    least_p: float
    # What a simulator with a perfect order has, with the bias and scale of this one.
    order_noise: Mapping[str, NoiseFloor]
    choice: Choice | None
    worst: WrongPair | None
    judgement: Judgement
    # May rates be read off, in words.
    calibration: str
    # Condition by condition, where trials pair up.
    agreement: tuple[ConditionAgreement, ...] = ()
    # Real outcomes of the policies with the help of simulation.
    estimates: tuple[RealEstimate, ...] = ()
    # What explains the gap, where shifted worlds were simulated.
    causes: CausesReport | None = None
    # What recordings alone say, beside it; no verdict stands on it.
    off_policy: tuple[OffPolicyRow, ...] = ()
    # Which changes hurt, where the same changes were tried on both sides.
    variants: Variants | None = None
    # How far recordings lead away when they are replayed in the simulator.
    trajectories: Trajectories | None = None
    # Against another simulator of the same reality.
    closer: Closer | None = None
    # How trials ended, where they say so.
    endings: Endings | None = None

    @property
    def task(self) -> str:
        """Its name."""
        return self.table.task


@dataclass(frozen=True, slots=True)
class TrustReport:
    """All tasks, and ``pooled`` over them where there are several."""

    tasks: tuple[TaskTrust, ...]
    pooled: TaskTrust | None
    # Means over the tasks that define them, which papers print: Pearson's correlation and MMRV.
    mean_over_tasks: Mapping[str, float]
    level: float
    rule: str = RULE
    convention: str = CONVENTION
    # What the reader should know of how the tables came to be.
    notes: tuple[str, ...] = ()

    def notes_of(self, task: str) -> tuple[str, ...]:
        """The notes without those of other tasks alone."""
        others = tuple(f"{t.task}: " for t in self.tasks if t.task != task)
        return tuple(n for n in self.notes if not n.startswith(others))


def trust_report(
    tables: Sequence[TaskTable], *, level: float = 0.95, seed: int = 0, notes: Sequence[str] = ()
) -> TrustReport:
    """Judge every table, and all of them pooled. The same seed gives the same report.

    ``level``: of the intervals that are shown; the verdict's rule has its own.
    """
    check_level(level)
    if not tables:
        raise DataError("no tasks: a trust report takes at least one policy in one task")
    tasks = tuple(trust_in(t, level=level, seed=seed) for t in tables)
    over = trust_in(pooled(tables), level=level, seed=seed) if len(tables) > 1 else None
    means: dict[str, float] = {}
    for name in ("pearson", "mmrv"):
        known = [v for t in tasks if (v := t.measures[name].value) is not None]
        if known:
            means[name] = sum(known) / len(known)
    return TrustReport(tasks, over, means, level, notes=tuple(notes))


def trust_in(table: TaskTable, *, level: float = 0.95, seed: int = 0) -> TaskTrust:
    """Judge one table."""
    # What sums round to, and which of equal pairs is the worst, is no matter of the order of lines.
    named = table.by_name
    drawn = resampling.Drawn(named, seed)
    measures = _measured(drawn, level)
    order, violation = measures["spearman"], measures["mmrv"]
    worst = _worst(named)
    seen = _seen(
        drawn,
        order=float("nan") if order.value is None else order.value,
        violation=float("nan") if violation.value is None else violation.value,
        undefined=order.why,
        worst="" if worst is None else wrong_words(worst),
    )
    return TaskTrust(
        table=table,
        measures=measures,
        least_p=resampling.least_p(table.k),
        order_noise=seen.noise,
        choice=_choice(named),
        worst=worst,
        judgement=judge(named, seen, seed),
        calibration=_calibration(measures),
    )


def verdict_of(table: TaskTable, *, seed: int = 0) -> Verdict:
    """The verdict of :func:`trust_in` alone, in a tenth of the time."""
    table, names = table.by_name, ("spearman", "mmrv")
    found = values(sim=table.sim[None], real=table.real[None], names=names)
    order, violation = (float(found[name][0]) for name in names)
    undefined = _why_undefined("spearman", table, order)
    drawn = resampling.Drawn(table, seed)
    seen = _seen(drawn, order=order, violation=violation, undefined=undefined, worst="")
    return decide(table.k, seen)


def _seen(
    drawn: resampling.Drawn, *, order: float, violation: float, undefined: str, worst: str
) -> Seen:
    table, seed = drawn.table, drawn.seed
    return Seen(
        order=order,
        violation=violation,
        by_chance=None if undefined else resampling.as_correlated(table, seed, ALPHA),
        by_noise=None if undefined else resampling.as_violated(table, seed, REACHED, drawn),
        noise={} if undefined else resampling.order_floor(table, seed, drawn),
        undefined=undefined,
        trials=table.fewest,
        rates=_different(table),
        worst=worst,
    )


def wrong_words(pair: WrongPair) -> str:
    """A wrong preference as part of a sentence."""
    return (
        f"its worst preference is '{pair.preferred}' over '{pair.better}', which is better by"
        f" {size(pair.lost)} in reality"
    )


def _measured(drawn: resampling.Drawn, level: float) -> dict[str, Measured]:
    table, seed = drawn.table, drawn.seed
    if table.k == 0:
        missing = "no policy is in all tasks" if table.pooled else "no policies"
        return {n: Measured(None, missing, *(None,) * 6) for n in MEASURES}
    seen = values(sim=table.sim[None], real=table.real[None])
    trials = resampling.over_trials(table, level, seed, drawn)
    policies = resampling.over_policies(table, level, seed)
    dropped = resampling.drop_one(table)
    by_chance = resampling.chance(table, seed)
    noise = resampling.noise_floor(table, seed, drawn=drawn)
    out: dict[str, Measured] = {}
    for name in MEASURES:
        value = float(seen[name][0])
        why = _why_undefined(name, table, value)
        if why:
            out[name] = Measured(None, why, *(None,) * 6)
            continue
        z = fisher_z(name, sim=table.sim, real=table.real, level=level)
        out[name] = Measured(
            value=value,
            why="",
            fisher_z=None if z is None else (z.low, z.high),
            over_trials=trials.get(name),
            over_policies=policies.get(name),
            drop_one=dropped.get(name),
            chance=by_chance.get(name),
            noise=noise.get(name),
        )
    return out


def _why_undefined(name: str, table: TaskTable, value: float) -> str:
    k = table.k
    if name in NEEDS_THREE and k < 3:
        where = " in all tasks" if table.pooled else ""
        return f"{count_of(k, 'policy', 'policies')}{where}; three or more are needed"
    if name in ("mmrv", "pairwise_rank_loss", "top1_regret") and k < 2:
        return "one policy has no order"
    if np.isfinite(value):
        return ""
    for side, rates in (("simulated", table.sim), ("real", table.real)):
        if np.ptp(rates) <= 1e-12:
            return f"all {side} rates are {rates[0]:.3g}"
    return "the rates differ too little to be told apart as numbers"


def _different(table: TaskTable) -> int:
    # Means over tasks are added up in different orders.
    return int(np.unique(np.round(table.real, 12)).size)


def _choice(table: TaskTable) -> Choice | None:
    if table.k < 2:
        return None
    tops = [
        tuple(p.policy for p, v in zip(table.pairs, rates, strict=True) if v >= rates.max() - 1e-12)
        for rates in (table.sim, table.real)
    ]
    return Choice(*tops)


def _worst(table: TaskTable) -> WrongPair | None:
    if table.k < 2:
        return None
    sim, real = table.sim, table.real
    prefers = sim[:, None] > sim[None, :] + 1e-12
    lost = np.where(prefers, real[None, :] - real[:, None], 0.0)
    i, j = np.unravel_index(int(lost.argmax()), lost.shape)
    if lost[i, j] <= 1e-12:
        return None
    pairs: tuple[PolicyPair, ...] = table.pairs
    return WrongPair(pairs[int(i)].policy, pairs[int(j)].policy, float(lost[i, j]))


def _calibration(measures: Mapping[str, Measured]) -> str:
    bias, mae = measures["bias"], measures["mae"]
    if bias.value is None or mae.value is None:
        return "nothing to compare"
    if is_nothing(mae.value):
        return "simulated rates are those of reality"
    way = f"{size(bias.value)} {'higher' if bias.value > 0 else 'lower'}"
    if is_nothing(bias.value):
        way = "neither higher nor lower"
    figures = f"simulated rates are {way} on average, {size(mae.value)} off in the mean"
    if mae.noise is None:
        return figures
    if mae.value <= mae.noise.p95:
        return f"{figures}, as those of a perfect simulator are (up to {mae.noise.p95:.3f})"
    return (
        f"{figures}, where a perfect simulator is off by up to {mae.noise.p95:.3f}: real rates"
        " cannot be read off the simulated ones"
    )
