"""What a person did while taking over is part of what people showed."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.training.collected.corrections import Corrections
from robolearn.training.run_directory import Run
from tests.growing_store import own_episode
from tests.learning_mocks import random_source
from tests.robolearn.training.test_learner import CRITICS, DATA, PRACTICE, parent, practice

__all__ = ["parent"]
SPEC = dataclasses.replace(CRITICS.batches(), parts=())


def add(path: Path, seeds: range, *, corrected: bool) -> None:
    """Episodes that succeed; in corrected ones a person drives from tick 6 on."""
    with EpisodeStore.open_or_create(path).writer() as writer:
        for seed in seeds:
            episode = own_episode(seed, 12, success=True)
            source = ("policy:parent",) * 6 + ("operator:scripted",) * 6
            writer.append(dataclasses.replace(episode, source=source) if corrected else episode)


def dataset(path: Path) -> EpisodeDataset:
    source = StoreSource(EpisodeStore.open(path), DATA)
    return EpisodeDataset(flatten(source), SPEC, 0, growing=True)


def test_of_a_share_as_much_as_there_is_beside_the_demonstrations(tmp_path: Path) -> None:
    add(tmp_path / "store", range(2), corrected=True)
    data = dataset(tmp_path / "store")
    drawn = Corrections(data, 8, len(data) // 2, seed=1)
    # Half of the windows begin with a step of the person, and as many were shown.
    assert len(drawn.windows) == len(data) // 2
    counts = [drawn.count(step) for step in range(400)]
    assert np.mean(counts) == pytest.approx(4.0, abs=0.25)
    batch = drawn.batch(3)
    assert len(batch.actions) == drawn.count(3)
    assert batch.intervention is not None
    assert bool(batch.intervention[:, 0].all())
    again = drawn.batch(3)
    assert bool((again.actions == batch.actions).all())


def test_before_anybody_took_over_it_is_demonstrations_or_practice(tmp_path: Path) -> None:
    add(tmp_path / "store", range(2), corrected=False)
    data = dataset(tmp_path / "store")
    assert Corrections(data, 8, 100, seed=1).count(0) == 0
    alone = Corrections(data, 8, 0, seed=1)
    assert (alone.count(0), len(alone.windows)) == (8, len(data))


def test_the_learner_draws_them_twice(parent: Run, tmp_path: Path) -> None:
    add(tmp_path / "store", range(3), corrected=False)
    shown = dataclasses.replace(random_source(seed=50), content_hash="shown")
    free = dataclasses.replace(
        PRACTICE,
        data=dataclasses.replace(DATA, reward=RewardConfig()),
        algorithm=dataclasses.replace(CRITICS, bounds=None),
    )
    with practice(
        parent, tmp_path, experiment=free, demonstrations=shown, share=0.5, corrected=True
    ) as learner:
        before = learner.batch(0)
        add(tmp_path / "store", range(3, 9), corrected=True)
        learner.take_in()
        theirs = np.concatenate([e.actions for e in shown.items]).astype(np.float32)
        persons = np.zeros(4)
        for number in range(20):
            batch = learner.batch(number)
            assert len(batch.actions) == len(before.actions) == 8
            assert batch.intervention is not None
            of_store = [bool((theirs == a).all(axis=1).any()) for a in batch.actions[4:, 0].numpy()]
            person = batch.intervention[4:, 0].numpy()
            # Nothing in the share of people was driven by a policy.
            assert (np.array(of_store) ^ person).all()
            persons += person
        assert 0 < persons.sum() < 80
        assert np.isfinite(learner.update(2)["loss/critic"])


def test_without_demonstrations_people_who_take_over_are_enough(
    parent: Run,
    tmp_path: Path,
) -> None:
    add(tmp_path / "store", range(3), corrected=True)
    with practice(parent, tmp_path, share=0.5, corrected=True) as learner:
        batch = learner.batch(0)
        assert batch.intervention is not None
        assert bool(batch.intervention[4:, 0].all())
        assert not bool(batch.intervention[:4, 0].all())
