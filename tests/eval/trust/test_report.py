"""The verdict, the noise floor, and what is said of few, equal or perfect policies."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from eval.trust.outcomes import Outcomes
from eval.trust.report import trust_in, trust_report, verdict_of
from eval.trust.resampling import least_p, noise_floor
from eval.trust.spreadsheet import read_sheet
from eval.trust.tables import PolicyPair, TaskTable
from eval.trust.verdict import fewest_policies, share_recognised
from robolearn.errors import DataError
from tests.benchmarks.bench_trust import drawn, simulator
from tests.eval.trust.simpler import RATES, table


def rates(real, sim, task: str = "t") -> TaskTable:
    pairs = enumerate(zip(real, sim, strict=True))
    return TaskTable(
        task, tuple(PolicyPair(f"p{i}", (Outcomes(r),), (Outcomes(s),)) for i, (r, s) in pairs)
    )


@pytest.mark.parametrize(
    ("task", "mean", "p95"),
    [
        ("coke", 0.008, 0.031),
        ("move near", 0.013, 0.050),
        ("close drawer", 0.021, 0.074),
        ("apple", 0.017, 0.062),
    ],
)
def test_a_perfect_simulator_does_not_score_zero(task, mean, p95) -> None:
    floor = noise_floor(table(task), 0, ("mmrv",))["mmrv"]
    # Four standard errors of so many draws.
    assert floor.mean == pytest.approx(mean, abs=1.7e-3)
    # Quantiles of few numbers of trials jump by a trial.
    assert floor.p95 == pytest.approx(p95, abs=7e-3)


@pytest.mark.parametrize(
    ("kind", "verdict", "least"),
    [
        ("perfect", "ranks reliably", 0.9),
        ("biased", "ranks reliably", 0.8),
        ("shuffled", "not shown", 0.9),
        ("constant", "not shown", 0.9),
    ],
)
def test_verdicts_over_many_draws(kind: str, verdict: str, least: float) -> None:
    found: Counter[str] = Counter()
    for seed in range(20):
        rng = np.random.default_rng(seed)
        real = np.linspace(0.05, 0.95, 10)
        sim = simulator(kind, real, rng)
        found[verdict_of(drawn(real, sim, (50, 400), rng), seed=seed)] += 1
    assert found[verdict] / 20 >= least, found
    if verdict == "not shown":
        assert not found["ranks reliably"]


def test_the_example_is_the_published_table() -> None:
    sheet = read_sheet(Path("configs/trust/simpler.csv"))
    for found, (n, real, sim) in zip(sheet.tables, RATES.values(), strict=True):
        assert (found.real_trials, found.sim_trials) == ((n, n), (4 * n, 4 * n))
        assert np.abs(found.real - real).max() < 6e-4
        assert np.abs(found.sim - sim).max() < 2.5e-3


def test_the_quick_verdict_is_the_reports() -> None:
    for task in ("close drawer", "apple"):
        assert verdict_of(table(task)) == trust_in(table(task)).judgement.verdict


def test_of_six_policies_little_is_shown() -> None:
    assert fewest_policies() == 6
    assert least_p(6) == pytest.approx(1 / 720)
    near = trust_in(table("move near"))
    assert near.judgement.verdict == "screens only"
    assert "rt-1-begin" in near.judgement.more
    assert "octo-base" in near.judgement.more
    found = trust_in(rates([0.1, 0.3, 0.5, 0.7, 0.9], [0.1, 0.3, 0.5, 0.7, 0.9]))
    assert found.judgement.verdict == "screens only"
    assert "add 1 or more" in found.judgement.more
    assert found.measures["pearson"].fisher_z is None
    assert found.measures["mmrv"].noise is None


@pytest.mark.parametrize("level", [0.1, 0.5, 0.8, 0.99])
def test_the_level_that_is_shown_moves_no_verdict(level: float) -> None:
    """At .8 the interval begins higher: six policies of which two are swapped passed."""
    real, sim = (0.1, 0.3, 0.34, 0.6, 0.64, 0.9), (0.1, 0.34, 0.3, 0.6, 0.64, 0.9)
    counts = [(round(50 * r), round(200 * s)) for r, s in zip(real, sim, strict=True)]
    pairs = [
        PolicyPair(f"p{i}", (Outcomes.of_counts(r, 50),), (Outcomes.of_counts(s, 200),))
        for i, (r, s) in enumerate(counts)
    ]
    usual, shown = (trust_in(TaskTable("t", tuple(pairs)), level=x) for x in (0.95, level))
    assert shown.judgement == usual.judgement
    assert usual.judgement.verdict == "screens only"
    assert "95 % interval from" in usual.judgement.why
    assert shown.measures["spearman"].fisher_z != usual.measures["spearman"].fisher_z


def test_what_is_not_defined_says_why() -> None:
    flat = trust_in(rates([0.1, 0.5, 0.9, 0.3], [0.5] * 4))
    for name in ("pearson", "spearman", "kendall", "slope"):
        assert flat.measures[name].value is None
        assert flat.measures[name].why == "all simulated rates are 0.5"
    assert flat.measures["mmrv"].value == pytest.approx((0.8 + 0.4 + 0.2) / 4)
    assert flat.judgement.verdict == "not shown"
    same = trust_in(rates([0.5] * 4, [0.1, 0.5, 0.9, 0.3]))
    assert same.measures["pearson"].why == "all real rates are 0.5"
    assert same.judgement.verdict == "not shown"
    two = trust_in(rates([0.1, 0.9], [0.2, 0.8]))
    assert two.measures["pearson"].value is None
    assert two.measures["mmrv"].value == 0.0
    assert "2 policies; three or more" in two.judgement.why
    one = trust_in(rates([0.1], [0.2]))
    assert one.measures["mmrv"].why == "one policy has no order"
    assert one.measures["bias"].value == pytest.approx(0.1)


def test_pooled_is_the_mean_over_tasks_that_share_policies() -> None:
    easy, hard = (
        rates([0.8, 0.9, 1.0], [0.8, 0.9, 1.0], "easy"),
        rates([0.2, 0.1, 0.0], [0.2, 0.1, 0.0], "hard"),
    )
    report = trust_report([easy, hard])
    assert report.pooled is not None
    # Tasks differ much, policies not at all: no agreement comes out of that.
    assert report.pooled.measures["pearson"].why == "all simulated rates are 0.5"
    assert report.mean_over_tasks == pytest.approx({"pearson": 1.0, "mmrv": 0.0})
    apart = TaskTable("apart", (PolicyPair("other", (Outcomes(0.5),), (Outcomes(0.5),)),))
    none = trust_report([easy, apart]).pooled
    assert none is not None
    assert none.table.k == 0
    assert none.judgement.verdict == "not shown"
    with pytest.raises(DataError, match="no tasks"):
        trust_report([])


def test_the_same_seed_gives_the_same_report() -> None:
    first, again = (trust_in(table("coke"), seed=3) for _ in range(2))
    assert first.measures == again.measures
    assert first.judgement == again.judgement


def test_a_reason_says_its_shares_in_plain_numbers() -> None:
    even = [i / 10 for i in range(11)]
    pairs = tuple(
        PolicyPair(f"p{i}", (Outcomes(r, 20),), (Outcomes(r, 50),)) for i, r in enumerate(even)
    )
    why = trust_in(TaskTable("t", pairs)).judgement.why
    assert "MMRV 0.000, which noise reaches in 100 of 100 repetitions of a perfect order" in why


def test_more_trials_recognise_more() -> None:
    rng = np.random.default_rng(0)
    few = drawn(np.linspace(0.3, 0.7, 8), np.linspace(0.3, 0.7, 8), (10, 40), rng)
    assert share_recognised(few, 0, 16.0) > share_recognised(few, 0) + 0.3


def test_single_trials_that_agree_show_nothing_of_their_noise() -> None:
    once = tuple(
        PolicyPair(f"p{i}", (Outcomes.of_counts(i % 2, 1),), (Outcomes.of_counts(i % 2, 1),))
        for i in range(8)
    )
    found = trust_in(TaskTable("t", once))
    assert found.measures["spearman"].value == pytest.approx(1.0)
    assert found.judgement.verdict == "screens only"
    assert "10 trials or more" in found.judgement.more


@pytest.mark.parametrize("best", [1, 2, 4])
def test_policies_that_all_fail_but_some_have_no_order(best: int) -> None:
    """A simulator that knows which ones succeed has them all in order, which shows little."""
    counts = [(10 if i < best else 0) for i in range(8)]
    pairs = tuple(
        PolicyPair(f"p{i}", (Outcomes.of_counts(n, 10),), (Outcomes.of_counts(10 * n, 100),))
        for i, n in enumerate(counts)
    )
    found = trust_in(TaskTable("t", pairs))
    assert found.measures["spearman"].value == pytest.approx(1.0)
    assert found.measures["mmrv"].value == 0.0
    # One of eight is found by chance once in eight.
    assert found.judgement.verdict == ("not shown" if best == 1 else "screens only")
    assert "have 2 different rates" in found.judgement.more
    assert verdict_of(TaskTable("t", pairs)) == found.judgement.verdict


def test_rates_that_differ_by_rounding_are_equal() -> None:
    same = trust_in(rates([0.5 + i * 1e-13 for i in range(6)], [0.1 * i for i in range(6)]))
    assert same.measures["spearman"].value is None
    assert same.measures["kendall"].value is None
    assert same.judgement.verdict == "not shown"


@pytest.mark.parametrize("level", [0.0, 1.0, 1.0 - 2.0**-53, float("nan")])
def test_a_level_without_a_finite_interval_is_refused(level: float) -> None:
    """Of the last number before 1 the least number of policies was looked for without end."""
    with pytest.raises(DataError, match="the level of an interval lies between 0 and 1"):
        trust_report([table("move near")], level=level)
