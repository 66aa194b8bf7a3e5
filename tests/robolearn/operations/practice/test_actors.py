"""Rounds of practice: whole episodes, by whom they should be, prepared and committed once."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eval.trials.executors import run_in_workers
from eval.trials.instruments import PHYSICS_DIVERGED
from robolearn.data.episode import EpisodeStart
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.drafts import Drafts
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import CheckpointError, ConfigError, PhysicsDivergedError, StoreError
from robolearn.operations.builders import env_builder
from robolearn.operations.practice import actors
from robolearn.operations.practice.actors import ActorPlan, Flown, RoundRunner, RoundTask
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.run_directory import load_run
from robolearn.training.versions import version_file, write_version
from robolearn.types import Condition
from sim.worlds import make_world
from tests.two_runs import two_runs

STEPS = 10
FRAME = ("config.yaml", "spec.json", "stats.json")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parent, and a practice that has two versions and no weights of its own yet."""
    folder = tmp_path_factory.mktemp("runs")
    two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), STEPS)
    out = folder / "out"
    out.mkdir()
    for name in FRAME:
        shutil.copyfile(folder / "one" / name, out / name)
    for version, name in enumerate(("one", "two"), 1):
        write_version(out, version, load_run(folder / name).weights)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    return EpisodeStore.create(tmp_path / "store")


@pytest.fixture(scope="module")
def starts() -> tuple[Condition, ...]:
    env = make_world("pusht_reference")
    return tuple(env.sample_condition(seed) for seed in (5, 6, 5, 6))


def runner(runs: Path, store: EpisodeStore) -> RoundRunner:
    world = (env_builder("pusht_reference"),)
    plan = ActorPlan(world, runs / "one", runs / "out", store.staging, max_steps=STEPS)
    return through_a_pipe(plan)()


def through_a_pipe(value: Any) -> Any:
    """As it arrives in a worker process, or from one."""
    return ForkingPickler.loads(ForkingPickler.dumps(value))


def mixed(starts: tuple[Condition, ...], version: int | None = 2, first: int = 40) -> RoundTask:
    return RoundTask(7, version, starts, ("parent", "parent", "explorer", "explorer"), 0, first)


def test_a_round_is_flown_by_both_and_committed_by_who_holds_the_lock(
    runs: Path, store: EpisodeStore, starts: tuple[Condition, ...]
) -> None:
    with store.writer() as writer:
        flown = runner(runs, store)(mixed(starts))
        assert store.ids() == ()
        arrived = through_a_pipe(flown)
        ids = [writer.commit(f.prepared) for f in arrived if f.prepared is not None]
    assert [(f.number, f.driver, f.version) for f in flown] == [
        (40, "parent", None),
        (41, "parent", None),
        (42, "explorer", 2),
        (43, "explorer", 2),
    ]
    assert {(f.steps, f.decisions, f.reason, f.world) for f in flown} == {(10, 3, "time_limit", 0)}
    assert check_store(store.path).findings == ()
    assert not list(store.staging.iterdir())
    episodes = [store.read(i) for i in ids]
    metas = [episode.meta for episode in episodes]
    assert {meta.kind for meta in metas} == {"online"}
    assert [meta.agent for meta in metas] == ["one", "one", "out@2", "out@2"]
    practice = [meta.provenance["practice"] for meta in metas]
    assert [p["number"] for p in practice] == [40, 41, 42, 43]
    assert [(p["driver"], p["version"]) for p in practice[1:3]] == [
        ("parent", None),
        ("explorer", 2),
    ]
    assert {p["parent"] for p in practice} == {load_run(runs / "one").policy_hash}
    assert EpisodeStart.of(metas[0]).world == "pusht_reference"
    assert metas[0].condition.poses == metas[2].condition.poses
    # From one start, by two policies.
    assert not np.array_equal(episodes[0].action[TOOL], episodes[2].action[TOOL])


def test_the_same_round_gives_the_same_bits_and_versions_differ(
    runs: Path, store: EpisodeStore, starts: tuple[Condition, ...]
) -> None:
    with store.writer() as writer:
        ids: list[list[str]] = []
        fly = runner(runs, store)
        for task in (mixed(starts), mixed(starts, version=1), mixed(starts)):
            found = [f.prepared for f in fly(task)]
            ids.append([writer.commit(p) for p in found if p is not None])
    actions = [[store.read(i).action[TOOL] for i in row] for row in ids]
    np.testing.assert_array_equal(actions[0], actions[2])
    np.testing.assert_array_equal(actions[0][:2], actions[1][:2])
    # Version 1 has the parent's weights: another policy in the same class, with the same answers.
    np.testing.assert_array_equal(actions[1][2:], actions[1][:2])
    assert not np.array_equal(actions[0][2:], actions[1][2:])


