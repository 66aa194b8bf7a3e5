"""Pictures and rotations, too, come back from a recording as the bits that the policy saw."""

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
from robolearn.representation import Representation, RepresentationConfig, RepresentedPolicy
from robolearn.runtime import run_episode
from robolearn.spec import EmbodimentSpec, SignalSpec, TaskSpace
from robolearn.training.batch_loader import represented
from robolearn.types import Observation, Sample, SampleBatch, SampleBlock
from tests.mocks import ACTION, CONDITION, PERIOD_NS, SIGNAL, TOOL, PointEnv, WalkPolicy

POSE, CAMERA = "tool/pose", "top/image"
SPEC = EmbodimentSpec(
    "posed",
    (
        SIGNAL,
        SignalSpec(POSE, (7,), "m, quaternion wxyz", 10.0, frame="table"),
        SignalSpec(CAMERA, (6, 8, 3), "", 10.0, dtype="uint8"),
    ),
    (ACTION,),
    10.0,
)
SPACE = TaskSpace(SPEC.signals, SPEC.actions, 10.0)


def pose_at(t_ns: int) -> np.ndarray:
    """A place and a rotation whose numbers need all of their bits."""
    angle = 0.7e-9 * t_ns
    q = np.array([np.cos(angle), 0.6 * np.sin(angle), 0.8 * np.sin(angle), 0.0])
    return np.concatenate([np.sin([angle, 2 * angle, 3 * angle]), q if q[0] >= 0 else -q])


def picture_at(t_ns: int) -> np.ndarray:
    return np.random.default_rng(t_ns).integers(0, 256, (6, 8, 3), dtype=np.uint8)


class PosedEnv(PointEnv):
    """With a pose, and a camera whose newest picture is 1.4 periods old."""

    spec = SPEC

    def observe(self):
        late = self.t_ns - round(1.4 * PERIOD_NS)
        samples = dict(super().observe().samples)
        samples[POSE] = Sample(self.t_ns, pose_at(self.t_ns))
        samples[CAMERA] = Sample(late, picture_at(late))
        return Observation(self.t_ns, samples)

    def drain(self):
        batch, t_ns = super().drain(), self.t_ns - PERIOD_NS
        late = t_ns - round(1.4 * PERIOD_NS)
        there = np.array([True])
        signals = dict(batch.signals)
        signals[POSE] = SampleBlock(np.array([t_ns]), pose_at(t_ns)[None], there)
        signals[CAMERA] = SampleBlock(np.array([late]), picture_at(late)[None], there)
        return SampleBatch(signals, batch.sent)


class Remembering(WalkPolicy):
    def __init__(self, spec):
        super().__init__(spec=spec)
        self.requests = []

    def sample(self, request, n=1):
        self.requests.append(request)
        output = super().sample(request, n)
        output.actions[:] = 0.001  # Relative actions: a millimetre each.
        return output


def test_the_dataset_gives_the_pictures_and_rotations_that_the_policy_saw(tmp_path):
    config = RepresentationConfig({TOOL: "relative"}, six_d=True)
    seen = Representation(config, SPACE)
    inner = Remembering(PolicySpec(seen.inner, n_obs=2, horizon=16, execute=4))
    policy = RepresentedPolicy(inner, seen)
    store = EpisodeStore.create(tmp_path / "store")
    with EpisodeRecorder(store, spec=SPEC, kind="deployment") as recorder:
        run_episode(
            PosedEnv(),
            ChunkAgent(policy.spec, SPEC, name="walk", execute=3, lead_ticks=1, realtime=True),
            InProcessInference(policy, delay_ticks=1),
            [recorder],
            CONDITION,
            max_steps=20,
            task="walk",
        )
    source = StoreSource(store, DataConfig((TOOL, POSE, CAMERA), kinds=("deployment",)))
    dataset = EpisodeDataset(flatten(source), BatchSpec(2, 16, 4), seed=0)
    ticks = store.read(recorder.saved[0]).tick_t_ns
    assert len(inner.requests) >= 5
    for request in inner.requests:
        row = int(np.flatnonzero(ticks == request.t_ns[0])[0])
        lesson = represented(dataset.gather(np.array([row])), seen)
        given = request_tensors(request, inner.spec)
        assert given[POSE].shape == (1, 2, 9)
        for name in (TOOL, POSE, CAMERA):
            assert lesson.observations[name].dtype == given[name].dtype
            np.testing.assert_array_equal(lesson.observations[name].numpy(), given[name].numpy())
    pictures = np.stack([r.observations[CAMERA][0, -1] for r in inner.requests])
    assert len(np.unique(pictures.reshape(len(pictures), -1), axis=0)) == len(pictures)
