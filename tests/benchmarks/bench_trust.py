"""How often 'robolearn trust' gives which verdict, over simulators of known kinds.

``python -m tests.benchmarks.bench_trust [tables]`` prints a table of ``docs/results.md`` (200
tables per row by default): true real rates are spread over .05 to .95, trials are drawn anew.
``python -m tests.benchmarks.bench_trust estimates`` prints what intervals of real success do that
simulation helps, ``savings`` what a perfect simulator saves beside what is predicted, ``floors
[worlds]`` what noise is said to bring beside what it brings, where starts matter, ``intervals
[tables]`` how often intervals over trials hold what is true.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

from eval.trust.agreement import agreement
from eval.trust.endings import endings
from eval.trust.estimates import Repetitions, possible_saving, real_estimate, repetitions
from eval.trust.measures import mmrv, values
from eval.trust.outcomes import Outcomes, starts_of
from eval.trust.pairing import By, PairedConditions, paired_tasks
from eval.trust.report import trust_report, verdict_of
from eval.trust.resampling import draws_of, noise_floor, order_floor, over_trials
from eval.trust.tables import PolicyPair, TaskTable
from robolearn.types import TrialRecord
from tests.benchmarks.turns import at_least, interleaved

KINDS = {
    "perfect": "the real rates",
    "biased": "a third of the real rates, and .05",
    "noisy": "each rate off by .15 (standard deviation)",
    "shuffled": "the real rates of other policies",
    "constant": "the same rate for all",
}
NUMBERS = ((6, 50, 200), (8, 50, 200), (12, 20, 100), (12, 50, 200), (20, 50, 200))
# Real rates of worlds in which real success is estimated.
USUAL = (0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9)
EXTREME = (0.02, 0.05, 0.95, 0.98)
# (real rate, simulated rate, correlation) of worlds in which savings are counted.
CLAIMED = (
    (0.02, 0.2, 0.25), (0.98, 0.5, 0.0), (0.95, 0.8, 0.25), (0.2, 0.2, 0.0), (0.2, 0.5, 0.5),
    (0.5, 0.5, 0.0), (0.5, 0.5, 0.5), (0.5, 0.5, 0.75), (0.7, 0.8, 0.75),
)  # fmt: skip
# Of which intervals over trials are counted.
COUNTED = ("pearson", "spearman", "kendall", "mmrv", "bias", "mae", "ccc", "slope", "intercept")
VERDICTS = ("ranks reliably", "screens only", "not shown")


def simulator(kind: str, real: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """True simulated rates of policies with these true real ones."""
    return {
        "perfect": lambda: real,
        "biased": lambda: real / 3 + 0.05,
        "noisy": lambda: np.clip(real + rng.normal(0, 0.15, real.size), 0, 1),
        "shuffled": lambda: rng.permutation(real),
        "constant": lambda: np.full(real.size, 0.5),
    }[kind]()


def drawn(
    real: np.ndarray, sim: np.ndarray, trials: tuple[int, int], rng: np.random.Generator
) -> TaskTable:
    """A table of (real, simulated) ``trials`` per policy with these true rates."""
    pairs: list[PolicyPair] = []
    for i, rates in enumerate(zip(real, sim, strict=True)):
        sides = [
            (Outcomes.of_counts(int(rng.binomial(n, rate)), n),)
            for rate, n in zip(rates, trials, strict=True)
        ]
        pairs.append(PolicyPair(f"p{i}", *sides))
    return TaskTable("t", tuple(pairs))


def worlds(rate: float, correlation: float) -> list[np.ndarray]:
    """Shares of (both succeed, only simulation, only reality, neither) with this real rate and this
    correlation, for several rates of simulated success, as far as there are such worlds.
    """
    found: list[np.ndarray] = []
    for simulated in sorted({0.2, 0.5, 0.8, rate}):
        joint = rate * simulated + correlation * float(
            np.sqrt(rate * (1 - rate) * simulated * (1 - simulated))
        )
        cells = (joint, simulated - joint, rate - joint, 1 - rate - simulated + joint)
        if min(cells) >= -1e-12:
            found.append(np.clip(np.array(cells), 0.0, 1.0))
    return found


def covered(n: int, correlation: float, rates: Sequence[float], draws: int) -> list[Repetitions]:
    """Intervals from ``n`` paired conditions and 500 simulated ones in every such world."""
    rng = np.random.default_rng(n)
    return [
        repetitions(n * shares, 500, rng, smooth=0.0, draws=draws)
        for rate in rates
        for shares in worlds(rate, correlation)
    ]


def estimates(draws: int = 20_000) -> None:
    """Print coverage and width over worlds as Markdown, of usual rates and of extreme ones; then
    how often real trials are said to be saved, and the intervals by which they are cover.
    """
    for rates in (USUAL, EXTREME):
        print(f"\nreal rates {', '.join(f'{r:g}' for r in rates)}\n")
        _coverage(rates, draws)
    head = ("real trials", "real rate", "simulated", "correlation", "coverage", "saving claimed",
            "of these covered", "Wilson's")  # fmt: skip
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for n in (10, 20, 50):
        for rate, simulated, correlation in CLAIMED:
            _claimed(n, rate, simulated, correlation)


def _claimed(n: int, rate: float, simulated: float, correlation: float, draws: int = 400) -> None:
    shares = next(w for w in worlds(rate, correlation) if abs(w[0] + w[1] - simulated) < 1e-9)
    rng = np.random.default_rng(n)
    covers, claims, alone = (np.zeros(draws, dtype=bool) for _ in range(3))
    for i in range(draws):
        drawn = np.repeat([(1, 1), (0, 1), (1, 0), (0, 0)], rng.multinomial(n, shares), axis=0)
        real, sim = ({f"c{j}": (float(v),) for j, v in enumerate(side)} for side in drawn.T)
        more = {f"x{j}": (float(v),) for j, v in enumerate(rng.random(500) < simulated)}
        found = real_estimate(PairedConditions("p", real, sim, more), seed=i)
        covers[i] = found.estimate.low <= rate <= found.estimate.high
        alone[i] = found.alone.low <= rate <= found.alone.high
        claims[i] = found.saved > 0
    of_these = [f"{c[claims].mean():.3f}" if claims.any() else "" for c in (covers, alone)]
    shown = f"{covers.mean():.3f} | {claims.sum()} of {draws} | {of_these[0]} | {of_these[1]}"
    print(f"| {n} | {rate} | {simulated} | {correlation} | {shown} |", flush=True)


def _coverage(rates: Sequence[float], draws: int) -> None:
    head = ("real trials", "correlation", "worlds", "coverage, mean", "least", "Wilson's, mean",
            "least", "width over Wilson's, mean", "largest")  # fmt: skip
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for n in (10, 20, 50):
        for correlation in (0.0, 0.25, 0.5, 0.75, 0.9):
            found = covered(n, correlation, rates, draws)
            ours, alone = ([getattr(r, f) for r in found] for f in ("coverage", "coverage_alone"))
            ratio = [r.width / r.width_alone for r in found]
            figures = (np.mean(ours), min(ours), np.mean(alone), min(alone), np.mean(ratio))
            shown = " | ".join(f"{v:.3f}" for v in (*figures, max(ratio)))
            print(f"| {n} | {correlation} | {len(found)} | {shown} |", flush=True)


def savings(worlds_each: int = 200) -> None:
    """Print what perfect simulators save beside what is predicted from the ceiling alone."""
    rng = np.random.default_rng(0)
    head = ("real trials", "ceiling", "predicted", "saved, mean", "5 to 95 of 100")
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for n in (20, 50):
        for ceiling in (0.2, 0.4, 0.6, 0.8):
            # Chances of Beta(a, a), of which a condition explains so much of a single outcome.
            a = (1.0 - ceiling) / ceiling / 2.0
            saved = [saved_by_a_perfect_one(rng.beta(a, a, n + 500), n, rng)
                     for _ in range(worlds_each)]  # fmt: skip
            predicted, spread = possible_saving(0.5, n, 500, ceiling), np.percentile(saved, (5, 95))
            shown = f"{np.mean(saved):.1f} | {spread[0]:.0f} to {spread[1]:.0f}"
            print(f"| {n} | {ceiling} | {predicted} | {shown} |", flush=True)


def saved_by_a_perfect_one(chances: np.ndarray, n: int, rng: np.random.Generator) -> int:
    """Of ``n`` real trials, with one rollout from each start."""
    real, sim = ((rng.random(chances.size) < chances).astype(float) for _ in range(2))
    sides = [{f"c{i}": (float(v),) for i, v in enumerate(side)} for side in (real[:n], sim[:n])]
    more = {f"m{i}": (float(v),) for i, v in enumerate(sim[n:])}
    return real_estimate(PairedConditions("p", *sides, more)).saved


@dataclass(frozen=True, slots=True)
class World:
    """Twelve policies of rates .16 to .84 and their trials; a start shifts the normal deviate of a
    chance of success.
    """

    words: str
    starts: int
    real: int
    sim: int
    # Standard deviation of the shift, in reality and in simulation; a simulator that is perfect
    # has the same shifts, and the same rates.
    shift: float
    sim_shift: float = 0.0
    # Of its variance: what is the same for all policies, and in both worlds.
    alike: float = 0.0
    joint: float = 1.0

    def happened(self, draws: int, rng: np.random.Generator) -> list[np.ndarray]:
        """Successes ``[draws, policies, starts]`` in reality and in simulation."""
        real, new = (self._shifts(draws, rng) for _ in range(2))
        perfect = self.joint == 1.0
        sim = real if perfect else np.sqrt(self.joint) * real + np.sqrt(1 - self.joint) * new
        at = np.linspace(-1.0, 1.0, 12)[:, None]
        bent = at if perfect else 0.6 * at - 0.5
        sides = ((at, self.shift, real, self.real),
                 (bent, self.shift if perfect else self.sim_shift, sim, self.sim))  # fmt: skip
        return [rng.binomial(n, stats.norm.cdf(m * np.sqrt(1 + s * s) + s * z))
                for m, s, z, n in sides]  # fmt: skip

    def _shifts(self, draws: int, rng: np.random.Generator) -> np.ndarray:
        common = rng.normal(size=(draws, 1, self.starts))
        own = rng.normal(size=(draws, 12, self.starts))
        return np.sqrt(self.alike) * common + np.sqrt(1 - self.alike) * own

    def table(self, real: np.ndarray, sim: np.ndarray) -> TaskTable:
        """Of one draw."""
        sides = [[{f"s{i}": (1.0,) * int(c) + (0.0,) * (n - int(c)) for i, c in enumerate(row)}
                  for row in rows] for rows, n in ((real, self.real), (sim, self.sim))]  # fmt: skip
        own = starts_of(*sides)
        counts = [[Outcomes.of_counts(int(row.sum()), row.size * n) for row in rows]
                  for rows, n in ((real, self.real), (sim, self.sim))]  # fmt: skip
        pairs = (PolicyPair(f"p{k}", (r,), (s,), (own[k],))
                 for k, (r, s) in enumerate(zip(*counts, strict=True)))  # fmt: skip
        return TaskTable("t", tuple(pairs))


WORLDS = (
    World("perfect", 20, 1, 4, 1.0),
    World("perfect", 20, 1, 4, 3.0),
    World("perfect", 10, 3, 5, 2.0, alike=0.5),
    World("right order, starts of its own", 10, 5, 20, 2.0, 4.0, joint=0.0),
    World("right order, some starts alike", 20, 1, 5, 1.0, 4.0, joint=0.25),
    World("right order, starts of its own, hard for all", 10, 5, 20, 2.0, 4.0, 1.0, 0.0),
)


def floors(worlds: int = 60) -> None:
    """Print what MMRV noise is said to bring, trials independent and start by start."""
    head = ("simulator", "starts", "trials of each, real / simulated", "MMRV, 95 of 100",
            "as independent", "exceeded", "start by start", "exceeded")  # fmt: skip
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for world in WORLDS:
        rng = np.random.default_rng(0)
        many = [side.mean(axis=2) / n for side, n in
                zip(world.happened(4_000, rng), (world.real, world.sim), strict=True)]  # fmt: skip
        shown = [f"{np.percentile(mmrv(real=many[0], sim=many[1]), 95):.3f}"]
        tables = [world.table(*one) for one in zip(*world.happened(worlds, rng), strict=True)]
        seen = np.array([mmrv(sim=t.sim[None], real=t.real[None])[0] for t in tables])
        floor = noise_floor if world.joint == 1.0 else order_floor
        for known in (False, True):
            told = [floor(t if known else loose(t), i)["mmrv"].p95 for i, t in enumerate(tables)]
            shown += [f"{np.mean(told):.3f}", f"{np.mean(seen > np.array(told) + 1e-9):.2f}"]
        what = f"{world.words} | {world.starts} | {world.real} / {world.sim}"
        print(f"| {what} | {' | '.join(shown)} |", flush=True)


@dataclass(frozen=True, slots=True)
class Counted:
    """Tables of worlds of one kind, each with its true rates ``(sim, real)``."""

    words: str
    tables: Sequence[tuple[TaskTable, np.ndarray, np.ndarray]]

    def row(self) -> str:
        """How often percentiles of trials done again, and the intervals of the report, hold it."""
        held: dict[str, list[tuple[bool, bool, float]]] = {name: [] for name in COUNTED}
        for seed, (table, sim, real) in enumerate(self.tables):
            rng = np.random.default_rng(seed)
            again = table.by_name.redrawn(draws_of(table.k), rng)
            drawn_again = values(sim=again[0], real=again[1], names=COUNTED)
            found = over_trials(table, 0.95, seed)
            true = values(sim=sim[None], real=real[None], names=COUNTED)
            for name in COUNTED:
                at = float(true[name][0])
                if name not in found or not np.isfinite(at):
                    continue
                low, high = found[name]
                before = np.nanpercentile(drawn_again[name], (2.5, 97.5))
                held[name].append(
                    (bool(before[0] - 1e-9 <= at <= before[1] + 1e-9),
                     low - 1e-9 <= at <= high + 1e-9, high - low)
                )  # fmt: skip
        cells = (
            "{:.2f}, **{:.2f}** ({:.2f})".format(*np.mean(held[n], axis=0)) if held[n] else ""
            for n in COUNTED
        )
        return f"| {self.words} | {' | '.join(cells)} |"


def intervals(tables: int = 200) -> None:
    """Print how often intervals over trials hold the true value, and how wide they are."""
    head = ("simulator", "policies", "trials, real / simulated", *COUNTED)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for kind in ("perfect", "noisy", "biased", "shuffled"):
        for k, n, m in ((6, 10, 50), (12, 10, 50), (12, 50, 200)):
            made: list[tuple[TaskTable, np.ndarray, np.ndarray]] = []
            for seed in range(tables):
                rng = np.random.default_rng(seed)
                real = rng.uniform(0.02, 0.98, k)
                sim = np.clip(simulator(kind, real, rng), 0.0, 1.0)
                made.append((drawn(real, sim, (n, m), rng), sim, real))
            print(Counted(f"{kind} | {k} | {n} / {m}", made).row(), flush=True)
    for world in WORLDS:
        at = np.linspace(-1.0, 1.0, 12)
        rates = [stats.norm.cdf(m) for m in (at if world.joint == 1.0 else 0.6 * at - 0.5, at)]
        happened = zip(*world.happened(tables, np.random.default_rng(0)), strict=True)
        made = [(world.table(*one), rates[0], rates[1]) for one in happened]
        trials = f"{world.starts} starts, {world.real} / {world.sim}"
        print(Counted(f"{world.words} | 12 | {trials}", made).row(), flush=True)


def loose(table: TaskTable) -> TaskTable:
    """The same with nothing known of starts."""
    return replace(table, pairs=tuple(replace(p, starts=()) for p in table.pairs))


def trials(kind: str, policies: int, starts: int, repeats: int) -> list[TrialRecord]:
    """Trials of policies of rising quality, some of them with several trials per start."""
    rng = np.random.default_rng(len(kind))
    made: list[TrialRecord] = []
    for p in range(policies):
        for c in range(starts):
            for seed in range(repeats):
                score = float(np.clip((p + 1) / policies - c / starts + rng.normal(0.5, 0.3), 0, 1))
                good = score > 0.8
                made.append(
                    TrialRecord(
                        *(f"p{p}", f"hash {p}", f"the {kind}", f"hash {kind}", "engine", "sim"),
                        *(f"start {c}", seed, good, 1.0 if good else score, score, score),
                        *(100, 5.0, "success" if good else "time_limit", ""),
                        suite="suite@1",
                    )
                )
    return made


def judged(real: Sequence[TrialRecord], sim: Sequence[TrialRecord], by: By) -> None:
    """All that a report computes of trials that were read."""
    for task in paired_tasks(real, sim, by):
        trust_report([task.table])
        agreement(task)
        endings(task, real, sim)
        for conditions in task.conditions:
            real_estimate(conditions)


def coefficients(policies: int, trials_each: int, draws: int = 2_000) -> None:
    """Scipy's three coefficients of one bootstrap over trials, draw by draw."""
    rng = np.random.default_rng(0)
    rates = np.linspace(0.05, 0.95, policies)
    for _ in range(draws):
        sim, real = (rng.binomial(trials_each, rates) / trials_each for _ in range(2))
        for of in (stats.pearsonr, stats.spearmanr, stats.kendalltau):
            of(sim, real)


