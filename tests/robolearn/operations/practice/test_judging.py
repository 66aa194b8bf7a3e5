"""A classifier of pictures decides how an episode of a practice ended, before any learning."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from policies.imitation.success_classifier import HeldOut, SuccessClassifier, SuccessConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import CheckpointError, ConfigError
from robolearn.operations.practice.actors import Flown, RoundTask
from robolearn.operations.practice.frame import Books
from robolearn.operations.practice.judging import EpisodeJudge
from robolearn.operations.practice.records import Standing
from robolearn.types import Condition
from tests.episodes import IMAGE, embodiment, small_episode
from tests.robolearn.operations.practice.test_session import Counting, session


class Bright(nn.Module):
    """Takes a bright picture for a success."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean = x.flatten(1).mean(dim=1, keepdim=True)
        return mean - 0.5 * (mean.max() + mean.min()) if len(x) > 1 else mean - 0.1


@pytest.fixture
def classifier() -> SuccessClassifier:
    return SuccessClassifier(SuccessConfig(IMAGE), HeldOut(9, 10, 2, 10), Bright())


def test_the_last_picture_decides_and_says_how_often_it_errs(
    classifier: SuccessClassifier, tmp_path: Path
) -> None:
    practice = session(tmp_path, Counting())
    practice.judge = EpisodeJudge(classifier, tmp_path / "store")
    store = EpisodeStore.create(tmp_path / "store")
    with store.writer() as writer:
        practice.writer = writer
        flown = list[Flown]()
        for number, level in enumerate((0, 255)):
            episode = small_episode(number, image=True)
            block = episode.streams[IMAGE]
            last = dataclasses.replace(block, value=np.full_like(block.value, level))
            episode = dataclasses.replace(episode, streams={**episode.streams, IMAGE: last})
            prepared = writer.drafts.prepare(writer.drafts.begin(), episode)
            # As the task sees it both are solved.
            flown.append(Flown(number, "parent", None, 0, True, 0.5, 12, 2, "", prepared))
        start = Condition("start", 0, {})
        task = RoundTask(1, None, (start, start), ("parent", "parent"), 0, 0, (0, 1))
        practice.commit(task, flown)
    flights = practice.ledger.flights
    assert [f.success for f in flights] == [False, True]
    store = EpisodeStore.open(tmp_path / "store")
    assert [store.info(f.id).success for f in flights] == [False, True]
    said = store.annotated(flights[0].id)
    assert said.reason == f"classifier-{classifier.hash}"
    assert "9 of 10 held-out successes recognised" in said.notes[0]


def test_what_a_kill_left_unjudged_is_judged_when_it_goes_on(
    classifier: SuccessClassifier, tmp_path: Path
) -> None:
    judge = EpisodeJudge(classifier, tmp_path / "store")
    store = EpisodeStore.create(tmp_path / "store")
    said = {"id": "mine", "number": 0, "start": 0, "driver": "parent", "version": None}
    with store.writer() as writer:
        episode = small_episode(1, image=True)
        meta = dataclasses.replace(episode.meta, kind="online", provenance={"practice": said})
        block = episode.streams[IMAGE]
        dark = dataclasses.replace(block, value=np.zeros_like(block.value))
        streams = {**episode.streams, IMAGE: dark}
        # As the task sees it it is solved.
        name = writer.append(dataclasses.replace(episode, meta=meta, streams=streams))
    assert store.meta(name).outcome.success
    with contextlib.ExitStack() as stack:
        standing = Standing({}, "mine", {})
        out = tmp_path / "out"
        books = Books.opened(stack, tmp_path / "store", out, standing, 4, judge)
        assert [f.success for f in books.ledger.flights] == [False]
    assert EpisodeStore.open(tmp_path / "store").info(name).success is False


def test_who_cannot_see_does_not_judge(classifier: SuccessClassifier, tmp_path: Path) -> None:
    judge = EpisodeJudge(classifier, tmp_path)
    judge.require_seen(embodiment(image=True), "point")
    with pytest.raises(ConfigError, match="looks at 'top/image', which 'point' does not record"):
        judge.require_seen(embodiment(), "point")
    with pytest.raises(CheckpointError, match="robolearn success"):
        EpisodeJudge.of(tmp_path, tmp_path)
    assert EpisodeJudge.of(None, tmp_path) is None
