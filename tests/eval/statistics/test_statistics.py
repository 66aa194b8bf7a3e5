"""Reference values: `2.15`, `2.16` of the collected figures (scipy 1.17) and the cited papers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from eval.statistics.exact_tests import barnard, boschloo, fisher, mcnemar_exact
from eval.statistics.intervals import (
    beta_posterior,
    clopper_pearson,
    jeffreys,
    mean_bootstrap,
    mean_t,
    newcombe,
    newcombe_paired,
    pearson,
    percentiles,
    phi_coefficient,
    probability_better,
    wilson,
)
from robolearn.errors import DataError

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("k", "n", "exact", "score"),
    [
        (0, 10, (0.0, 0.3085), (0.0, 0.2775)),
        (14, 50, (0.1623, 0.4249), (0.1747, 0.4167)),
        (40, 50, (0.6628, 0.8997), (0.6696, 0.8876)),
        (20, 20, (0.8316, 1.0), (0.8389, 1.0)),
    ],
)
def test_proportion_intervals_match_published_values(k, n, exact, score):
    e, w = clopper_pearson(k, n), wilson(k, n)
    assert (round(e.low, 4), round(e.high, 4)) == exact
    assert (round(w.low, 4), round(w.high, 4)) == score
    assert e.n == w.n == n
    assert e.value == k / n


@given(st.integers(1, 60).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_proportion_intervals_contain_the_rate_and_mirror(kn):
    k, n = kn
    for interval in (wilson, clopper_pearson):
        e, mirror = interval(k, n), interval(n - k, n)
        assert 0 <= e.low <= e.value <= e.high <= 1
        assert e.low == pytest.approx(1 - mirror.high, abs=1e-12)


def test_clopper_pearson_covers_at_least_its_level():
    n = 12
    ks = np.arange(n + 1)
    intervals = [clopper_pearson(int(k), n) for k in ks]
    for p in np.linspace(0.02, 0.98, 25):
        mass = [math.comb(n, int(k)) * p**k * (1 - p) ** (n - k) for k in ks]
        covered = sum(m for m, e in zip(mass, intervals, strict=True) if e.low <= p <= e.high)
        assert covered >= 0.95


def test_no_trials_and_impossible_counts():
    assert math.isnan(wilson(0, 0).value)
    assert (wilson(0, 0).low, wilson(0, 0).high) == (0.0, 1.0)
    with pytest.raises(DataError, match="got 3 of 2"):
        wilson(3, 2)
    with pytest.raises(DataError, match="not finite"):
        mean_t([0.1, math.nan])


def _boschloo_by_hand(k1: int, n1: int, k2: int, n2: int) -> float:
    """One-sided p (first rate smaller): maximise over the common rate, on a grid."""
    x, y = np.arange(n1 + 1)[:, None], np.arange(n2 + 1)[None]
    fisher = stats.hypergeom.cdf(x, n1 + n2, x + y, n1)
    extreme = fisher <= fisher[k1, k2] * (1 + 1e-12)
    return max(
        float((stats.binom.pmf(x, n1, t) * stats.binom.pmf(y, n2, t))[extreme].sum())
        for t in np.linspace(0, 1, 401)
    )


@pytest.mark.parametrize(("k1", "n1", "k2", "n2"), [(28, 50, 46, 50), (9, 20, 14, 30)])
def test_boschloo_one_sided_matches_its_definition(k1, n1, k2, n2):
    assert boschloo(k1, n1, k2, n2, "less") == pytest.approx(
        _boschloo_by_hand(k1, n1, k2, n2), rel=2e-3
    )


def test_boschloo_takes_the_groups_as_columns():
    # scipy fixes the column totals. Figures in circulation for 106/200 vs 112/200 (.27573) come
    # from the transposed table, which fixes the totals of successes instead of the group sizes.
    assert boschloo(106, 200, 112, 200, "less") == pytest.approx(0.28717, abs=0.6e-5)
    transposed = stats.boschloo_exact([[106, 94], [112, 88]], alternative="less")
    assert transposed.pvalue == pytest.approx(0.27573, abs=0.6e-5)
    assert boschloo(92, 150, 124, 150, "less") == pytest.approx(2e-5, abs=0.6e-5)


def test_boschloo_two_sided_separates_14_from_40_of_50():
    assert boschloo(14, 50, 40, 50) < 1e-6
    assert boschloo(25, 50, 25, 50) > 0.9


def test_newcombe_reproduces_the_paper():
    # Newcombe 1998 (Stat. Med. 17:873), table II, contrast 56/70 - 48/80, method 10.
    e = newcombe(56, 70, 48, 80)
    assert (round(e.low, 4), round(e.high, 4)) == (0.0524, 0.3339)


def test_newcombe_paired_is_antisymmetric_and_covers():
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(300):
        u = rng.random(40)
        a, b = u < 0.5, np.where(rng.random(40) < 0.7, u < 0.65, rng.random(40) < 0.65)
        e, back = newcombe_paired(a, b), newcombe_paired(b, a)
        assert e.low == pytest.approx(-back.high, abs=1e-12)
        assert e.low <= e.value <= e.high
        covered += e.low <= 0.15 <= e.high
    assert covered / 300 >= 0.92


def test_mcnemar_counts_only_discordant_pairs():
    a = np.array([1] * 10 + [0] * 2 + [1] * 20 + [0] * 20)
    b = np.array([0] * 10 + [1] * 2 + [1] * 20 + [0] * 20)
    assert mcnemar_exact(a, b) == pytest.approx(2 * sum(math.comb(12, k) for k in range(3)) / 2**12)
    assert mcnemar_exact(b, a) == mcnemar_exact(a, b)
    assert mcnemar_exact([1, 0], [1, 0]) == 1.0


def test_mean_intervals():
    x = [2.0, 4.0, 6.0, 8.0]
    e = mean_t(x)
    half = 3.182446305284263 * np.std(x, ddof=1) / 2
    assert (e.value, e.low, e.high) == pytest.approx((5.0, 5 - half, 5 + half))
    assert mean_t([1.0]).high == math.inf
    assert mean_bootstrap([0.5] * 7).low == 0.5
    big = np.random.default_rng(0).normal(3, 1, 200)
    boot, t = mean_bootstrap(big), mean_t(big)
    assert boot.low == pytest.approx(t.low, abs=0.02)
    assert boot.high == pytest.approx(t.high, abs=0.02)
    assert mean_bootstrap(big) == boot


@pytest.mark.parametrize(
    ("r", "low", "high"), [(0.856, 0.15, 0.98), (0.771, -0.11, 0.97), (0.975, 0.79, 0.997)]
)
def test_pearson_interval_matches_the_simpler_columns(r, low, high):
    # Six policies; vectors built so that their correlation is exactly r.
    x = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    z = np.array([1.0, -1.0, 0.0, 0.0, -1.0, 1.0])
    x, z = x / np.linalg.norm(x), z / np.linalg.norm(z)
    e = pearson(x, r * x + math.sqrt(1 - r * r) * z)
    assert e.value == pytest.approx(r)
    assert e.low == pytest.approx(low, abs=0.008)  # the paper prints r to three digits
    assert e.high == pytest.approx(high, abs=0.006)
    assert e.n == 6


def test_correlation_of_a_constant_is_undefined():
    assert math.isnan(pearson([0, 0, 0, 0], [1, 2, 3, 4]).value)
    assert math.isnan(phi_coefficient([1, 1, 1], [0, 1, 0]).value)
    assert "not defined" in pearson([0, 0, 0, 0], [1, 2, 3, 4]).text()


def test_phi_of_equal_and_opposite_vectors():
    a = np.array([0, 1] * 12)
    assert phi_coefficient(a, a).value == pytest.approx(1.0)
    assert phi_coefficient(a, 1 - a).value == pytest.approx(-1.0)
    b = np.array([0, 1] * 6 + [1, 0] * 6)
    e = phi_coefficient(a, b)
    assert e.value == pytest.approx(0.0)
    assert e.low < -0.2 < 0.2 < e.high


def test_percentiles_are_named():
    assert percentiles(np.arange(101)) == (50.0, 90.0, 99.0)


@pytest.mark.parametrize(
    ("k", "n", "jeffreys_", "uniform"),
    [
        (0, 10, (0.00005, 0.2172), (0.0023, 0.2849)),
        (14, 50, (0.1704, 0.4142), None),
        (40, 50, None, None),
    ],
)
def test_bayesian_intervals_match_published_values(k, n, jeffreys_, uniform):
    if jeffreys_ is not None:
        found = jeffreys(k, n)
        assert (round(found.low, 5 if k == 0 else 4), round(found.high, 4)) == jeffreys_
    if uniform is not None:
        found = beta_posterior(k, n)
        assert (round(found.low, 4), round(found.high, 4)) == uniform


def test_one_sided_p_values_match_published_ones():
    # Collected figures 2.16; Fisher's do not depend on which margin is fixed.
    assert fisher(106, 200, 112, 200, "less") == pytest.approx(0.30785, abs=0.6e-5)
    assert fisher(28, 50, 46, 50, "less") == pytest.approx(3e-5, abs=0.6e-5)
    assert fisher(0, 500, 15, 500, "less") == pytest.approx(3e-5, abs=0.6e-5)


def test_barnard_by_hand():
    # P(table at least as extreme), maximised over the common rate: 0/3 against 3/3 is the extreme
    # table on either side, so p = max over t of 2 t^3 (1-t)^3 = 2/64.
    assert barnard(0, 3, 3, 3) == pytest.approx(2 / 64, rel=1e-3)
    assert barnard(0, 3, 0, 3) == 1.0


def test_probability_of_being_better():
    # Kress-Gazit et al. print P(B > A) = .112 for 15/18 against 11/17, from posterior draws. The
    # integral, also as the finite sum of Beta functions, is .1128.
    a, b, c, d = 16, 4, 12, 7
    exact = sum(
        math.exp(
            special.betaln(a + i, b + d)
            - math.log(d + i)
            - special.betaln(1 + i, d)
            - special.betaln(a, b)
        )
        for i in range(c)
    )
    assert probability_better(11, 17, 15, 18) == pytest.approx(exact, abs=1e-6)
    assert exact == pytest.approx(0.112, abs=1e-3)
    assert probability_better(5, 10, 5, 10) == pytest.approx(0.5, abs=1e-6)
    assert probability_better(14, 50, 40, 50) + probability_better(40, 50, 14, 50) == pytest.approx(
        1.0, abs=1e-6
    )


def coverage(interval, n, p):
    k = np.arange(n + 1)
    found = [interval(int(i), n) for i in k]
    inside = np.array([e.low <= p <= e.high for e in found])
    return float(stats.binom.pmf(k, n, p)[inside].sum())


@pytest.mark.parametrize("n", [5, 10, 20, 50])
def test_the_exact_interval_always_covers(n):
    assert min(coverage(clopper_pearson, n, p) for p in np.linspace(0.05, 0.95, 19)) >= 0.95


def test_documented_shortfalls_of_the_other_intervals():
    """The table in docs/statistics.md: least coverage over p = .05, .10, ..., .95."""
    page = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    for name, interval in (("Wilson", wilson), ("Jeffreys", jeffreys), ("uniform", beta_posterior)):
        row = next(line for line in page.splitlines() if line.startswith(f"| {name} "))
        printed = [float(v) for v in row.split("|")[2:6]]
        for n, value in zip((5, 10, 20, 50), printed, strict=True):
            least = min(coverage(interval, n, p) for p in np.linspace(0.05, 0.95, 19))
            assert round(least, 3) == value, (name, n)


def least_of_newcombe(n: int) -> float:
    """Over pairs of rates .05, .10, ..., .95; exact."""
    k, rates = np.arange(n + 1), np.linspace(0.05, 0.95, 19)
    found = [[newcombe(int(a), n, int(b), n) for b in k] for a in k]
    low, high = (np.array([[getattr(e, end) for e in row] for row in found])
                 for end in ("low", "high"))  # fmt: skip
    mass = {p: stats.binom.pmf(k, n, p) for p in rates}
    return min(
        float(np.outer(mass[p], mass[q])[(low <= p - q + 1e-12) & (p - q - 1e-12 <= high)].sum())
        for p in rates
        for q in rates
    )


def test_documented_shortfalls_of_newcombes_interval():
    page = (ROOT / "docs" / "statistics.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if line.startswith("| Newcombe, two samples "))
    printed = [float(v) for v in row.split("|")[2:6]]
    assert [round(least_of_newcombe(n), 3) for n in (5, 10, 20)] == printed[:3]


@pytest.mark.parametrize("test", [boschloo, barnard, fisher], ids=lambda f: f.__name__)
def test_tests_of_two_rates_keep_their_level_exactly(test):
    n, k = 6, np.arange(7)
    # Only the tables on one side are asked for: the tests are two-sided.
    upper = {(a, b): test(int(a), n, int(b), n) for a in k for b in k if a >= b}
    reject = np.array([[upper[max(a, b), min(a, b)] <= 0.05 for b in k] for a in k])
    assert reject.any()
    for p in np.linspace(0.01, 0.5, 50):
        mass = stats.binom.pmf(k, n, p)
        assert float(np.outer(mass, mass)[reject].sum()) <= 0.05 + 1e-9


def test_mcnemar_keeps_its_level_whatever_the_number_of_discordant_pairs():
    for m in range(1, 40):
        reject = [mcnemar_exact([1] * k + [0] * (m - k), [0] * k + [1] * (m - k)) <= 0.05
                  for k in range(m + 1)]  # fmt: skip
        assert float(stats.binom.pmf(np.arange(m + 1), m, 0.5)[reject].sum()) <= 0.05 + 1e-12
