"""robolearn train: from a store to a run directory, resume, overrides, errors."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import numpy as np
import pytest

from policies.registry import load_policy
from robolearn.cli.main import main
from robolearn.data.episode import EpisodeKind, EpisodeMeta, episode_from_arrays
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.store import EpisodeStore
from robolearn.learning import Batch, BatchSpec
from robolearn.spec import EmbodimentSpec
from robolearn.types import Condition, Outcome
from tests.learning_mocks import BLOCK, SPACE, TOOL, random_episode

CONFIG = """
policy: flow
data: {observations: [tool/xy_table, block/pose]}
algorithm: {horizon: 4, execute: 2, width: 16, blocks: 1, batch_size: 8}
fit: {steps: 8, warmup: 2, log_every: 2, checkpoint_every: 4}
"""


def add(store: EpisodeStore, name: str, kind: EpisodeKind, seed: int) -> None:
    arrays = random_episode(name, 15, seed)
    meta = EpisodeMeta(
        kind=kind,
        task="pusht",
        embodiment=EmbodimentSpec("mock", SPACE.observations, SPACE.actions, 10.0),
        condition=Condition(name, seed, {}),
        outcome=Outcome(False, 0.5, 0.5, truncated=True, reason="time_limit"),
    )
    episode = episode_from_arrays(
        meta,
        {name: rows[np.arange(15)] for name, rows in arrays.observations.items()},
        {TOOL: arrays.actions},
        progress=np.asarray(arrays.reward),
    )
    with store.writer() as writer:
        writer.append(episode)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    store = EpisodeStore.create(tmp_path / "store")
    for i, kind in enumerate(("demonstration", "scripted", "demonstration")):
        add(store, f"e{i}", kind, i)
    (tmp_path / "x.yaml").write_text(CONFIG)
    return tmp_path


def run(place: Path, *more: str, out: str = "run") -> int:
    paths = ("--config", f"{place}/x.yaml", "--store", f"{place}/store", "--out", f"{place}/{out}")
    return main(["train", *paths, *more])


def test_trains_resumes_and_reuses(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place, "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["episodes"] == 2
    assert first["windows"] == 30
    assert not first["reused"]
    assert load_policy(place / "run").spec.horizon == 4
    assert run(place, "--json", "--resume") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["reused"]
    assert again["policy_hash"] == first["policy_hash"]
    # A run that has begun knows its own experiment.
    alone = ["train", "--out", f"{place}/run", "--store", f"{place}/store", "--json"]
    assert main([*alone, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["policy_hash"] == first["policy_hash"]
    assert main(alone) == 2
    assert "only with --resume" in capsys.readouterr().err
    assert run(place) == 2
    assert "go on with --resume" in capsys.readouterr().err


def test_it_says_how_far_the_cache_and_the_steps_are(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("robolearn.cli.shared.fitting.LINE_EVERY_S", 0.0)
    assert run(place, "--images", "store") == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines[1:3] == ["cache 1/2 episodes", "cache 2/2 episodes"]
    assert lines[3].startswith("step 1/8 loss/flow ")
    assert run(place, out="again") == 0
    assert "cache 1/2" not in capsys.readouterr().out, "the copy is used again"


def test_a_budget_shows_one_total_that_is_the_one_it_runs(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("robolearn.cli.shared.fitting.LINE_EVERY_S", 0.0)
    budget = ("--fit.max-minutes", "60", "--fit.calibration", "2")
    assert run(place, *budget) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    steps = [line.split(" loss")[0] for line in lines if line.startswith("step ")]
    assert steps[:3] == ["step 1 (timing the budget)", "step 2/8", "step 3/8"]


def test_where_training_never_began_there_is_no_run(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def die(*args: object, **more: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("robolearn.training.experiment.fit", die)
        assert run(place) == 1
    assert (place / "run" / "provenance.json").is_file()
    assert run(place, "--seed", "5") == 0
    assert "trained: 8 steps" in capsys.readouterr().out
    assert run(place, "--seed", "5") == 2
    assert "holds a run already" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_before_the_first_checkpoint_loses_nothing(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    forward = EpisodeDataset.batch

    def press(self: EpisodeDataset, step: int) -> Batch:
        if step == 2:
            signal.raise_signal(number)
        return forward(self, step)

    assert run(place, out="whole") == 0
    with monkeypatch.context() as pressed:
        pressed.setattr(EpisodeDataset, "batch", press)
        assert run(place) == 130
    said = capsys.readouterr().out
    assert f"stopped after step 3, which '{place}/run' keeps; --resume goes on" in said
    assert run(place) == 2, "there is a run to go on with"
    assert run(place, "--resume") == 0
    for name in ("weights.safetensors", "spec.json"):
        assert (place / "run" / name).read_bytes() == (place / "whole" / name).read_bytes()


def test_one_training_at_a_time_writes_a_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "run").mkdir()
    lock = StoreLock(place / "run")
    assert run(place) == 2
    assert "is being written by" in capsys.readouterr().err
    lock.release()
    assert run(place) == 0


def test_two_runs_are_the_same_bits(place: Path) -> None:
    assert run(place, "--json", out="a") == 0
    assert run(place, "--json", out="b") == 0
    assert (place / "a/weights.safetensors").read_bytes() == (
        place / "b/weights.safetensors"
    ).read_bytes()


def test_overrides_reach_the_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place, "--fit.steps", "3", "--algorithm.lr", "0.01", "--seed", "5") == 0
    out = capsys.readouterr().out
    assert "trained: 3 steps" in out
    text = (place / "run" / "config.yaml").read_text()
    assert "lr: 0.01" in text
    assert "seed: 5" in text
    assert run(place, "--resume") == 2
    assert "fit.steps: now 8, there 3" in capsys.readouterr().err


def test_new_data_is_another_experiment(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(place) == 0
    add(EpisodeStore.open(place / "store"), "new", "demonstration", 9)
    assert run(place, "--resume") == 2
    assert "data_hash" in capsys.readouterr().err


def test_unattended_episodes_do_not_change_a_run(place: Path) -> None:
    source = StoreSource(EpisodeStore.open(place / "store"), DataConfig((TOOL, BLOCK)))
    before = source.content_hash
    assert len(source.ids) == 2
    everything = DataConfig((TOOL, BLOCK), kinds=("demonstration", "scripted"))
    assert len(StoreSource(EpisodeStore.open(place / "store"), everything).ids) == 3
    assert StoreSource(EpisodeStore.open(place / "store"), everything).content_hash != before
    add(EpisodeStore.open(place / "store"), "more", "scripted", 7)
    again = StoreSource(EpisodeStore.open(place / "store"), DataConfig((TOOL, BLOCK)))
    assert again.content_hash == before


def test_the_dataset_shows_what_was_recorded(place: Path) -> None:
    """Windows of a stored episode are the observations at its ticks, in float32."""
    store = EpisodeStore.open(place / "store")
    source = StoreSource(store, DataConfig((TOOL, BLOCK)))
    dataset = EpisodeDataset(flatten(source), BatchSpec(2, 3, 4), 0)
    episode = store.read(source.ids[1])
    batch = dataset.gather(np.array([15, 20]))
    seen = episode.observed(BLOCK).astype(np.float32)
    np.testing.assert_array_equal(batch.observations[BLOCK][0].numpy(), seen[[0, 0]])
    np.testing.assert_array_equal(batch.observations[BLOCK][1].numpy(), seen[[4, 5]])
    np.testing.assert_array_equal(
        batch.actions[1].numpy(), episode.action[TOOL][5:8].astype(np.float32)
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train"], "--config is missing"),
        (["train", "--config", "nowhere.yaml"], "no config file 'nowhere.yaml'"),
        (["train", "--config", "{}/x.yaml"], "--store STORE is missing"),
        (["train", "--config={}/x.yaml", "--store", "{}/store"], "--out RUN is missing"),
        (["train", "--config={}/x.yaml", "--store", "{}/no", "--out", "{}/r"], "no episode store"),
    ],
)
def test_bad_calls_are_one_line_and_exit_2(
    place: Path,
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([a.format(place) for a in arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_no_matching_episodes_and_unknown_signals(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(place, "--data.kinds", "deployment") == 2
    assert "scripted of task" in capsys.readouterr().err
    assert run(place, "--data.observations", "tool/xy") == 2
    assert "has no signal 'tool/xy'. Did you mean 'tool/xy_table'?" in capsys.readouterr().err


def test_a_typo_in_the_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "x.yaml").write_text(CONFIG.replace("steps: 8", "stepps: 8"))
    assert run(place) == 2
    assert "unknown key 'stepps'. Did you mean 'steps'?" in capsys.readouterr().err
