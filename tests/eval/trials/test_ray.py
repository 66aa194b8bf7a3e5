"""Trials on Ray: the same bits as in this process; the same rule for crashes and hangs."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from eval.trials import ray_executor
from eval.trials.executors import WorkerFailedError
from eval.trials.ray_executor import run_on_ray
from eval.trials.rollouts import Options, WorldEntry
from eval.trials.table import read_trials
from robolearn.errors import ConfigError
from robolearn.machine.threads import ONE_THREAD
from tests.eval.mocks import BuildEnv, without_times
from tests.eval.trials.test_rollouts import run
from tests.waiting import pass_time

ray = pytest.importorskip("ray", reason="Ray is an optional extra: pip install 'robolearn[ray]'")


@pytest.fixture(scope="module")
def started() -> Iterator[None]:
    """Ray with one core, once for the tests that do not judge how it is started and stopped."""
    alone = {"num_cpus": 1, "include_dashboard": False, "log_to_driver": False}
    ray.init(address="local", runtime_env={"env_vars": dict(ONE_THREAD)}, **alone)
    yield
    ray.shutdown()


@pytest.fixture
def lasting(started: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a call starts and stops is the one that runs."""
    for name, answer in (("init", None), ("is_initialized", False), ("shutdown", None)):
        monkeypatch.setattr(ray, name, lambda *_, answer=answer, **__: answer)


class Troubled:
    """0: answers, 1: dies the first time, 2: always dies, 3: hangs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self):
        def handle(task: int) -> int:
            mark = self.folder / f"{task}"
            first = not mark.exists()
            mark.write_text("seen")
            if task == 2 or (task == 1 and first):
                os._exit(3)
            if task == 3:
                pass_time(60, "a task that hangs")
            return task * 10

        return handle


class Buggy:
    def __call__(self):
        def handle(task: int) -> int:
            return 1 // task

        return handle


def test_results_are_those_of_this_process(tmp_path: Path):
    here = run(tmp_path / "here", workers=0)
    there = run(tmp_path / "there", workers=2, executor="ray")
    assert without_times(here) == without_times(there)


class Counting:
    """Answers after a moment; a task that ends in 3 kills its actor the first ``deaths`` times."""

    def __init__(self, folder: Path, deaths: int) -> None:
        self.folder, self.deaths = folder, deaths

    def __call__(self):
        def handle(task: int) -> int:
            if task % 10 == 3:
                marks = len(list(self.folder.glob(f"{task}-*")))
                (self.folder / f"{task}-{marks}").touch()
                if marks < self.deaths:
                    os._exit(3)
            pass_time(0.05, "a task that takes a moment")
            return task * 10

        return handle


@pytest.mark.slow
def test_four_actors_on_two_cores_queue_and_lose_nothing(tmp_path, monkeypatch, caplog):
    """Two actors never start while the others work, for longer than a task may take."""
    caplog.set_level(logging.CRITICAL)
    connect = ray_executor._connect
    monkeypatch.setattr(ray_executor, "_connect", lambda workers, address: connect(2, address))
    tasks = list(range(30))
    done = list(run_on_ray(Counting(tmp_path, 2), tasks, workers=4, timeout_s=1.0))
    assert {d.task: d.result for d in done} == {t: t * 10 for t in tasks}
    assert len(done) == len(tasks)


@pytest.mark.slow
def test_an_actor_that_dies_or_hangs_loses_no_task(tmp_path: Path):
    done = list(run_on_ray(Troubled(tmp_path), [0, 1, 2, 3, 4], workers=2, timeout_s=6.0))
    results = {d.task: d.result for d in done}
    assert len(done) == 5
    assert results == {0: 0, 1: 10, 2: None, 3: None, 4: 40}
    lost = {d.task: d.lost for d in done if d.lost}
    assert "died" in lost[2]
    assert "hangs" in lost[3]


def test_a_trial_lost_with_its_worker_is_run_again_and_never_stored_as_a_failure(
    tmp_path, caplog, monkeypatch, lasting
):
    caplog.set_level(logging.CRITICAL)
    monkeypatch.setattr(ray_executor, "DEATHS", 2)
    trouble = WorldEntry("a", "w-a", "mock 1", BuildEnv("a", "crash"))
    with pytest.raises(WorkerFailedError, match=r"1 trials were lost .*'c007'.*nothing is stored"):
        run(tmp_path, worlds=(trouble,), workers=1, executor="ray", batch=10)
    stored = read_trials(tmp_path)
    assert len(stored) == 9
    assert "worker_crashed" not in {r.reason for r in stored}
    # Another day, on machines that stay: what was missing is run.
    assert len(run(tmp_path, batch=10)) == 10


def test_a_bug_reaches_the_caller_and_bad_requests_are_refused(lasting):
    with pytest.raises(WorkerFailedError, match="ZeroDivisionError"):
        list(run_on_ray(Buggy(), [0], workers=1))
    with pytest.raises(ConfigError, match="at least 1"):
        list(run_on_ray(Buggy(), [1], workers=0))
    with pytest.raises(ConfigError, match="at least one worker"):
        Options(suite="s", task="t", max_steps=1, workers=0, executor="ray")
    with pytest.raises(ConfigError, match="address"):
        Options(suite="s", task="t", max_steps=1, workers=1, address="auto")
