"""What the statistics promise, counted: coverage and level over nasty regimes.

``python -m tests.benchmarks.bench_statistics [draws]`` prints the tables of ``docs/statistics.md``
(5,000 draws per cell by default; so many samples of a regime, a standard error of .003 at .95).
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator

import numpy as np
from scipy import special, stats

from eval.statistics.betting import SHARES
from eval.statistics.exact_difference import exact_difference
from eval.statistics.group_sequential import GroupSequential
from eval.statistics.intervals import Estimate, bounded_mean, mean_t, newcombe, wilson
from eval.statistics.nested import generalisation_gap
from eval.statistics.planning import plan_paired, plan_sequence, plan_two_rates, power_paired
from eval.statistics.random_weights import share_below
from eval.statistics.runs import difference_over_runs, mean_over_runs
from eval.statistics.sequential import SequentialBarnard
from tests.benchmarks.turns import interleaved

DRAWS = 5_000
WALL = math.log(40.0)

Row = tuple[str, ...]
Rows = list[Row]


def bounded_p(samples: np.ndarray, null: float, low: float, high: float) -> np.ndarray:
    """``bounded_mean_p`` of every row of ``samples [draws, n]``; rows with equally many values on
    one side of ``null`` at once.
    """
    above = _below(np.concatenate([samples, np.full((len(samples), 1), low)], axis=1) - null)
    below = _below(null - np.concatenate([samples, np.full((len(samples), 1), high)], axis=1))
    return np.minimum(1.0, 2.0 * np.minimum(above, below))


def _below(v: np.ndarray) -> np.ndarray:
    v = np.sort(v, axis=1)
    split = (v <= 0).sum(axis=1)
    out = np.empty(len(v))
    for k in np.unique(split):
        rows = v[split == k]
        if k == v.shape[1]:
            out[split == k] = 1.0
        elif k == 0:
            out[split == k] = 0.0
        else:
            found = share_below(rows[:, :k], rows[:, k:])
            out[split == k] = np.where(rows[:, 0] == 0, 0.0, found)
    return out


def t_covers(samples: np.ndarray, mean: float) -> np.ndarray:
    """Whether Student's interval holds ``mean``; where nothing varies Markov's bound, as before."""
    n = samples.shape[1]
    spread = samples.std(axis=1, ddof=1)
    half = stats.t.ppf(0.975, n - 1) * spread / math.sqrt(n)
    covered = np.abs(samples.mean(axis=1) - mean) <= half
    shrink = 0.025 ** (1 / n)
    value = samples[:, 0]
    markov = (value * shrink <= mean) & (mean <= 1 - (1 - value) * shrink)
    return np.where(np.ptp(samples, axis=1) == 0, markov, covered)


def _rare_failures(rng: np.random.Generator, shape: tuple[int, int]) -> np.ndarray:
    good = np.clip(rng.normal(0.95, 0.005, shape), 0, 1)
    return np.where(rng.random(shape) < 0.05, 0.0, good)


Draw = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]
SCORES: dict[str, tuple[Draw, float]] = {
    "95 % near .95, 5 % zeros": (_rare_failures, 0.95 * 0.95),
    "Beta(1, 8)": (lambda rng, shape: rng.beta(1, 8, shape), 1 / 9),
    "Beta(5, 1.2)": (lambda rng, shape: rng.beta(5, 1.2, shape), 5 / 6.2),
    "Beta(.1, .1)": (lambda rng, shape: rng.beta(0.1, 0.1, shape), 0.5),
    "0 or .7 (1 : 9)": (lambda rng, shape: np.where(rng.random(shape) < 0.1, 0, 0.7), 0.63),
    "successes, p = .02": (lambda rng, shape: (rng.random(shape) < 0.02) * 1.0, 0.02),
    "successes, p = .5": (lambda rng, shape: (rng.random(shape) < 0.5) * 1.0, 0.5),
    "successes, p = .95": (lambda rng, shape: (rng.random(shape) < 0.95) * 1.0, 0.95),
}
SIZES = (3, 5, 10, 20, 50)


def means_of_scores(draws: int) -> Rows:
    """Coverage of the bounded mean (of Student's t), nominal .95, by shape and number of scores."""
    found: Rows = [("scores", *(f"n = {n}" for n in SIZES))]
    for name, (draw, mean) in SCORES.items():
        cells = [name]
        for n in SIZES:
            x = draw(np.random.default_rng(n), (draws, n))
            bounded = float((bounded_p(x, mean, 0.0, 1.0) > 0.05).mean())
            cells.append(f"{bounded:.3f} ({t_covers(x, mean).mean():.3f})")
        found.append(tuple(cells))
    return found


def searched(draws: int) -> Rows:
    """Largest exact error of the lower end over .025 found by climbing over three-valued scores."""
    sizes = (2, 3, 5, 8, 12)
    found: list[str] = ["error / .025"]
    for n in sizes:
        rng = np.random.default_rng(n)
        counts = np.array([(i, j, n - i - j) for i in range(n + 1) for j in range(n + 1 - i)])
        ways = special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1)
        best = 0.0
        for _ in range(20):
            at, error = rng.normal(0, 3, 6), -1.0
            for step in range(max(1, draws // 50)):
                near = at + rng.normal(0, 2.0 / (1 + step / 20), 6)
                values, shares = special.expit(near[:3]), special.softmax(near[3:])
                scores = np.array([np.repeat(values, row) for row in counts])
                ends = np.concatenate([scores, np.zeros((len(counts), 1))], axis=1)
                misses = _below(ends - values @ shares) <= 0.025
                mass = np.exp(ways + counts @ np.log(shares))
                if (here := float(mass[misses].sum())) >= error:
                    at, error = near, here
            best = max(best, error / 0.025)
        found.append(f"{best:.4f}")
    return [("", *(f"n = {n}" for n in sizes)), tuple(found)]


def widths_of_scores(draws: int) -> Rows:
    """Mean width of the bounded mean (of Student's t, cut to [0, 1])."""
    found: Rows = [("scores", *(f"n = {n}" for n in SIZES))]
    for name, (draw, _) in SCORES.items():
        cells = [name]
        for n in SIZES:
            x = draw(np.random.default_rng(n), (min(draws, 100), n))
            ends = [(bounded_mean(row), mean_t(row, bounds=(0.0, 1.0))) for row in x]
            ours, t = (np.mean([e[i].high - e[i].low for e in ends]) for i in (0, 1))
            cells.append(f"{ours:.2f} ({t:.2f})")
        found.append(tuple(cells))
    return found


DIFFERENCES: dict[str, Draw] = {
    "+.05, and -.95 in 5 %": lambda rng, s: np.where(rng.random(s) < 0.05, -0.95, 0.05),
    "+.02, and -.18 in 10 %": lambda rng, s: np.where(rng.random(s) < 0.1, -0.18, 0.02),
    "symmetric, small": lambda rng, s: rng.uniform(-0.1, 0.1, s),
    "successes": lambda rng, s: (rng.random(s) < 0.3) * 1.0 - (rng.random(s) < 0.3),
}


def differences_of_scores(draws: int) -> Rows:
    """Level of the paired test by score (of sign flips), nominal .05, mean difference 0."""
    found: Rows = [("differences", *(f"n = {n}" for n in (5, 10, 20, 50)))]
    for name, draw in DIFFERENCES.items():
        cells = [name]
        for n in (5, 10, 20, 50):
            rng = np.random.default_rng(n)
            x = draw(rng, (draws, n))
            bounded = float((bounded_p(x, 0.0, -1.0, 1.0) <= 0.05).mean())
            flips = x[:1000] @ (rng.integers(0, 2, (n, 1999)) * 2.0 - 1.0)
            real = np.abs(x[:1000].sum(axis=1))
            p = (1 + (np.abs(flips) >= real[:, None] - 1e-12).sum(axis=1)) / 2000
            cells.append(f"{bounded:.3f} ({(p <= 0.05).mean():.3f})")
        found.append(tuple(cells))
    return found


def _correlated(
    rng: np.random.Generator, shape: tuple[int, int], p: float, q: float, phi: float
) -> tuple[np.ndarray, np.ndarray]:
    both = p * q + phi * math.sqrt(p * (1 - p) * q * (1 - q))
    kind = np.searchsorted(np.cumsum([both, p - both, q - both]), rng.random(shape), side="right")
    return np.isin(kind, (0, 1)), np.isin(kind, (0, 2))


def _crossed(a: np.ndarray, b: np.ndarray, mean: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """The pair at which the bets on b, and those on a, refute ``mean`` (n + 1: never)."""
    out = []
    for d, at in ((b * 1.0 - a, mean), (a * 1.0 - b, -mean)):
        logs = np.zeros((len(d), SHARES.size))
        first = np.full(len(d), d.shape[1] + 1)
        for i in range(d.shape[1]):
            logs += np.log1p(np.multiply.outer((d[:, i] - at) / (1 + at), SHARES))
            largest = logs.max(axis=1)
            capital = largest + np.log(np.exp(logs - largest[:, None]).mean(axis=1))
            first = np.where((capital >= WALL) & (first > d.shape[1]), i + 1, first)
        out.append(first)
    return out[0], out[1]


def _barnard(a: np.ndarray, b: np.ndarray, test: SequentialBarnard) -> np.ndarray:
    return np.array(
        [
            test.run(x, y).trials if test.run(x, y).decision != "undecided" else 999
            for x, y in zip(a, b, strict=True)
        ]
    )


def sequential_levels(draws: int) -> Rows:
    """Level over 200 pairs looked at one by one (of sequential Barnard), both policies at p."""
    correlations = (-1.0, -0.5, -0.25, 0.0, 0.6, 0.9)
    found: Rows = [("p", *(f"phi = {phi:g}" for phi in correlations))]
    barnard = SequentialBarnard(200)
    for p in (0.5, 0.9):
        cells = [f"{p:g}"]
        for phi in correlations:
            if p * p + phi * p * (1 - p) < 2 * p - 1 - 1e-12:
                cells.append("impossible")
                continue
            a, b = _correlated(np.random.default_rng(1), (draws, 200), p, p, phi)
            for_b, for_a = _crossed(a, b)
            before = _barnard(a[:300], b[:300], barnard) <= 200
            cells.append(f"{(np.minimum(for_a, for_b) <= 200).mean():.3f} ({before.mean():.3f})")
        found.append(tuple(cells))
    return found


def sequential_power(draws: int) -> Rows:
    """Share decided rightly within 200 pairs, and pairs on average (of sequential Barnard)."""
    found: Rows = [("rates, phi", "bets", "sequential Barnard", "interval covers at every pair")]
    barnard = SequentialBarnard(200)
    for p, q, phi in ((0.5, 0.65, 0.6), (0.5, 0.65, 0.0), (0.7, 0.8, 0.6), (0.9, 0.98, 0.0)):
        a, b = _correlated(np.random.default_rng(2), (draws, 200), p, q, phi)
        for_b, for_a = _crossed(a, b)
        right = (for_b <= 200) & (for_b < for_a)
        low, high = _crossed(a, b, q - p)
        before = _barnard(a[:300], b[:300], barnard)
        found.append(
            (
                f"{p:g}, {q:g}, {phi:g}",
                f"{right.mean():.3f}, {np.minimum(for_b, 200).mean():.0f}",
                f"{(before <= 200).mean():.3f}, {np.minimum(before, 200).mean():.0f}",
                f"{(np.minimum(low, high) > 200).mean():.3f}",
            )
        )
    return found


# Mean of the rates of conditions, and how much they scatter (1: a condition decides all).
ROLLOUTS: dict[str, tuple[float, float]] = {
    "half, scattered": (0.5, 0.4),
    "half, all alike": (0.5, 0.0),
    "half, all or nothing": (0.5, 1.0),
    ".95, scattered": (0.95, 0.4),
    ".02, scattered": (0.02, 0.4),
}


def rollout_means(
    rng: np.random.Generator, shape: tuple[int, int], regime: str, each: int = 5
) -> tuple[np.ndarray, np.ndarray]:
    """Means of ``each`` rollouts per condition ``[draws, conditions]`` of two equal policies, half
    of whose conditions are as hard for both.
    """
    mean, scatter = ROLLOUTS[regime]

    def rates() -> np.ndarray:
        if scatter in (0.0, 1.0):
            return np.full(shape, mean) if scatter == 0.0 else (rng.random(shape) < mean) * 1.0
        size = 1.0 / scatter - 1.0
        return rng.beta(mean * size, (1.0 - mean) * size, shape)

    first = rates()
    second = np.where(rng.random(shape) < 0.5, first, rates())
    return rng.binomial(each, first) / each, rng.binomial(each, second) / each


def mixed_levels(draws: int) -> Rows:
    """Several rollouts per condition: coverage of the mean and, second, level for two equal
    policies (of Student's t over conditions, which is REML's in balanced data).
    """
    sizes = (3, 5, 10, 20)
    found: Rows = [("rates of conditions, 5 rollouts each", *(f"{n} conditions" for n in sizes))]
    for regime, (mean, _) in ROLLOUTS.items():
        cells = [regime]
        for n in sizes:
            a, b = rollout_means(np.random.default_rng(n), (draws, n), regime)
            covers = (bounded_p(a, mean, 0.0, 1.0) > 0.05).mean(), t_covers(a, mean).mean()
            zero = np.zeros(draws)
            levels = (
                (bounded_p(b - a, 0.0, -1.0, 1.0) <= 0.05).mean(),
                1.0 - t_covers_differences(b - a, zero).mean(),
            )
            cells.append(f"{covers[0]:.3f} ({covers[1]:.3f}); {levels[0]:.3f} ({levels[1]:.3f})")
        found.append(tuple(cells))
    return found


def margins(draws: int) -> Rows:
    """Share of pairs that differ by just the margin of .25 and are called non-inferior, nominal .05
    (by Student's t).
    """
    sizes = (10, 20, 50, 100)
    regimes: dict[str, Draw] = {
        "a disaster in 1 of 4": lambda rng, s: np.where(rng.random(s) < 0.25, -1.0, 0.0),
        "+.05, and -.95 in 30 %": lambda rng, s: np.where(rng.random(s) < 0.3, -0.95, 0.05),
        "successes, 30 % and 55 % differ": lambda rng, s: rng.choice(
            [1.0, -1.0, 0.0], s, p=(0.3, 0.55, 0.15)
        ),
        "bells around -.25": lambda rng, s: np.clip(rng.normal(-0.25, 0.1, s), -0.6, 0.1),
    }
    found: Rows = [("differences of mean -.25", *(f"n = {n}" for n in sizes))]
    for name, draw in regimes.items():
        cells = [name]
        for n in sizes:
            d = draw(np.random.default_rng(n), (draws, n))
            ends = np.concatenate([d, np.full((draws, 1), -1.0)], axis=1)
            ours = (_below(ends + 0.25) <= 0.05).mean()
            spread = d.std(axis=1, ddof=1) / math.sqrt(n)
            t = (d.mean(axis=1) - stats.t.ppf(0.95, n - 1) * spread > -0.25) & (spread > 0)
            cells.append(f"{ours:.3f} ({t.mean():.3f})")
        found.append(tuple(cells))
    return found


def gaps(draws: int) -> Rows:
    """Coverage of the gap between trained and unseen variants, 20 trials in each, nominal .95."""
    found: Rows = [("rates of seen and unseen variants", *(f"{n} and {n}" for n in (3, 5, 8)))]
    for name, seen, unseen in (
        ("Beta(12, 2), Beta(3, 3)", (12, 2), (3, 3)),
        ("Beta(40, 1), Beta(.3, .3)", (40, 1), (0.3, 0.3)),
    ):
        cells, gap = [name], seen[0] / sum(seen) - unseen[0] / sum(unseen)
        for n in (3, 5, 8):
            rng, covered = np.random.default_rng(n), 0
            for _ in range(draws):
                a, b = (
                    list(rng.binomial(20, rng.beta(*shape, (n, 1))) / 20)
                    for shape in (seen, unseen)
                )
                e = generalisation_gap(a, b).gap
                covered += e.low <= gap <= e.high
            cells.append(f"{covered / draws:.3f}")
        found.append(tuple(cells))
    return found


FAMILIES: dict[str, tuple[Draw, tuple[float, ...]]] = {
    "equal: 95 % near .95, 5 % zeros": (_rare_failures, (0.0,) * 4),
    "equal: successes, p = .7": (lambda rng, s: (rng.random(s) < 0.7) * 1.0, (0.0,) * 4),
    "two of .4 and two of .95": (lambda rng, s: rng.random(s), (0.4, 0.4, 0.95, 0.95)),
}


def one_family(draws: int) -> Rows:
    """Pages on 4 policies in 3 worlds (30 conditions) that say something false, nominal .05."""
    found: Rows = [
        (
            "policies",
            "some uncorrected t",
            "some decision (Holm)",
            "some decision or interval (Holm)",
            "some decision or interval (Bonferroni)",
        )
    ]
    pairs = np.array(list(itertools.combinations(range(4), 2)))
    for name, (draw, rates) in FAMILIES.items():
        rng = np.random.default_rng(6)
        x = draw(rng, (draws * 12, 30)).reshape(draws, 3, 4, 30)
        if any(rates):
            x = (x < np.array(rates)[:, None]) * 1.0
        d = (x[:, :, pairs[:, 1]] - x[:, :, pairs[:, 0]]).reshape(-1, 30)
        truth = np.tile(np.array(rates)[pairs[:, 1]] - np.array(rates)[pairs[:, 0]], draws * 3)
        p = bounded_p(d, 0.0, -1.0, 1.0)
        p_of_truth = p.copy()
        for value in np.unique(truth[truth != 0]):
            p_of_truth[truth == value] = bounded_p(d[truth == value], float(value), -1.0, 1.0)
        missed = (p_of_truth <= 0.05 / 18).reshape(draws, 18)
        wrong = (np.sign(d.mean(axis=1)) != np.sign(truth)).reshape(draws, 18)
        ordered = np.sort(p.reshape(draws, 18), axis=1)
        steps = np.logical_and.accumulate(ordered <= 0.05 / np.arange(18, 0, -1), axis=1)
        limit = np.where(steps, ordered, -1.0).max(axis=1, keepdims=True)
        holm = (p.reshape(draws, 18) <= limit) & wrong
        single = (p.reshape(draws, 18) <= 0.05 / 18) & wrong
        alone = ~t_covers_differences(d, truth).reshape(draws, 18)
        found.append(
            (
                name,
                *(
                    f"{v.any(axis=1).mean():.3f}"
                    for v in (alone, holm, holm | missed, single | missed)
                ),
            )
        )
    return found


def t_covers_differences(d: np.ndarray, mean: np.ndarray) -> np.ndarray:
    """Whether Student's interval of each row holds its mean; rows without spread count as right."""
    spread = d.std(axis=1, ddof=1)
    half = stats.t.ppf(0.975, d.shape[1] - 1) * spread / math.sqrt(d.shape[1])
    return (np.abs(d.mean(axis=1) - mean) <= half) | (spread == 0)


def _runs(
    rng: np.random.Generator, runs: int, shared: np.ndarray, luck: float, collapse: float
) -> np.ndarray:
    of_run = np.clip(rng.normal(0, luck, (runs, 1)), -0.36, 0.36)
    m = 0.5 + of_run + shared + rng.uniform(-0.1, 0.1, (runs, shared.size))
    return np.clip(np.where(rng.random((runs, 1)) < collapse, 0.02, m), 0, 1)


def levels_over_runs(draws: int) -> Rows:
    """Level for two equal methods of several runs, nominal .05; 20 shared conditions."""
    regimes = (
        ("bells, sd .1", 0.1, 0.1, 0.0),
        ("bells, sd .12 and .03", 0.12, 0.03, 0.0),
        ("20 % collapse", 0.02, 0.02, 0.2),
    )
    numbers = ((3, 3), (3, 8), (5, 5), (5, 20), (10, 10))
    found: Rows = [("runs scatter as", *(f"{a} and {b}" for a, b in numbers))]
    for name, first, second, collapse in regimes:
        cells = [name]
        for runs_a, runs_b in numbers:
            rng, wrong = np.random.default_rng(3), 0
            for _ in range(draws):
                shared = rng.uniform(-0.1, 0.1, 20)
                a, b = (
                    _runs(rng, n, shared, luck, collapse)
                    for n, luck in ((runs_a, first), (runs_b, second))
                )
                wrong += difference_over_runs(a, b).p <= 0.05
            cells.append(f"{wrong / draws:.3f}")
        found.append(tuple(cells))
    return found


def means_over_runs(draws: int) -> Rows:
    """Coverage of the mean over runs, 20 % of which collapse (of Student's t), nominal .95."""
    found: Rows = [("", *(f"{n} runs" for n in (3, 5, 10, 20)))]
    coverage, width = ["coverage"], ["width"]
    for runs in (3, 5, 10, 20):
        rng, ours, t, wide, narrow = np.random.default_rng(4), 0, 0, 0.0, 0.0
        mean = 0.8 * 0.5 + 0.2 * 0.02
        for _ in range(draws):
            e = mean_over_runs(_runs(rng, runs, rng.uniform(-0.05, 0.05, 20), 0.02, 0.2))
            ours += e.estimate.low <= mean <= e.estimate.high
            t += e.student.low <= mean <= e.student.high
            wide, narrow = (
                wide + e.estimate.high - e.estimate.low,
                narrow + e.student.high - e.student.low,
            )
        coverage.append(f"{ours / draws:.3f} ({t / draws:.3f})")
        width.append(f"{wide / draws:.2f} ({narrow / draws:.2f})")
    return [*found, tuple(coverage), tuple(width)]


def group_sequential_levels(draws: int) -> Rows:
    """Family-wise error of four blocks of 10, nominal .05, 400 sign patterns."""
    regimes: dict[str, Draw] = {
        "3 policies, successes": lambda rng, s: rng.random(s) < rng.random(s[1]),
        "3, spreads .02, .02, .3": lambda rng, s: (
            0.5 + np.array([[0.02], [0.02], [0.3]]) * rng.standard_normal(s)
        ),
        "3, one skewed (1 in 20 fails)": lambda rng, s: np.where(
            (rng.random(s) < 0.05) & (np.arange(3)[:, None] == 0),
            0.0,
            0.9 + 0.045 / 0.95 * (np.arange(3)[:, None] == 0) + 0.001 * rng.standard_normal(s),
        ),
    }
    found: Rows = [("policies", "error")]
    for name, draw in regimes.items():
        wrong = 0
        for seed in range(draws):
            rng = np.random.default_rng(seed)
            test = GroupSequential(list("xyz"), 4, permutations=400, seed=seed)
            while not test.finished:
                test.add(draw(rng, (3, 10)))
            wrong += bool(test.decisions)
        found.append((name, f"{wrong / draws:.3f}"))
    return found


def edges_of_rates() -> Rows:
    """Least exact coverage of intervals of rates and their differences, down to .0005 and .002."""
    found: Rows = [("interval", *(f"n = {n}" for n in (5, 10, 20, 50)))]
    worst: dict[str, list[str]] = {
        "Wilson": [], "Newcombe, two samples": [], "exact unconditional, two samples": []
    }  # fmt: skip
    for n in (5, 10, 20, 50):
        rates = np.concatenate([np.linspace(0.0005, 0.05, 100), np.linspace(0.05, 0.5, 181)])
        ends = [wilson(k, n) for k in range(n + 1)]
        covers = np.array([[e.low <= p <= e.high for e in ends] for p in rates])
        mass = stats.binom.pmf(np.arange(n + 1), n, rates[:, None])
        worst["Wilson"].append(f"{(mass * covers).sum(axis=1).min():.3f}")
        worst["Newcombe, two samples"].append(f"{_least_of_two(newcombe, n):.3f}")
        # The exact one takes minutes for 50 trials each.
        exact = f"{_least_of_two(exact_difference, n):.3f}" if n <= 20 else ""
        worst["exact unconditional, two samples"].append(exact)
    return found + [(name, *cells) for name, cells in worst.items()]


def _least_of_two(interval: Callable[[int, int, int, int], Estimate], n: int) -> float:
    rates = np.array([0.002, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.5])
    rates = np.concatenate([rates, 1 - rates[:-1]])
    ends = [[interval(i, n, j, n) for j in range(n + 1)] for i in range(n + 1)]
    low, high = (np.array([[getattr(e, k) for e in row] for row in ends]) for k in ("low", "high"))
    mass = stats.binom.pmf(np.arange(n + 1), n, rates[:, None])
    least = 1.0
    for p, first in zip(rates, mass, strict=True):
        for q, second in zip(rates, mass, strict=True):
            inside = (low - 1e-12 <= p - q) & (p - q <= high + 1e-12)
            least = min(least, float(first @ inside @ second))
    return least


def plans() -> Rows:
    """What plans promise is the exact power of the test that decides."""
    two, paired, bets = (
        plan_two_rates(0.7, 0.8),
        plan_paired(0.7, 0.8, 0.6),
        plan_sequence(0.7, 0.8, 0.6),
    )
    return [
        ("plan for .7 and .8", "trials", "power"),
        ("independent (Boschloo)", f"{two.trials} each", f"{two.power:.3f}"),
        ("paired, phi .6 (McNemar)", f"{paired.trials}", f"{paired.power:.3f}"),
        (
            "paired, phi .6, looked at",
            f"{bets.n_max} at most, {bets.expected:.0f} on average",
            f"{bets.power:.3f}",
        ),
    ]


def tables(draws: int) -> Iterator[tuple[str, Rows]]:
    """Every table with its title, cheap ones first."""
    for simulate in (
        means_of_scores,
        searched,
        differences_of_scores,
        sequential_levels,
        sequential_power,
        mixed_levels,
        margins,
        gaps,
        one_family,
        widths_of_scores,
        means_over_runs,
        levels_over_runs,
        group_sequential_levels,
    ):
        yield f"{simulate.__doc__} {draws} draws.", simulate(draws)
    yield edges_of_rates.__doc__ or "", edges_of_rates()
    yield plans.__doc__ or "", plans()


def share_cell_by_cell(below: np.ndarray, above: np.ndarray) -> float:
    """What ``share_below`` computes, as its recursion is written."""
    share = np.zeros((above.size + 1, below.size + 1))
    share[1:, 0], share[0, 1:] = 0.0, 1.0
    for k in range(1, below.size + 1):
        for h in range(1, above.size + 1):
            x, y = above[h - 1], -below[k - 1]
            share[h, k] = (y * share[h - 1, k] + x * share[h, k - 1]) / (x + y)
    return float(share[-1, -1])


def speed_of_the_bounded_mean(repeats: int) -> dict[str, object]:
    """Of its inner recursion over 201 values, which everything about scores waits for."""
    v = np.sort(np.random.default_rng(0).random(201) - 0.5)
    below, above = v[v <= 0], v[v > 0]
    same = float(share_below(below, above)) == share_cell_by_cell(below, above)
    ours, plain = interleaved(
        lambda: share_below(below, above), lambda: share_cell_by_cell(below, above), repeats, warm=2
    )
    name = "bounded mean of 200 scores: diagonals at once, against cell by cell"
    return _speed(name, ours, plain, 0.3, "equal to the bit" if same else "")


def speed_of_the_plan(repeats: int) -> dict[str, object]:
    """Of the number of conditions that a page names beside each undecided pair."""

    def one_by_one() -> int:
        n = plan.trials - 100
        while min(power_paired(only_a, only_b, n + i) for i in (0, 1, 2)) < 0.8:
            n += 1
        return n

    plan = plan_paired(0.5, 0.6, 0.3)
    both = 0.3 + 0.3 * math.sqrt(0.25 * 0.24)
    only_a, only_b = 0.5 - both, 0.6 - both
    same = one_by_one() == plan.trials
    ours, plain = interleaved(lambda: plan_paired(0.5, 0.6, 0.3), one_by_one, repeats, warm=1)
    name = f"paired plan of {plan.trials}: rejections once, against the last 100 sizes each"
    return _speed(name, ours, plain, 0.5, "the same number" if same else "")


def _speed(name: str, ours: float, plain: float, floor: float, same: str) -> dict[str, object]:
    """A row of two times [s]; ``same``: how alike their results are, "" where they are not."""
    return {
        "name": name,
        "unit": "ms",
        "ours": round(ours * 1e3, 3),
        "reference": round(plain * 1e3, 3),
        "ratio": round(ours / plain, 3),
        "floor": floor,
        "holds": bool(same) and ours <= floor * plain,
        "why": same or "NOT EQUAL",
    }


def rows(long: bool = False) -> list[dict[str, object]]:
    """The worst cell of each promise (see ``tests/benchmarks/run.py``)."""
    draws = 2_000 if long else 300
    slack = 2 * math.sqrt(0.05 * 0.95 / draws)
    found = [speed_of_the_bounded_mean(500 if long else 100), speed_of_the_plan(20 if long else 5)]
    for name, simulate, covers in (
        ("mean of scores, least coverage", means_of_scores, True),
        ("paired scores, largest level", differences_of_scores, False),
        ("sequential pairs, largest level", sequential_levels, False),
        ("methods over runs, largest level", levels_over_runs, False),
        ("mean over runs that collapse, least coverage", means_over_runs, True),
    ):
        table = simulate(draws)[1:2] if simulate is means_over_runs else simulate(draws)[1:]
        cells = [c.split() for row in table for c in row[1:] if c != "impossible"]
        ours = [float(c[0]) for c in cells]
        before = [float(c[1].strip("()")) for c in cells if len(c) > 1]
        worst = min(ours) if covers else max(ours)
        reference = (min(before) if covers else max(before)) if before else None
        floor = 0.95 - slack if covers else 0.05 + slack
        holds = worst >= floor if covers else worst <= floor
        found.append(
            {
                "name": name,
                "unit": "share",
                "ours": worst,
                "reference": reference,
                "ratio": None if reference is None else round(worst / reference, 2),
                "floor": round(floor, 3),
                "holds": holds,
                "why": f"{draws} draws per cell",
            }
        )
    return found


def main(draws: int) -> None:
    """Print the tables as Markdown."""
    for title, table in tables(draws):
        print(f"\n{title}\n")
        for i, row in enumerate(table):
            print("| " + " | ".join(row) + " |")
            if i == 0:
                print("|" + "---|" * len(row))
        sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else DRAWS)
