from __future__ import annotations

import dataclasses
import logging
import multiprocessing
import os
from pathlib import Path

import pytest

from eval.trials.executors import WorkerFailedError, run_in_workers
from eval.trials.rollouts import Options, PolicyEntry, WorldEntry, evaluate
from eval.trials.table import TrialStore, read_trials
from robolearn.errors import ConfigError, SpecMismatchError
from tests.eval.mocks import BuildEnv, BuildPolicy, conditions

FLOW = PolicyEntry("flow", "h-flow", BuildPolicy())
CRITIC = PolicyEntry("iql", "h-iql", BuildPolicy(0.5, reranks=True))
A = WorldEntry("a", "w-a", "mock 1", BuildEnv("a"))
B = WorldEntry("b", "w-b", "mock 1", BuildEnv("b"))
OPTIONS = Options(suite="s@1", task="pusht", max_steps=40, batch=4, code="k")


def run(folder: Path, policies=(FLOW,), worlds=(A,), n=10, on_progress=None, **changes):
    options = dataclasses.replace(OPTIONS, **changes)
    lists = {w.name: conditions(n) for w in worlds}
    with TrialStore(folder) as store:
        return evaluate(policies, worlds, lists, store, options, on_progress)


def test_every_policy_world_and_condition_gets_one_trial(tmp_path):
    seen = []
    records = run(tmp_path, (FLOW, CRITIC), (A, B), on_progress=seen.append)
    assert len(records) == 40
    assert sum(p.added for p in seen) == 40
    assert {(p.policy, p.world, p.n) for p in seen} >= {
        (p, w, 10) for p in ("flow", "iql") for w in ("a", "b")
    }
    for p in seen:
        if p.n == 10:
            mine = [r.score for r in records if (r.policy, r.env) == (p.policy, p.world)]
            assert p.score == pytest.approx(sum(mine) / 10)
    first = [r for r in records if (r.policy, r.env) == ("flow", "a")]
    assert [r.condition for r in first] == [c.id for c in conditions(10)]
    assert all(r.metrics["max_coverage"] >= r.score * 0.95 - 1e-9 for r in records)
    assert {r.reason for r in records} <= {"success", "time_limit"}
    assert {r.steps for r in records if r.reason == "time_limit"} == {40}
    critic = [r for r in records if r.policy == "iql"]
    assert sum(r.metrics["changed"] for r in critic) > 0
    assert all(r.metrics["changed"] <= r.metrics["chunks"] for r in critic)
    assert all("changed" not in r.metrics for r in records if r.policy == "flow")


def test_same_bits_with_one_two_or_no_worker_and_after_a_resume(tmp_path):
    alone = run(tmp_path / "0", (FLOW, CRITIC), (A, B))
    two = run(tmp_path / "2", (FLOW, CRITIC), (A, B), workers=2)
    assert two == alone
    run(tmp_path / "r", (FLOW,), (B,), n=6)
    assert run(tmp_path / "r", (FLOW, CRITIC), (A, B)) == tuple(
        r for r in (_with_rows(alone, tmp_path / "r"))
    )


def _with_rows(records, folder):
    """The first six conditions were run in chunks of 4 and 2: only ``rows`` may tell."""
    with TrialStore(folder) as store:
        early = {(r.policy, r.env, r.condition): r for r in store.all()[:6]}
    for r in records:
        kept = early.get((r.policy, r.env, r.condition), r)
        yield dataclasses.replace(r, metrics=r.metrics | {"rows": kept.metrics["rows"]})


def test_trials_that_are_there_are_not_run_again(tmp_path):
    first = run(tmp_path)
    seen = []
    assert run(tmp_path, on_progress=seen.append) == first
    assert seen == []
    more = run(tmp_path, n=14, on_progress=seen.append)
    assert more[:10] == first
    assert sum(p.added for p in seen) == 4
    run(tmp_path, code="other", on_progress=seen.append)
    assert sum(p.added for p in seen) == 14


def test_divergence_is_a_reason_of_its_own_and_spares_the_batch(tmp_path, caplog):
    caplog.set_level(logging.ERROR)
    broken = WorldEntry("a", "w-a", "mock 1", BuildEnv("a", "diverge"))
    records = run(tmp_path / "x", worlds=(broken,))
    bad = records[7]
    assert (bad.reason, bad.success, bad.steps) == ("physics_diverged", False, 5)
    others = [r for r in records if r.condition != bad.condition]
    healthy = [r for r in run(tmp_path / "y") if r.condition != bad.condition]
    assert others == healthy