def test_a_round_that_an_actor_hung_with_is_flown_by_the_newest_version(
    runs: Path, store: EpisodeStore, starts: tuple[Condition, ...], tmp_path: Path
) -> None:
    """Others practised on meanwhile, and only the last versions are kept."""
    later = shutil.copytree(runs, tmp_path / "later")
    version_file(later / "out", 1).unlink()
    with store.writer() as writer:
        flown = runner(later, store)(mixed(starts, version=1))
        ids = [writer.commit(f.prepared) for f in flown if f.prepared is not None]
    assert [f.version for f in flown] == [None, None, 2, 2]
    said = [store.read(i).meta.provenance["practice"] for i in ids]
    assert [p["version"] for p in said] == [None, None, 2, 2]
    # One that is not there yet is no such thing.
    with pytest.raises(CheckpointError, match="has no version 3"):
        runner(later, store)(mixed(starts, version=3))


def test_a_round_that_fails_leaves_nothing(
    runs: Path,
    store: EpisodeStore,
    starts: tuple[Condition, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fly = runner(runs, store)
    with store.writer():
        with pytest.raises(CheckpointError, match="no version 3; it has 1 to 2"):
            fly(mixed(starts, version=3))
        prepare, calls = Drafts.prepare, iter(range(9))

        def full(self: Drafts, *args: Any) -> Any:
            if next(calls) == 2:
                raise StoreError("the disk is full")
            return prepare(self, *args)

        monkeypatch.setattr(Drafts, "prepare", full)
        with pytest.raises(StoreError, match="disk is full"):
            fly(mixed(starts))
        assert not list(store.staging.iterdir())


def test_what_an_actor_that_died_left_is_swept(
    runs: Path, store: EpisodeStore, starts: tuple[Condition, ...]
) -> None:
    with store.writer() as writer:
        flown = runner(runs, store)(mixed(starts))
        kept = flown[1].prepared
        assert kept is not None
        writer.commit(kept)
        with pytest.raises(StoreError, match=r"prepared .* is gone"):
            writer.commit(kept)
        assert len(list(store.staging.iterdir())) == 3
    assert not list(store.staging.iterdir())
    assert len(store.ids()) == 1
    assert check_store(store.path).findings == ()


def test_an_episode_whose_physics_break_down_is_told_and_not_kept(
    runs: Path,
    store: EpisodeStore,
    starts: tuple[Condition, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[Any] = []

    def make(name: str) -> Any:
        env = make_world(name)
        if len(built) == 1:
            monkeypatch.setattr(env, "advance", broken)
        built.append(env)
        return env

    def broken() -> None:
        raise PhysicsDivergedError("nan")

    monkeypatch.setattr(actors, "make_world", make)
    with store.writer():
        flown = runner(runs, store)(mixed(starts))
    assert [f.reason for f in flown].count(PHYSICS_DIVERGED) == 1
    assert [f.prepared is None for f in flown] == [False, True, False, False]
    assert flown[1].steps == 1


def test_a_round_that_makes_no_sense_is_refused(starts: tuple[Condition, ...]) -> None:
    with pytest.raises(ConfigError, match="needs a version"):
        mixed(starts, version=None)
    with pytest.raises(ConfigError, match="a driver per condition"):
        RoundTask(0, None, starts, ("parent",), 0, 0)


@dataclass(frozen=True)
class Killed:
    """An actor that is killed once, when its round is flown and prepared, before it is told."""

    plan: ActorPlan
    flag: Path

    def __call__(self) -> Callable[[RoundTask], tuple[Flown, ...]]:
        fly = self.plan()

        def run(task: RoundTask) -> tuple[Flown, ...]:
            flown = fly(task)
            if not self.flag.exists():
                self.flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return flown

        return run


@pytest.mark.slow
def test_a_round_whose_actor_is_killed_is_flown_again_and_committed_once(
    runs: Path, store: EpisodeStore, starts: tuple[Condition, ...], tmp_path: Path
) -> None:
    world = (env_builder("pusht_reference"),)
    plan = ActorPlan(world, runs / "one", runs / "out", store.staging, max_steps=STEPS)
    rounds = (mixed(starts, first=first) for first in (0, 4))
    numbers: list[int] = []
    with store.writer() as writer:
        for done in run_in_workers(Killed(plan, tmp_path / "killed"), rounds, workers=1):
            assert done.result is not None
            for flown in done.result:
                assert flown.prepared is not None
                writer.commit(flown.prepared)
                numbers.append(flown.number)
        # What the killed actor had prepared is nobody's.
        assert len(list(store.staging.iterdir())) == len(starts)
    assert numbers == list(range(8))
    assert not list(store.staging.iterdir())
    infos = [store.meta(i).provenance["practice"]["number"] for i in store.ids()]
    assert infos == numbers
    assert check_store(store.path).findings == ()
