"""Instructions: a policy of two tasks does what it is told, from the store to the loop."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from eval.trials.instruments import InstructedAgent
from policies.chunks.base import ChunkConfig
from policies.chunks.mirror import MirrorConfig
from policies.imitation.act import ActConfig
from policies.imitation.bc_rnn import BcRnnConfig
from policies.imitation.flow import FlowConfig
from policies.registry import PolicyConfig, load_policy
from robolearn.agents.chunk import ChunkAgent
from robolearn.data.episode import Episode, episode_from_arrays
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError, SpecMismatchError
from robolearn.inference.local import InProcessInference
from robolearn.inference.onnx import export_onnx
from robolearn.instructions import TaskTable, task_table
from robolearn.runtime import run_episode
from robolearn.training.experiment import Experiment, TrainResult, train
from robolearn.training.loop import FitConfig
from tests.episodes import TOOL, small_episode
from tests.mocks import CONDITION, SPEC, PointEnv, request_at

LEFT, RIGHT = "Go left.", "Go right."
FLOW = FlowConfig(
    n_obs=1, horizon=2, execute=1, width=32, blocks=1, batch_size=32, lr=3e-3, ema=0.9
)


def told(text: str, seed: int) -> Episode:
    """The same observations for both tasks; only what was asked for tells them apart."""
    base = small_episode(seed)
    seen = np.random.default_rng(seed % 2).uniform(0.1, 0.4, (12, 2))
    actions = np.tile([0.1 if text == LEFT else 0.4, 0.25], (12, 1))
    meta = dataclasses.replace(base.meta, task_text=text, embodiment=SPEC)
    return episode_from_arrays(meta, {TOOL: seen}, {TOOL: actions}, progress=base.progress)


@pytest.fixture
def store(tmp_path: Path) -> EpisodeStore:
    made = EpisodeStore.create(tmp_path / "store")
    with made.writer() as writer:
        for seed, text in enumerate((LEFT, LEFT, RIGHT, RIGHT)):
            writer.append(told(text, seed))
    return made


class Told(StoreSource):
    """A store's episodes with other instructions."""

    def __init__(self, store: EpisodeStore, data: DataConfig, texts: Sequence[str]) -> None:
        super().__init__(store, data)
        self._texts = tuple(texts)

    @property
    def texts(self) -> tuple[str, ...]:
        return self._texts


def trained(
    store: EpisodeStore,
    folder: Path,
    config: ChunkConfig,
    name: str = "flow",
    steps: int = 150,
    texts: Sequence[str] | None = None,
    held_out: float = 0.0,
) -> TrainResult:
    assert isinstance(config, PolicyConfig)
    data = DataConfig((TOOL,), text=True, held_out=held_out)
    source = StoreSource(store, data) if texts is None else Told(store, data, texts)
    fit = FitConfig(steps, warmup=5)
    return train(
        Experiment(name, data, config, fit),
        source,
        folder / "run",
        cache_dir=folder / "cache",
    )


def test_it_does_what_it_is_told(store: EpisodeStore, tmp_path: Path) -> None:
    policy = load_policy(trained(store, tmp_path, FLOW, held_out=0.25).run_dir)
    assert policy.spec.task_space.texts == (LEFT, RIGHT)
    for text, goal in ((LEFT, 0.1), ("  go RIGHT", 0.4)):
        env = PointEnv()
        agent = InstructedAgent(ChunkAgent(policy.spec, SPEC, name="p"), text)
        run_episode(env, agent, InProcessInference(policy), [], CONDITION, max_steps=5)
        assert abs(env.xy[0] - goal) < 0.05
    asked = request_at(0)
    one = dataclasses.replace(asked, observations={TOOL: asked.observations[TOOL][:, -1:]})
    with pytest.raises(SpecMismatchError, match=r"not told to do 'Go up'.*Go left.*Go right"):
        policy.sample(dataclasses.replace(one, task=("Go up",)))
    with pytest.raises(SpecMismatchError, match="told nothing in training"):
        policy.sample(one)
    with pytest.raises(ConfigError, match="reads instructions"):
        export_onnx(policy, tmp_path / "x.onnx", "")


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("act", ActConfig(n_obs=1, horizon=2, execute=1, width=16, blocks=1, heads=2, latent=2)),
        ("bc_rnn", BcRnnConfig(n_obs=2, horizon=2, execute=1, width=16, blocks=1)),
        (
            "flow",
            dataclasses.replace(
                FLOW, mirror=MirrorConfig((0.25, 0.25), 90.0, 0.0, positions=(TOOL,))
            ),
        ),
    ],
)
def test_others_read_as_well(
    name: str, config: ChunkConfig, store: EpisodeStore, tmp_path: Path
) -> None:
    run = trained(store, tmp_path, config, name, steps=6).run_dir
    policy = load_policy(run)
    history = {TOOL: np.full((1, config.n_obs, 2), 0.25)}
    asked = dataclasses.replace(request_at(0), observations=history, task=(LEFT,))
    left = policy.sample(asked, n=2).actions
    assert not np.array_equal(
        left, policy.sample(dataclasses.replace(asked, task=(RIGHT,)), n=2).actions
    )


def test_what_cannot_be_told_apart_is_explained(store: EpisodeStore, tmp_path: Path) -> None:
    assert task_table([RIGHT, LEFT, "go  left"]) == (LEFT, RIGHT)
    assert TaskTable((LEFT, RIGHT))(["go left", RIGHT]).tolist() == [[1, 0], [0, 1]]
    with pytest.raises(DataError, match="have no instruction"):
        task_table([LEFT, " "])
    with pytest.raises(ConfigError, match="come without instructions"):
        trained(store, tmp_path, FLOW, texts=())
    with pytest.raises(DataError, match="3 instructions for 4 episodes"):
        trained(store, tmp_path, FLOW, texts=(LEFT, LEFT, RIGHT))
    assert not (tmp_path / "run").exists()
