"""The learner of a practice: what it takes in, updates, hands over; killed, resumed, finished."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import itertools
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from policies.critics.reranked import RerankedPolicy
from policies.imitation.flow import FlowConfig
from policies.offline_rl.idql import IdqlConfig
from policies.registry import load_policy, policy_of
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.corruption import CorruptConfig
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import DataConfig, StoreChoice, StoreSource
from robolearn.data.reading.weighting import IdleConfig, QualityConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    SpecMismatchError,
    StoreError,
    StoreLockedError,
    TrainingError,
)
from robolearn.representation import RepresentationConfig
from robolearn.training import run_directory
from robolearn.training.budget import TimeLeft
from robolearn.training.data import TrainingData, TrainingSource
from robolearn.training.experiment import Experiment, train
from robolearn.training.learner import LAST_VERSIONS, Learner
from robolearn.training.run_directory import Run, load_run
from robolearn.training.trainer import FitConfig
from robolearn.training.versions import load_version, versions
from tests.growing_store import add_episodes
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_request, random_source

FLOW = FlowConfig(n_obs=2, horizon=4, execute=2, width=16, blocks=1, batch_size=8)
CRITICS = IdqlConfig(
    horizon=4,
    stride=2,
    every=2,
    discount=0.9,
    width=16,
    batch_size=8,
    candidates=2,
    next_candidates=2,
    schedule="constant",
)
DATA = DataConfig(
    (TOOL, BLOCK),
    kinds=("online",),
    reward=RewardConfig("success", {"discount": 0.9}),
)
FIT = FitConfig(steps=1000, warmup=0)
PRACTICE = Experiment("idql", DATA, CRITICS, FIT, seed=3)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("parent")
    fit = FitConfig(steps=2, warmup=0, diagnose_every=0)
    experiment = Experiment("flow", DataConfig((TOOL, BLOCK)), FLOW, fit)
    train(experiment, random_source(), folder / "run", cache_dir=folder / "cache")
    return load_run(folder / "run")


def practice(
    parent: Run,
    tmp_path: Path,
    experiment: Experiment = PRACTICE,
    run_dir: Path | None = None,
    *,
    demonstrations: TrainingSource | None = None,
    share: float = 0.0,
    corrected: bool = False,
    resume: bool = False,
) -> Learner:
    return Learner(
        experiment,
        parent,
        tmp_path / "store",
        run_dir or tmp_path / "run",
        demonstrations=demonstrations,
        share=share,
        corrected=corrected,
        resume=resume,
    )


def same_state(a: Learner, b: Learner) -> bool:
    mine, theirs = a.algorithm.state_dict(), b.algorithm.state_dict()
    return all(torch.equal(mine[k], theirs[k]) for k in theirs)


def test_a_round_is_taken_in_learned_from_and_handed_over(parent: Run, tmp_path: Path) -> None:
    add_episodes(tmp_path / "store", range(4))
    with practice(parent, tmp_path) as learner:
        first = learner.taken
        assert (first.episodes, first.steps, first.successes) == (4, 12 + 13 + 14 + 15, 2)
        add_episodes(tmp_path / "store", range(4, 6))
        new = learner.take_in()
        assert (new.episodes, new.steps, new.successes) == (2, 16 + 12, 1)
        assert learner.decisions == first.decisions + new.decisions
        assert learner.take_in().episodes == 0
        figures = learner.update(5)
        assert learner.step == 5
        assert np.isfinite(figures["loss/critic"])
        # Of a success: every second row from the first on; of a failure those that are not cut off.
        assert new.decisions == 7 + 6
        assert learner.hand_over() == 1
        weights = load_version(tmp_path / "run", 1).weights
        learner.update(3)
        learner.finish()
    run = load_run(tmp_path / "run")
    assert not all(torch.equal(weights[k], run.weights[k]) for k in weights)
    assert run.provenance["complete"]
    assert run.provenance["fit"]["steps"] == 8
    assert run.provenance["practised"] | {"version": 0} == dataclasses.asdict(learner.taken) | {
        "version": 0
    }
    assert len(run.provenance["starts"]) == 4 + 6
    load_policy(tmp_path / "run").sample(random_request(2))
    assert not (tmp_path / "run" / "rows").exists()


@pytest.mark.parametrize("left", [TimeLeft(seconds=0.2), TimeLeft(cpu_seconds=0.1)])
def test_updates_end_when_time_is_used_up(parent: Run, tmp_path: Path, left: TimeLeft) -> None:
    """However many were asked for; those that were made are as ever."""
    add_episodes(tmp_path / "store", range(4))
    with (
        practice(parent, tmp_path) as learner,
        practice(parent, tmp_path, run_dir=tmp_path / "b") as other,
    ):
        assert learner.update(5, TimeLeft(seconds=0.0)) == {}
        figures = learner.update(10**9, left)
        made = learner.step
        assert 0 < made < 10**9
        assert np.isfinite(figures["loss/critic"])
        other.update(made)
        assert same_state(learner, other)


def test_batches_are_those_of_training_on_the_same_store(parent: Run, tmp_path: Path) -> None:
    """The learner's windows, rewards and proposals are what ``train`` would have seen."""
    path = tmp_path / "store"
    add_episodes(path, range(3))
    with practice(parent, tmp_path) as learner:
        add_episodes(path, range(3, 6))
        learner.take_in()
        mine = learner.batch(7)
        source = StoreSource(EpisodeStore.open(path), DATA)
        data = TrainingData(DATA, CRITICS.batches(), PRACTICE.seed, source, flatten(source))
        data.propose(learner.algorithm)
        every = data.dataset.gather(data.dataset.windows)
        firsts = every.actions[:, 0]
        for row in range(len(mine.actions)):
            at = int((firsts == mine.actions[row, 0]).all(dim=1).int().argmax())
            for name in ("actions", "reward", "bootstrap"):
                assert torch.equal(getattr(mine, name)[row], getattr(every, name)[at]), name
            for name, values in mine.observations.items():
                assert torch.equal(values[row], every.observations[name][at])
            torch.testing.assert_close(mine.next_candidates[row], every.next_candidates[at])