def rows(long: bool = False) -> list[dict[str, object]]:
    """What a report of 240 pairs costs beside scipy's coefficients of one bootstrap."""
    policies, starts = 12, 20
    real, sim = trials("reality", policies, starts, 1), trials("scene", policies, starts, 2)
    found: list[dict[str, object]] = []
    # By score every single score is drawn anew.
    floors_of: dict[By, float] = {"success": 10.0, "score": 7.0}
    for by, floor in floors_of.items():
        ours, theirs = interleaved(
            functools.partial(judged, real, sim, by),
            functools.partial(coefficients, policies, starts),
            repeats=7 if long else 3,
            warm=1,
        )
        found.append(
            at_least(
                f"trust report by {by}, 12 policies, 20 starts, over scipy's pearsonr, spearmanr"
                " and kendalltau of 2,000 draws one by one",
                *("s", round(ours, 3), round(theirs, 3), round(theirs / ours, 2), floor),
            )
        )
    return found


def main(tables: int) -> None:
    """Print the table of verdicts as Markdown."""
    head = ("simulator", "policies", "trials, real / simulated", *VERDICTS)
    print("| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for kind, words in KINDS.items():
        for k, n, m in NUMBERS:
            found: Counter[str] = Counter()
            for seed in range(tables):
                rng = np.random.default_rng(seed)
                real = np.linspace(0.05, 0.95, k)
                sim = simulator(kind, real, rng)
                found[verdict_of(drawn(real, sim, (n, m), rng), seed=seed)] += 1
            shares = " | ".join(f"{found[v] / tables:.3f}" for v in VERDICTS)
            print(f"| {kind}: {words} | {k} | {n} / {m} | {shares} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["estimates"]:
        estimates()
    elif sys.argv[1:] == ["savings"]:
        savings()
    elif sys.argv[1:2] == ["floors"]:
        floors(*map(int, sys.argv[2:]))
    elif sys.argv[1:2] == ["intervals"]:
        intervals(*map(int, sys.argv[2:]))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
