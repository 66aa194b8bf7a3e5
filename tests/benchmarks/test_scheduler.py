"""The simulated scheduler against closed forms, and every trial exactly once under kills."""

from __future__ import annotations

import dataclasses
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from eval.statistics.intervals import DIFFERENCE, mean_bootstrap, newcombe_paired
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.suites import load_suite
from eval.trials.table import FILE_NAME, TrialStore, read_trials
from robolearn.errors import ConfigError
from robolearn.operations.builders import env_builder
from tests.benchmarks.scheduler import Cluster, simulate
from tests.eval.mocks import BuildEnv, BuildPolicy, conditions

SUITE = Path(__file__).parents[2] / "configs" / "eval" / "pusht.yaml"
QUIET = Cluster(workers=7, chunk_s=2.0, dispatch_s=0.0, commit_s=0.0, start_s=3.0)


@pytest.mark.parametrize("chunks", [1, 7, 8, 50])
def test_without_a_busy_head_it_is_division(chunks):
    run = simulate(QUIET, chunks)
    assert run.wall_s == pytest.approx(3.0 + 2.0 * -(-chunks // 7))
    assert (run.done, run.repeated, run.head_busy) == (chunks, 0, 0.0)


def test_too_many_workers_wait_for_the_head():
    crowd = Cluster(workers=500, chunk_s=1.0, dispatch_s=0.004, commit_s=0.006)
    assert crowd.head_limit == pytest.approx(100)
    assert crowd.workers_that_pay == pytest.approx(101)
    run = simulate(crowd, 3000)
    assert run.wall_s == pytest.approx(3000 / 100, rel=0.05)
    assert run.head_busy > 0.95
    assert run.workers_busy == pytest.approx(100 / 500, rel=0.05)
    # With fewer than that they do not: the head is hardly noticed.
    few = simulate(dataclasses.replace(crowd, workers=20), 3000)
    assert few.wall_s == pytest.approx(3000 / 20, rel=0.05)


def test_lost_workers_cost_time_but_no_chunk():
    steady = Cluster(workers=20, chunk_s=2.0, dispatch_s=0.001, commit_s=0.001, spread=0.3)
    shaky = dataclasses.replace(steady, loss=0.05, start_s=0.5)
    a, b = simulate(steady, 800), simulate(shaky, 800)
    assert a.done == b.done == 800
    assert b.repeated == pytest.approx(800 * 0.05 / 0.95, rel=0.4)
    assert a.wall_s < b.wall_s < 1.2 * a.wall_s
    assert simulate(shaky, 800) == b
    with pytest.raises(ConfigError, match="workers >= 1"):
        Cluster(0, 1.0, 0.0, 0.0)


A = WorldEntry("a", "w-a", "mock 1", BuildEnv("a"))
REAL = WorldEntry("pusht_reference", "w-r", "mujoco", env_builder("pusht_reference"))
FLOW = PolicyEntry("flow", "h-flow", BuildPolicy())
OPTIONS = Options(suite="s@1", task="pusht", max_steps=40, batch=4, code="k")


@dataclasses.dataclass(frozen=True)
class Case:
    """``n`` episodes of ``world`` by ``workers``, killed ``kills`` times, each up to ``late_s``
    after something was committed.
    """

    world: WorldEntry
    n: int
    kills: int
    workers: int
    late_s: float
    options: Options = OPTIONS


def _evaluate(folder: Path, case: Case, workers: int) -> None:
    # By name: in the killed process the world is a copy.
    mock = case.world.name == A.name
    starts = conditions(case.n) if mock else load_suite(SUITE).select(case.n)
    with TrialStore(folder) as store:
        options = dataclasses.replace(case.options, workers=workers)
        evaluate([FLOW], [case.world], {case.world.name: starts}, store, options)


def _count(folder: Path) -> int:
    if not (folder / FILE_NAME).is_file():
        return 0
    rows = read_trials(folder)
    assert len({(r.condition, r.seed) for r in rows}) == len(rows)
    return len(rows)


def _kill_often(folder: Path, case: Case, seed: int) -> int:
    """Kill the evaluation at random instants after it has got on, then let it finish."""
    rng = np.random.default_rng(seed)
    context = multiprocessing.get_context("spawn")
    killed = 0
    for _ in range(case.kills):
        before = _count(folder)
        if before == case.n:
            break
        process = context.Process(target=_evaluate, args=(folder, case, case.workers))
        process.start()
        while process.is_alive() and _count(folder) == before:
            process.join(0.05)
        process.join(float(rng.uniform(0.0, case.late_s)))
        killed += process.is_alive()
        process.kill()
        process.join()
    _evaluate(folder, case, case.workers)
    return killed


LONG = dataclasses.replace(OPTIONS, max_steps=300, batch=10)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(A, 24, 1, 0, 0.3), id="mock"),
        pytest.param(
            Case(REAL, 500, 20, 2, 0.7, LONG),
            marks=[pytest.mark.slow, pytest.mark.timeout(3600)],
            id="pusht_reference",
        ),
    ],
)
def test_killed_at_random_instants_every_trial_is_there_once_with_the_same_bits(tmp_path, case):
    killed_often = _kill_often(tmp_path / "killed", case, seed=case.n)
    assert killed_often >= case.kills - 1
    _evaluate(tmp_path / "calm", case, 0)
    killed, calm = read_trials(tmp_path / "killed"), read_trials(tmp_path / "calm")
    assert len(killed) == case.n
    by_id = {r.condition: r for r in killed}
    assert [by_id[r.condition] for r in calm] == list(calm)


def test_batched_inference_is_recorded_and_agrees_statistically(tmp_path):
    """Not bit by bit in general; on average, and start by start, there is no difference."""
    found = {}
    for batch in (1, 10):
        options = dataclasses.replace(OPTIONS, batch=batch)
        with TrialStore(tmp_path) as store:
            found[batch] = evaluate([FLOW], [A], {"a": conditions(40)}, store, options)
    assert len(read_trials(tmp_path)) == 80  # The batch belongs to a trial's identity.
    assert {r.batch for r in found[10]} == {10}
    pairs = zip(found[1], found[10], strict=True)
    difference = mean_bootstrap([y.score - x.score for x, y in pairs], bounds=DIFFERENCE)
    assert difference.low <= 0 <= difference.high
    assert abs(difference.value) < 0.05
    wins = newcombe_paired(*([r.success for r in found[b]] for b in (1, 10)))
    assert wins.low <= 0 <= wins.high