def test_a_crash_is_retried_and_leaves_no_trace(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    flaky = WorldEntry("a", "w-a", "mock 1", BuildEnv("a", "crash", tmp_path / "flag"))
    assert run(tmp_path / "x", worlds=(flaky,), workers=2) == run(tmp_path / "y")


def test_a_crash_that_repeats_is_recorded_for_its_condition_alone(tmp_path, caplog):
    caplog.set_level(logging.CRITICAL)
    deadly = WorldEntry("a", "w-a", "mock 1", BuildEnv("a", "crash"))
    records = run(tmp_path, worlds=(deadly,), workers=1)
    assert len(records) == 10
    assert [r.condition for r in records if r.reason == "worker_crashed"] == ["c007"]
    assert records[7].score == 0.0


def test_a_bug_in_a_worker_reaches_the_caller(tmp_path):
    buggy = WorldEntry("a", "w-a", "mock 1", BuildEnv("a", "bug"))
    with pytest.raises(WorkerFailedError, match="KeyError: 'a bug'"):
        run(tmp_path / "x", worlds=(buggy,), workers=1)
    with pytest.raises(KeyError):
        run(tmp_path / "y", worlds=(buggy,))


class Refuses:
    def __call__(self):
        raise SpecMismatchError("the policy's task space does not fit")


def test_a_typed_error_of_a_worker_stays_typed(tmp_path):
    with pytest.raises(SpecMismatchError, match="does not fit"):
        run(tmp_path, (PolicyEntry("x", "y", Refuses()),), workers=1)


class Sleeper:
    def __call__(self):
        import threading

        return lambda task: threading.Event().wait(60) if task == "hang" else task


def test_a_hung_worker_is_ended_and_reported(caplog):
    caplog.set_level(logging.CRITICAL)
    done = list(run_in_workers(Sleeper(), ["a", "hang", "b"], workers=1, attempts=1, timeout_s=0.7))
    assert [(d.task, d.result) for d in done if not d.lost] == [("a", "a"), ("b", "b")]
    assert [d.task for d in done if "died" in d.lost] == ["hang"]


def test_bad_requests_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="names of their own"):
        run(tmp_path, (FLOW, FLOW))
    with pytest.raises(ConfigError, match="same policy was given twice"):
        run(tmp_path, (FLOW, dataclasses.replace(FLOW, name="other")))
    with pytest.raises(ConfigError, match="batch >= 1"):
        run(tmp_path, batch=0)
    with pytest.raises(ConfigError, match="conditions of their own"), TrialStore(tmp_path) as store:
        evaluate((FLOW,), (A,), {"a": conditions(2) * 2}, store, OPTIONS)


def _evaluate_in_a_process(folder: Path, path: str) -> None:
    run(folder, (FLOW, CRITIC), (A, B), n=40, on_progress=lambda p: Path(path).touch())


def test_killed_in_the_middle_and_resumed_gives_the_same_bits(tmp_path):
    context = multiprocessing.get_context("spawn")
    sign = tmp_path / "first-chunk-done"
    process = context.Process(target=_evaluate_in_a_process, args=(tmp_path / "k", str(sign)))
    process.start()
    while process.is_alive() and not sign.exists():
        process.join(0.005)
    process.kill()
    process.join()
    before = len(read_trials(tmp_path / "k"))
    assert before >= 4
    assert before % 4 == 0
    resumed = run(tmp_path / "k", (FLOW, CRITIC), (A, B), n=40)
    assert resumed == run(tmp_path / "u", (FLOW, CRITIC), (A, B), n=40)
    assert len(read_trials(tmp_path / "k")) == 160


class _Unbuildable:
    """Cannot be read by a worker process: it dies before it is ready."""

    def __call__(self):
        return str

    def __reduce__(self):
        return (_die, ())


def _die():
    os._exit(3)


def test_workers_that_cannot_start_are_an_error_and_no_failed_trials(caplog):
    caplog.set_level(logging.CRITICAL)
    with pytest.raises(WorkerFailedError, match="died before they had started"):
        list(run_in_workers(_Unbuildable(), [1, 2], workers=1))
