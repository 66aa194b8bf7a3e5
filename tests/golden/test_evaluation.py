"""Trials of an evaluation, what is said about them, and a small set of statistics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eval.compare import compare_policies
from eval.rule import Rule
from eval.statistics.aggregate import aggregate, performance_profile, probability_of_improvement
from eval.statistics.clusters import corrected_rate, mean_clustered
from eval.statistics.exact_tests import barnard, boschloo, fisher, mcnemar_exact
from eval.statistics.group_sequential import GroupSequential
from eval.statistics.intervals import (
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
from eval.statistics.multiplicity import holm, letters
from eval.statistics.planning import plan_paired, plan_precision, plan_two_rates, stopping_bias
from eval.statistics.runs import difference_over_runs
from eval.statistics.sequential import SequentialBarnard, betting_sequence
from eval.summary import agree, summarize
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.table import TrialStore
from robolearn.types import Condition, TrialRecord
from sim.experts.registry import build_expert
from sim.worlds import make_world
from tests.eval.mocks import BuildEnv, BuildPolicy, conditions
from tests.golden.golden import Golden

RTOL = 1e-6
RESTS_ON = ("scipy",)
WORDS = ("condition", "reason")
COLUMNS = ("seed", "success", "score", "final_progress", "return_", "steps", "duration_s")
POLICIES = (
    PolicyEntry("steady", "h-steady", BuildPolicy()),
    PolicyEntry("eager", "h-eager", BuildPolicy(1.4)),
    PolicyEntry("critic", "h-critic", BuildPolicy(0.5, reranks=True)),
)
WORLDS = (
    WorldEntry("a", "w-a", "mock 1", BuildEnv("a")),
    WorldEntry("b", "w-b", "mock 1", BuildEnv("b")),
)
OPTIONS = Options(suite="s@1", task="mock", max_steps=40, batch=4, code="k")


def table(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """Column by column, for every policy and world."""
    found: dict[str, Any] = {}
    for r in records:
        rows = found.setdefault(f"{r.policy}/{r.env}", {})
        for name in (*WORDS, *COLUMNS):
            rows.setdefault(name, []).append(getattr(r, name))
        for name, value in r.metrics.items():
            rows.setdefault(f"metrics/{name}", []).append(value)
    return {
        entry: {n: " ".join(v) if n in WORDS else np.array(v) for n, v in rows.items()}
        for entry, rows in found.items()
    }


def mocked(folder: Path) -> tuple[TrialRecord, ...]:
    lists = {w.name: conditions(12) for w in WORLDS}
    with TrialStore(folder) as store:
        return evaluate(POLICIES, WORLDS, lists, store, OPTIONS)


def of(records: Sequence[TrialRecord], policy: str, world: str = "a") -> list[TrialRecord]:
    return [r for r in records if (r.policy, r.env) == (policy, world)]


def test_trials_of_policies(tmp_path: Path, golden: Golden) -> None:
    golden.check("evaluation/policies", table(mocked(tmp_path)), rtol=RTOL, rests_on=())


def test_trials_of_experts(tmp_path: Path, golden: Golden) -> None:
    experts = [
        PolicyEntry(f"expert {n}", f"h-{n}", None, lambda spec, n=n: build_expert("reach", spec, n))
        for n in (0.0, 0.9)
    ]
    world = WorldEntry("so101_reach", "w", "mujoco", lambda: make_world("so101_reach"))
    asked = make_world("so101_reach")
    starts: list[Condition] = [asked.sample_condition(seed) for seed in range(6)]
    asked.close()
    options = Options(suite="s@1", task="reach", max_steps=12, batch=3, code="k")
    with TrialStore(tmp_path) as store:
        records = evaluate(tuple(experts), (world,), {world.name: tuple(starts)}, store, options)
    golden.check("evaluation/experts", table(records), rtol=RTOL, rests_on=("mujoco",))


def test_what_is_said_about_them(tmp_path: Path, golden: Golden) -> None:
    records = mocked(tmp_path)
    steady, eager, critic = (of(records, p.name) for p in POLICIES)
    groups = {"gains": ("steady", "eager")}
    found = {
        "summaries": [summarize(steady), summarize(eager), summarize(critic)],
        "agree": agree(steady, of(records, "steady", "b")),
        "fixed": compare_policies(records, Rule("score")).worlds,
        "success": compare_policies(records, Rule("success")).worlds,
        "sequential": compare_policies(records, Rule("score", "sequential")).worlds,
        "barnard": compare_policies(records, Rule("success", "sequential", n_max=20)).worlds,
        "methods": compare_policies(records, Rule("score"), groups=groups).worlds,
    }
    golden.check("evaluation/words", found, rtol=RTOL, rests_on=RESTS_ON)


def test_statistics(golden: Golden) -> None:
    rng = np.random.default_rng(4)
    x, y = rng.uniform(0.0, 1.0, 30), rng.uniform(0.2, 1.0, 30)
    a, b = (x > 0.5).astype(float), (y > 0.5).astype(float)
    runs, others = rng.uniform(0.0, 0.8, (2, 3, 10))
    judge = {"true_positives": 18, "successes": 20, "false_positives": 3, "failures": 20}
    found = {
        "one rate": [f(7, 20) for f in (clopper_pearson, wilson, jeffreys)],
        "two rates": [newcombe(7, 20, 13, 18), probability_better(7, 20, 13, 18)],
        "tests": [f(7, 20, 13, 18) for f in (boschloo, barnard, fisher)],
        "means": [f(x) for f in (mean_t, mean_bootstrap, percentiles)],
        "scores": [pearson(x, y)],
        "successes": [f(a, b) for f in (newcombe_paired, mcnemar_exact, phi_coefficient)],
        "clustered": mean_clustered(x, [i % 6 for i in range(30)]),
        "corrected": corrected_rate(20, 30, **judge),
        "methods": difference_over_runs(runs, others),
        "runs": [aggregate(runs), probability_of_improvement(runs, others)],
        "profile": performance_profile(runs, (0.2, 0.4, 0.6)),
        "plans": [plan_paired(0.6, 0.8, 0.3), plan_two_rates(0.5, 0.8), plan_precision(0.7, 0.1)],
        "bias": stopping_bias(0.7, width=0.3, n_max=60),
        "holm": holm([0.01, 0.04, 0.03, 0.5]),
        "letters": letters(["p", "q", "r"], [("p", "r")]),
    }
    golden.check("evaluation/statistics", found, rtol=RTOL, rests_on=RESTS_ON)


def test_sequential_statistics(golden: Golden) -> None:
    rng = np.random.default_rng(5)
    x, y, z = rng.uniform(0.0, 0.5, 40), rng.uniform(0.3, 1.0, 40), rng.uniform(0.0, 0.6, 40)
    barnard_test = SequentialBarnard(40)
    groups = GroupSequential(("x", "y", "z"), 2, permutations=500)
    for block in (slice(0, 20), slice(20, 40)):
        groups.add([x[block], y[block], z[block]])
    found = {
        "sequence": betting_sequence(x),
        "boundary": barnard_test.boundary,
        "barnard": barnard_test.run(x > 0.3, y > 0.3),
        "groups": {"decided": groups.decisions, "undecided": groups.undecided},
    }
    golden.check("evaluation/sequential", found, rtol=RTOL, rests_on=RESTS_ON)
