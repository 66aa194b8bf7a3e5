"""Decides in words how far a simulator may be trusted to order policies, and what would settle it.

The rule looks at the order alone: a simulator whose rates are all a third of the real ones may rank
perfectly. It asks for two things that are wrong in different ways with few policies and few trials:
that the order is right over policies, and that what is wrong in it is no more than noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from eval.statistics.ranking import spearman_interval
from eval.trust.measures import mmrv, spearman
from eval.trust.outcomes import Outcomes
from eval.trust.resampling import NoiseFloor, Share, draws_of
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.seeding import child_seed
from robolearn.shapes import Flags, FloatRows, Floats

Verdict = Literal["ranks reliably", "screens only", "not shown"]
RELIABLY: Verdict = "ranks reliably"
SCREENS: Verdict = "screens only"
NOT_SHOWN: Verdict = "not shown"

# Of the interval of Spearman's correlation: a part of the rule, whatever level is shown beside it.
LEVEL = 0.95
# What its lower end must reach.
LEAST_ORDER = 0.5
# Of the one-sided permutation test.
ALPHA = 0.05
# As often as this noise must bring so large an MMRV under a perfect order.
REACHED = 0.05
# The largest MMRV where trial numbers, and so the noise, are not known.
RATES_ONLY = 0.05
# With fewer trials of a policy in either world, where they are known, all of them may have ended
# alike, and nothing says how noisy they are.
LEAST_TRIALS = 10
# With fewer different real rates there is no order to be right about: of eight policies of which
# one succeeds and seven fail, any simulator that knows the one has them all in order.
LEAST_RATES = 5
# How often a perfect order should be recognised.
POWER = 0.8
_TIMES = (2.0, 4.0, 8.0, 16.0, 32.0)
_MORE_POLICIES = (1.5, 2.0, 3.0, 4.0)

RULE = (
    f"'{RELIABLY}': the {100 * LEVEL:g} % interval of Spearman's correlation over policies begins"
    f" at {LEAST_ORDER} or above, and MMRV is no larger than in 95 of 100 repetitions of a"
    " simulator with the perfect order, this one's bias and scale, and these trial numbers (where"
    f" these are not known: at most {RATES_ONLY}); with at least {LEAST_TRIALS} trials per policy"
    " in both worlds (of one start one counts, where starts are known), and at least"
    f" {LEAST_RATES} different real rates."
    f" '{SCREENS}': the rates agree better than by chance (permutation test of Pearson's"
    f" correlation, one-sided, p <= {ALPHA}): good for dropping the worst, not for ordering the"
    " rest."
    f" '{NOT_SHOWN}': neither."
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, why it is that, and what more trials or policies would settle."""

    verdict: Verdict
    why: str
    # Empty where nothing more is needed.
    more: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rule looks at."""

    # Spearman's correlation and MMRV; nan where not defined.
    order: float
    violation: float
    # How often rates agree so well by chance; None where the order is not defined.
    by_chance: Share | None
    # How often MMRV is as large under a perfect order; None without trial numbers.
    by_noise: Share | None
    # Of Spearman's correlation and MMRV under a perfect order; empty without trial numbers.
    noise: Mapping[str, NoiseFloor]
    # Why the correlation is not defined; empty where it is.
    undefined: str
    # The fewest trials of a policy on a side of which they are known, of which one counts per start
    # where starts are known; None: on neither.
    trials: int | None
    # How many different real rates there are.
    rates: int
    # The simulator's worst preference, in words; empty if it has none that is wrong.
    worst: str


def decide(k: int, seen: Seen) -> Verdict:
    """Apply :data:`RULE` to what was seen of ``k`` policies."""
    if seen.undefined:
        return NOT_SHOWN
    low = float(_lower(np.array([seen.order]), k)[0])
    enough = seen.rates >= LEAST_RATES and (seen.trials is None or seen.trials >= LEAST_TRIALS)
    if enough and low >= LEAST_ORDER and _noise_explains(seen):
        return RELIABLY
    chance = seen.by_chance
    return SCREENS if chance is not None and chance.ends[1] <= ALPHA else NOT_SHOWN


def judge(table: TaskTable, seen: Seen, seed: int) -> Judgement:
    """Decide, and say why and what more would settle it."""
    k, verdict = table.k, decide(table.k, seen)
    if seen.undefined:
        return Judgement(verdict, f"no order to compare: {seen.undefined}", _needed(k))
    low = float(_lower(np.array([seen.order]), k)[0])
    interval = f"{100 * LEVEL:g} % interval from {low:z.2f}" if k > 3 else "too few for an interval"
    why = [f"Spearman {seen.order:z.2f} of {k} policies, {interval}"]
    if verdict != RELIABLY and seen.by_chance is not None:
        why.append(
            f"p = {seen.by_chance.value:.2g} that rates agree so well by"
            f" chance{_untold(seen.by_chance, ALPHA)}"
        )
    why.append(f"MMRV {seen.violation:.3f}{_noise_words(seen)}")
    more = "" if verdict == RELIABLY else _more(table, seen, seed)
    return Judgement(verdict, "; ".join(why), more)


def share_recognised(table: TaskTable, seed: int, times: float = 1.0) -> float:
    """How often a simulator with the perfect order, and the bias and scale of this one, would be
    found to rank reliably with ``times`` the trials.
    """
    if table.k <= 3:
        return 0.0
    rng = np.random.default_rng(child_seed(seed, "power", str(times), table.k))
    draws = min(1_000, draws_of(table.k))
    return float(recognised(*table.by_name.ordered(draws, rng, times)).mean())


def recognised(sim: FloatRows, real: FloatRows) -> Flags:
    """Which draws of a simulator with the perfect order the rule finds reliable."""
    violation = mmrv(sim=sim, real=real)
    limit = float(np.percentile(violation, 95))
    low = _lower(spearman(sim=sim, real=real), sim.shape[1])
    return (np.nan_to_num(low, nan=-1.0) >= LEAST_ORDER) & (violation <= limit + 1e-9)


def fewest_policies() -> int:
    """Of which a perfect order can be found reliable."""
    k = 4
    while _lower(np.array([1.0]), k)[0] < LEAST_ORDER:
        k += 1
    return k


def _lower(order: Floats, k: int) -> Floats:
    return spearman_interval(order, k, LEVEL)[0] if k > 3 else np.full(order.shape, -1.0)


def _noise_explains(seen: Seen) -> bool:
    """Whether MMRV is within noise for sure."""
    if seen.by_noise is None:
        return seen.violation <= RATES_ONLY + 1e-9
    return seen.by_noise.ends[0] >= REACHED


def _noise_words(seen: Seen) -> str:
    if seen.by_noise is None:
        return f" where at most {RATES_ONLY:g} is accepted without trial numbers"
    times = 100 * seen.by_noise.value
    share = f"{times:.1f}" if times < 9.95 else f"{times:.0f}"
    return (
        f", which noise reaches in {share} of 100 repetitions of a perfect"
        f" order{_untold(seen.by_noise, REACHED)}"
    )


def _untold(share: Share, limit: float) -> str:
    if share.told(limit):
        return ""
    return f" (too near to the limit of {limit:g} to be told from it in {share.draws} draws)"


def _needed(k: int) -> str:
    return f"policies that differ, {fewest_policies()} or more of them (here {k})"


def _more(table: TaskTable, seen: Seen, seed: int) -> str:
    fewest = fewest_policies()
    if table.k < fewest:
        return (
            f"more trials of these {table.k} policies cannot show it: even of a perfect order the"
            f" interval begins too low with fewer than {fewest} policies; add"
            f" {fewest - table.k} or more"
        )
    if seen.trials is not None and seen.trials < LEAST_TRIALS:
        return (
            f"{LEAST_TRIALS} trials or more of every policy in both worlds, from different starts"
            f" where starts are known (here {seen.trials})"
        )
    if seen.rates < LEAST_RATES:
        return (
            f"policies that differ in reality: these {table.k} have {seen.rates} different rates,"
            f" which show an order of no more; {LEAST_RATES} or more are needed"
        )
    if not {"spearman", "mmrv"} <= seen.noise.keys():
        return "give successes and trials instead of rates to learn what noise explains"
    if seen.by_noise is not None and not seen.by_noise.told(REACHED):
        return "this table lies at the limit: a few more trials decide it either way"
    least, most = seen.noise["spearman"].p5, seen.noise["mmrv"].p95
    if not _noise_explains(seen) or seen.order < least - 1e-9:
        worst = f"; {seen.worst}" if seen.worst else ""
        return (
            "more trials alone are not likely to help: with a perfect order noise leaves Spearman"
            f" at {least:.2f} or more and MMRV at {most:.3f} or less in 95 of 100"
            f" repetitions each{worst}"
        )
    return _planned(table, seed)


def _planned(table: TaskTable, seed: int) -> str:
    now = share_recognised(table, seed)
    said = (
        "with these numbers a simulator with the perfect order, too, would be found to rank"
        " reliably in only"
        f" {100 * now:.0f} of 100 repetitions"
        if now < POWER
        else "these numbers recognise a perfect order in"
        f" {100 * now:.0f} of 100 repetitions, so the order itself is in doubt"
    )
    ways: list[str] = []
    for times in _TIMES:
        if share_recognised(table, seed, times) >= POWER:
            ways.append(f"about {times:g} times the trials{_trials_words(table, times)}")
            break
    for factor in _MORE_POLICIES:
        k = round(table.k * factor)
        if share_recognised(_denser(table, k), seed) >= POWER:
            ways.append(f"about {k} policies of the same range")
            break
    if now >= POWER:
        return f"{said}; try more policies"
    if not ways:
        return f"{said}; policies that differ more are needed, not more trials"
    return f"{said}; {100 * POWER:.0f} take {' or '.join(ways)}"


def _trials_words(table: TaskTable, times: float) -> str:
    known = [
        f"{most * times:.0f} {side}"
        for side, spread in (("real", table.real_trials), ("simulated", table.sim_trials))
        if spread is not None
        for most in (spread[1],)
    ]
    return f" ({', '.join(known)} per policy)" if known else ""


def _denser(table: TaskTable, k: int) -> TaskTable:
    """``k`` policies spread over the real rates as these are, with their most usual trials."""
    at = np.linspace(0, 1, k), np.linspace(0, 1, table.k)
    real, sim = (np.interp(*at, np.sort(rates)) for rates in (table.real, table.sim))
    like = table.pairs[table.k // 2]
    pairs = tuple(
        PolicyPair(
            f"{i}",
            tuple(Outcomes(float(rate), o.trials) for o in like.real),
            tuple(Outcomes(float(simulated), o.trials) for o in like.sim),
            like.starts,
        )
        for i, (rate, simulated) in enumerate(zip(real, sim, strict=True))
    )
    return TaskTable(table.task, pairs)