def test_a_killed_learner_goes_on_with_the_same_bits(parent: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    add_episodes(path, range(3))
    with practice(parent, tmp_path) as whole:
        whole.update(4)
        whole.hand_over()
        add_episodes(path, range(3, 5))
        whole.take_in()
        whole.update(3)
        whole.checkpoint()
        # What comes after the checkpoint is lost with the process.
        whole.update(2)
        whole.hand_over()
        wanted = whole.batch(9)
    add_episodes(path, range(5, 7))
    with practice(parent, tmp_path, resume=True) as again:
        assert (again.step, again.episodes) == (7, 5)
        # Two weights never have the same number.
        assert again.version == 2
        assert torch.equal(again.batch(9).actions, wanted.actions)
        assert torch.equal(again.batch(9).next_candidates, wanted.next_candidates)
        again.update(2)
        assert same_state(again, whole)
        assert again.take_in().episodes == 2
        assert again.hand_over() == 3


def test_demonstrations_have_their_share(parent: Run, tmp_path: Path) -> None:
    add_episodes(tmp_path / "store", range(3))
    shown = dataclasses.replace(random_source(seed=50), content_hash="shown")
    free = dataclasses.replace(
        PRACTICE,
        data=dataclasses.replace(DATA, reward=RewardConfig()),
        algorithm=dataclasses.replace(CRITICS, bounds=None),
    )
    with practice(parent, tmp_path, experiment=free, demonstrations=shown, share=0.25) as learner:
        batch = learner.batch(0)
        assert len(batch.actions) == 8
        theirs = np.concatenate([e.actions for e in shown.items]).astype(np.float32)
        known = [(theirs == a).all(axis=1).any() for a in batch.actions[:, 0].numpy()]
        assert known == [False] * 6 + [True] * 2
        learner.update(2)
    for bad, share in ((shown, 0.0), (shown, 0.99), (None, 0.5)):
        with pytest.raises(ConfigError, match="share of"):
            practice(parent, tmp_path, run_dir=tmp_path / "no", demonstrations=bad, share=share)
    assert not (tmp_path / "no").exists()


def test_demonstrations_mean_the_same_by_a_signal(parent: Run, tmp_path: Path) -> None:
    """A batch that joins both would have taken metres beside millimetres, and steps of another
    length.
    """
    add_episodes(tmp_path / "store", range(3))
    table = dataclasses.replace(SPACE.observations[0], frame="flange")
    for space, said in (
        (dataclasses.replace(SPACE, rate_hz=20.0), r"control rate \[Hz\]: wanted 10, got 20"),
        (dataclasses.replace(SPACE, observations=(table, SPACE.observations[1])), "flange"),
    ):
        shown = dataclasses.replace(random_source(seed=50), content_hash=said, task_space=space)
        with pytest.raises(SpecMismatchError, match=said):
            practice(parent, tmp_path, demonstrations=shown, share=0.25)
    assert not (tmp_path / "run").exists()


def test_demonstrations_need_not_succeed(parent: Run, tmp_path: Path) -> None:
    """People may fall short of what counts as solved; own successes say what is worth something."""
    add_episodes(tmp_path / "store", range(3))
    add_episodes(tmp_path / "shown", range(4))
    failed = dataclasses.replace(DATA, success=False)
    shown = StoreSource(EpisodeStore.open(tmp_path / "shown"), failed)
    assert not any(q.success for q in shown.qualities)
    with practice(parent, tmp_path, demonstrations=shown, share=0.5) as learner:
        assert np.isfinite(learner.update(2)["loss/critic"])


def test_a_disk_that_is_full_for_a_while_costs_nothing(
    parent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "store"
    add_episodes(path, range(2))
    with practice(parent, tmp_path) as learner:
        add_episodes(path, range(2, 5))
        written, allowed = os.pwrite, [28]

        def full(*given: Any) -> int:
            allowed[0] -= 1
            if allowed[0] < 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return written(*given)

        # In the middle of rows, and in the middle of chunks.
        for count in (5, 29):
            allowed[0] = count
            with monkeypatch.context() as patch:
                patch.setattr(os, "pwrite", full)
                with pytest.raises(StoreError, match="nothing of the store is lost"):
                    learner.take_in()
        assert learner.take_in().episodes == 3
        found = [learner.batch(k) for k in range(4)]
        other = tmp_path / "other"
        with practice(parent, tmp_path, run_dir=other) as whole:
            for number, batch in enumerate(found):
                again = whole.batch(number)
                assert torch.equal(batch.actions, again.actions)
                assert torch.equal(batch.next_candidates, again.next_candidates)


def test_the_critic_is_diagnosed_every_so_often(parent: Run, tmp_path: Path) -> None:
    add_episodes(tmp_path / "store", range(3))
    with (
        practice(parent, tmp_path) as told,
        practice(
            parent,
            tmp_path,
            dataclasses.replace(PRACTICE, fit=dataclasses.replace(FIT, diagnose_every=0)),
            tmp_path / "other",
        ) as silent,
    ):
        said = [told.update(1) for _ in range(10)]
        for _ in range(10):
            assert not any(name.startswith("critic/") for name in silent.update(1))
        with_critic = [any(name.startswith("critic/") for name in figures) for figures in said]
        assert with_critic == [k % 5 == 4 for k in range(10)]
        # Neither learning nor its random numbers notice it.
        assert same_state(told, silent)


def test_the_last_versions_are_kept_and_those_that_are_asked_for(
    parent: Run, tmp_path: Path
) -> None:
    add_episodes(tmp_path / "store", range(2))
    with practice(parent, tmp_path) as learner:
        learner.hand_over()
        learner.keep(1)
        for _ in range(LAST_VERSIONS + 2):
            learner.update(1)
            learner.hand_over()
        newest = LAST_VERSIONS + 3
        assert versions(tmp_path / "run") == (1, *range(4, newest + 1))
        best = load_version(tmp_path / "run", 1).weights
        learner.finish(1)
    run = load_run(tmp_path / "run")
    assert all(torch.equal(best[k], run.weights[k]) for k in best)
    assert run.provenance["practised"]["version"] == 1


def chooses(run_dir: Path) -> bool:
    """Whether a run does what was learned, not what its parent does."""
    return isinstance(load_policy(run_dir), RerankedPolicy)


def test_until_something_comes_out_a_run_holds_its_parent(parent: Run, tmp_path: Path) -> None:
    """Whoever is killed leaves nothing that was never tried."""
    add_episodes(tmp_path / "store", range(2))
    run = tmp_path / "run"
    with practice(parent, tmp_path) as learner:
        learner.update(1)
        learner.hand_over()
        learner.checkpoint()
        assert not chooses(run)
        assert isinstance(policy_of(load_version(run, 1)), RerankedPolicy)
    with practice(parent, tmp_path, resume=True) as learner:
        learner.checkpoint()
        assert not chooses(run)
        learner.finish()
    assert chooses(run)
    # What came out before stays.
    with practice(parent, tmp_path, resume=True) as learner:
        learner.checkpoint()
        assert chooses(run)


class Killed(BaseException):
    """As if nothing came after it."""


def test_who_is_killed_while_it_ends_as_its_parent_leaves_the_parent(
    parent: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever file is the last one that was written."""
    add_episodes(tmp_path / "store", range(2))
    run, before, write = tmp_path / "run", tmp_path / "before", run_directory.write_atomic
    with practice(parent, tmp_path) as learner:
        learner.update(1)
        learner.finish()
    run.rename(before)
    written = list[str]()

    def killed_after(count: int) -> Callable[[Path, str | bytes], None]:
        def killed(path: Path, content: str | bytes) -> None:
            if len(written) == count:
                raise Killed
            written.append(path.name)
            write(path, content)

        return killed

    for count in itertools.count(1):
        written.clear()
        shutil.copytree(before, run, dirs_exist_ok=True)
        assert chooses(run)
        learner = practice(parent, tmp_path, resume=True)
        with monkeypatch.context() as context, contextlib.closing(learner):
            learner.update(1)
            learner.hand_over()
            context.setattr(run_directory, "write_atomic", killed_after(count))
            with contextlib.suppress(Killed):
                learner.finish(as_parent=True)
                break
        assert not chooses(run), written
        shutil.rmtree(run)
    assert not chooses(run)
    assert written[0] == "config.yaml"
    assert {"weights.safetensors", "provenance.json", "digests.json"} <= {*written}


def test_losses_and_weights_that_are_no_numbers_end_it(parent: Run, tmp_path: Path) -> None:
    add_episodes(tmp_path / "store", range(2))
    with practice(parent, tmp_path) as learner:
        learner.update(1)
        learner.hand_over()
        learner.checkpoint()
        before = {k: v.clone() for k, v in load_run(tmp_path / "run").weights.items()}
        with torch.no_grad():
            next(iter(learner.algorithm.parameters())).fill_(torch.nan)
        with pytest.raises(TrainingError, match="weights are not finite after update 1"):
            learner.hand_over()
        with pytest.raises(TrainingError, match="is nan at step 1"):
            learner.update(1)
    after = load_run(tmp_path / "run").weights
    assert all(torch.equal(before[k], after[k]) for k in before)
    assert versions(tmp_path / "run") == (1,)


def test_no_reward_is_said_and_practice_goes_on(
    parent: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store"
    add_episodes(path, range(2), success=False)
    with caplog.at_level(logging.WARNING), practice(parent, tmp_path) as learner:
        assert "no reward has occurred in 2 episodes" in caplog.text
        assert not learner.informed
        learner.update(2)
        add_episodes(path, range(2, 3), success=True)
        learner.take_in()
        assert learner.informed


def test_what_does_not_fit_is_explained_and_leaves_nothing(parent: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    EpisodeStore.create(path)
    with pytest.raises(DataError, match="no episodes of kinds"):
        practice(parent, tmp_path)
    add_episodes(path, range(2))
    slower = dataclasses.replace(SPACE, rate_hz=5.0)
    other = dataclasses.replace(parent, spec=dataclasses.replace(parent.spec, task_space=slower))
    with pytest.raises(SpecMismatchError, match="another task space"):
        practice(other, tmp_path)
    for change, said in (
        ({"held_out": 0.5}, r"data\.held_out: .*held-out starts"),
        ({"text": True}, r"data\.text: .*cannot practise yet"),
        ({"stores": (StoreChoice("other"),)}, r"data\.stores: .*--practised"),
        ({"quality": QualityConfig(success=2.0)}, r"data\.quality: .*train on the finished store"),
        ({"idle": IdleConfig(threshold=0.1)}, r"data\.idle: .*leave it out"),
        ({"corrupt": CorruptConfig(what=("rewards",))}, r"data\.corrupt: .*finished store"),
    ):
        data = dataclasses.replace(DATA, **change)
        with pytest.raises(ConfigError, match=said):
            practice(parent, tmp_path, experiment=dataclasses.replace(PRACTICE, data=data))
    data = dataclasses.replace(DATA, observations=(TOOL,))
    with pytest.raises(SpecMismatchError, match="another task space than the data"):
        practice(parent, tmp_path, experiment=dataclasses.replace(PRACTICE, data=data))
    seen = RepresentationConfig({TOOL: "relative"})
    data = dataclasses.replace(DATA, representation=seen)
    with pytest.raises(ConfigError, match="sees the data as that does"):
        practice(parent, tmp_path, experiment=dataclasses.replace(PRACTICE, data=data))
    assert not (tmp_path / "run").exists()


def test_another_run_is_not_gone_on_with(parent: Run, tmp_path: Path) -> None:
    path = tmp_path / "store"
    add_episodes(path, range(3))
    with practice(parent, tmp_path) as learner:
        with pytest.raises(StoreLockedError):
            practice(parent, tmp_path, resume=True)
        learner.update(1)
        learner.checkpoint()
    with pytest.raises(CheckpointError, match="holds a run already"):
        practice(parent, tmp_path)
    other = dataclasses.replace(PRACTICE, seed=9)
    with pytest.raises(CheckpointError, match="another experiment"):
        practice(parent, tmp_path, other, resume=True)
    with EpisodeStore.open(path).writer() as writer:
        writer.remove(("ep_000001",), "somebody")
    with pytest.raises(DataError, match="has 2 episodes to learn from, and had 3"):
        practice(parent, tmp_path, resume=True)
    with pytest.raises(CheckpointError, match="it did not practise"):
        practice(parent, tmp_path, run_dir=parent.path, resume=True)


@pytest.mark.parametrize("resume", [False, True])
def test_what_is_no_run_is_not_written_over(parent: Run, tmp_path: Path, *, resume: bool) -> None:
    """What a training left that was killed as it began is; somebody else's files are not."""
    add_episodes(tmp_path / "store", range(2))
    run = tmp_path / "run"
    run.mkdir()
    (run / "notes.txt").write_text("mine")
    for name in ("config.yaml", "provenance.json", "weights.safetensors", "parent"):
        (run / name).write_text('{"mine": 1}')
        with pytest.raises(CheckpointError, match=f"{name}.* written over, and no run"):
            practice(parent, tmp_path, resume=resume)
        assert (run / name).read_text() == '{"mine": 1}'
        (run / name).unlink()
    with practice(parent, tmp_path):
        pass
    for left in (["provenance.json"], ["spec.json", "stats.json"]):
        for name in left:
            (run / name).unlink()
        with practice(parent, tmp_path, resume=resume) as learner:
            assert learner.step == 0
    with practice(parent, tmp_path, resume=resume) as learner:
        learner.update(1)
        learner.finish()
    (run / "provenance.json").unlink()
    with pytest.raises(CheckpointError, match=r"holds weights.safetensors, state.* written over"):
        practice(parent, tmp_path, resume=resume)


def test_weights_of_another_run_are_refused(parent: Run, tmp_path: Path) -> None:
    add_episodes(tmp_path / "store", range(2))
    for name, seed in (("a", 1), ("b", 2)):
        experiment = dataclasses.replace(PRACTICE, seed=seed)
        run_dir = tmp_path / name
        with practice(parent, tmp_path, experiment=experiment, run_dir=run_dir) as learner:
            learner.hand_over()
            learner.checkpoint()
    stolen = tmp_path / "a" / "versions" / "000001.safetensors"
    stolen.write_bytes((tmp_path / "b" / "versions" / stolen.name).read_bytes())
    experiment = dataclasses.replace(PRACTICE, seed=1)
    run_dir = tmp_path / "a"
    with (
        practice(parent, tmp_path, experiment=experiment, run_dir=run_dir, resume=True) as learner,
        pytest.raises(CheckpointError, match="is not version 1 of this run"),
    ):
        learner.finish(1)
