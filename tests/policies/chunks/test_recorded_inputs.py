"""A recorded deployment, read through the dataset, shows the policy the very same bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from policies.chunks.request import request_tensors
from robolearn.agents.chunk import ChunkAgent
from robolearn.contracts import PolicySpec
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.inference.local import InProcessInference
from robolearn.learning import BatchSpec
from robolearn.pusht import BLOCK, TOOL
from robolearn.runtime import run_episode
from robolearn.types import Condition, PolicyInput, PolicyOutput
from sim.adapters.pusht.gym_pusht import SPEC, GymPushTEnv

POLICY = PolicySpec(SPEC.task_space([TOOL, BLOCK]), n_obs=3, horizon=8, execute=4)


@dataclass
class Pushing:
    """Walks towards the block; remembers what it was asked."""

    spec: PolicySpec = POLICY
    requests: list[PolicyInput] = field(default_factory=list)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        self.requests.append(request)
        tool, block = request.observations[TOOL][:, -1], request.observations[BLOCK][:, -1, :2]
        share = np.linspace(0.1, 0.8, self.spec.horizon)[:, None]
        actions = tool[:, None, None] + share * (block - tool)[:, None, None]
        return PolicyOutput(np.repeat(actions, n, axis=1), np.zeros((1, n)), request.t_ns)


def test_the_dataset_repeats_what_the_agent_saw(tmp_path: Path) -> None:
    store, env, policy = EpisodeStore.create(tmp_path / "store"), GymPushTEnv(), Pushing()
    condition = Condition("c", 3, {TOOL: (0.25, 0.1), BLOCK: (0.3, 0.3, 1.0)})
    recorder = EpisodeRecorder(store, spec=SPEC, kind="deployment")
    try:
        run_episode(
            env,
            ChunkAgent(POLICY, SPEC, name="pushing"),
            InProcessInference(policy, period_ns=100_000_000),
            [recorder],
            condition,
            max_steps=21,
            task="pusht",
        )
    finally:
        recorder.close()
        env.close()
    source = StoreSource(store, DataConfig((TOOL, BLOCK), kinds=("deployment",)))
    dataset = EpisodeDataset(flatten(source), BatchSpec(3, 8, 1), 0)
    episode = store.read(source.ids[0])
    assert len(policy.requests) == 6
    moved = 0
    for request in policy.requests:
        (tick,) = np.flatnonzero(episode.tick_t_ns == request.t_ns[0])
        batch = dataset.gather(np.array([tick]))
        seen = request_tensors(request, POLICY)
        for name in (TOOL, BLOCK):
            np.testing.assert_array_equal(batch.observations[name].numpy(), seen[name].numpy())
        moved += len(np.unique(seen[TOOL].numpy()))
    assert moved > 18  # The history does move, so that a shift by a tick would be found.
