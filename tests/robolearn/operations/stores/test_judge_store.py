"""Outcomes from pictures: annotated with their error, followed by rewards, kept by the run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from policies.imitation.flow import FlowConfig
from policies.imitation.success_classifier import HeldOut, SuccessConfig, train_success
from robolearn.cli.main import main
from robolearn.data.reading.rewards import RewardConfig
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import CheckpointError, ConfigError
from robolearn.operations.success import judge_store
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run
from tests.episodes import IMAGE, TOOL, small_episode
from tests.learning_mocks import BLOCK, random_source


def frames(steps: int, bright: bool) -> np.ndarray:
    """Dark pictures; the last one is bright where the task was solved."""
    pictures = np.full((steps, 48, 40, 3), 20, dtype=np.uint8)
    pictures[-1] += np.uint8(200 if bright else 0)
    return pictures


def store_of(path: Path, bright: tuple[bool, ...]) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for k, one in enumerate(bright):
            episode = small_episode(k, image=True)
            block = dataclasses.replace(episode.streams[IMAGE], value=frames(12, one))
            outcome = dataclasses.replace(episode.meta.outcome, success=False, terminal=False)
            meta = dataclasses.replace(episode.meta, outcome=outcome)
            streams = {**episode.streams, IMAGE: block}
            ended = np.zeros(12, dtype=np.bool_)
            writer.append(dataclasses.replace(episode, meta=meta, streams=streams, terminal=ended))
    return EpisodeStore.open(path)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    labels = [k % 2 == 0 for k in range(12)]
    config = SuccessConfig(signal=IMAGE, side=8, width=4, epochs=15, shift_px=0, lr=0.01)
    trained = train_success([frames(1, one)[0] for one in labels], labels, config)
    folder = tmp_path_factory.mktemp("classifier")
    trained.save(folder)
    assert trained.held_out.errors == 0
    assert isinstance(trained.held_out, HeldOut)
    return folder


def test_pictures_decide_rewards_and_the_error_travels(
    tmp_path: Path, classifier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = store_of(tmp_path / "s", (True, False, True, False))
    assert main(["data", "judge", str(store.path), str(classifier)]) == 0
    assert "2 of 4 episodes judged are a success; 0 left alone" in capsys.readouterr().out
    store = EpisodeStore.open(store.path)
    assert [i.success for i in store.list()] == [True, False, True, False]
    config = DataConfig((TOOL,), reward=RewardConfig("success"))
    source = StoreSource(store, config)
    assert [bool(e.done[-1]) for e in source.episodes(False)] == [True, False, True, False]
    assert len(source.annotated) == 4
    assert all("held-out successes recognised" in why for why in source.annotated)
    with pytest.raises(ConfigError, match="annotated before: nothing to judge"):
        judge_store(store.path, classifier)


def test_what_a_person_said_stays(tmp_path: Path, classifier: Path) -> None:
    store = store_of(tmp_path / "s", (True, True))
    words = ["data", "note", str(store.path), store.ids()[0], "--outcome", "failure"]
    assert main(words) == 0
    judged = judge_store(store.path, classifier)
    assert (judged.successes, judged.failures, judged.left) == ((store.ids()[1],), (), 1)
    assert not EpisodeStore.open(store.path).list()[0].success


def test_what_cannot_be_judged_is_said(tmp_path: Path, classifier: Path) -> None:
    blind = EpisodeStore.create(tmp_path / "blind")
    with blind.writer() as writer:
        writer.append(small_episode(0))
    with pytest.raises(ConfigError, match=f"'{IMAGE}', which 1 of 1 episodes"):
        judge_store(blind.path, classifier)
    with pytest.raises(CheckpointError, match="holds no success classifier"):
        judge_store(blind.path, tmp_path)


def test_a_run_says_who_told_it_how_episodes_ended(tmp_path: Path) -> None:
    source = dataclasses.replace(random_source(), annotated=("by hand", "classifier", "by hand"))
    flow = FlowConfig(horizon=4, execute=2, width=16, blocks=1, batch_size=8)
    data = DataConfig((TOOL, BLOCK))
    fit = FitConfig(steps=1, warmup=1)
    train(Experiment("flow", data, flow, fit), source, tmp_path / "run", cache_dir=tmp_path)
    said = load_run(tmp_path / "run").provenance["annotated_outcomes"]
    assert said == {"by hand": 2, "classifier": 1}
