"""A recorded episode read through the dataset gives the bits that the policy saw."""

import numpy as np
import pytest

from robolearn.agents.chunk import ChunkAgent
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.inference.local import InProcessInference
from robolearn.learning import BatchSpec
from robolearn.runtime import run_episode
from robolearn.types import Observation, Sample
from tests.mocks import (
    CONDITION,
    PERIOD_NS,
    POLICY_SPEC,
    SPEC,
    TOOL,
    PointEnv,
    WalkPolicy,
)


class LateEnv(PointEnv):
    """The newest sample at a tick is 1.4 periods old, as from a slow tracker."""

    def observe(self):
        late = self.t_ns - round(1.4 * PERIOD_NS)
        return Observation(self.t_ns, {TOOL: Sample(late, np.sin([1e-9 * late, 2e-9 * late]))})

    def drain(self):
        batch = super().drain()
        late = self.t_ns - PERIOD_NS - round(1.4 * PERIOD_NS)
        block = batch.signals[TOOL]
        value = np.sin([[1e-9 * late, 2e-9 * late]])
        signals = {TOOL: block.__class__(np.array([late]), value, block.valid)}
        return batch.__class__(signals, batch.sent)


class Remembering(WalkPolicy):
    def __init__(self):
        super().__init__()
        self.requests = []

    def sample(self, request, n=1):
        self.requests.append(request)
        return super().sample(request, n)


@pytest.mark.parametrize("env", [PointEnv, LateEnv])
def test_the_dataset_gives_what_the_policy_saw(tmp_path, env):
    store, policy = EpisodeStore.create(tmp_path / "store"), Remembering()
    agent = ChunkAgent(POLICY_SPEC, SPEC, name="walk", execute=3, lead_ticks=1)
    with EpisodeRecorder(store, spec=SPEC, kind="deployment") as recorder:
        run_episode(
            env(),
            agent,
            InProcessInference(policy, delay_ticks=1),
            [recorder],
            CONDITION,
            max_steps=20,
            task="walk",
        )
    source = StoreSource(store, DataConfig((TOOL,), kinds=("deployment",)))
    dataset = EpisodeDataset(flatten(source), BatchSpec(2, 16, 4), seed=0)
    ticks = store.read(recorder.saved[0]).tick_t_ns
    assert len(policy.requests) >= 5
    for request in policy.requests:
        row = int(np.flatnonzero(ticks == request.t_ns[0])[0])
        batch = dataset.gather(np.array([row]))
        seen = request.observations[TOOL].astype(np.float32)
        assert np.array_equal(batch.observations[TOOL].numpy(), seen)
