"""Known delays of commands and observations: what is tracked, recorded and learnt is in time."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field

import numpy as np
import pytest

from robolearn.agents.chunk import ChunkAgent
from robolearn.calibration.latency import TimeSeries, latency
from robolearn.contracts import PolicySpec
from robolearn.data.reading.cache import flatten
from robolearn.data.reading.dataset import EpisodeDataset
from robolearn.data.reading.selection import DataConfig, StoreSource
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, DataError
from robolearn.inference.local import InProcessInference
from robolearn.learning import BatchSpec
from robolearn.runtime import run_episode
from robolearn.spec import ActionSpec, TaskSpace
from robolearn.timing.latencies import KEY, Latencies, blend, differences, in_effect, trained_with
from robolearn.types import Observation, PolicyInput, PolicyOutput, Sample, SampleBlock
from tests.mocks import CONDITION, PERIOD_NS, POLICY_SPEC, SPEC, TOOL, PointEnv

COMMAND_S, SEEN_S = 0.13, 0.06
POLICY = dataclasses.replace(POLICY_SPEC, horizon=16, execute=8)


def reference(t_ns):
    """Where the tool should be at ``t_ns [n]``: ``[n, 2]``."""
    t = np.atleast_1d(t_ns) * 1e-9
    x = 0.2 + 0.05 * np.sin(2 * np.pi * 0.31 * t) + 0.03 * np.sin(2 * np.pi * 0.53 * t)
    return np.stack([x, 0.2 + 0.06 * np.cos(2 * np.pi * 0.4 * t)], axis=1)


class SlowEnv(PointEnv):
    """The arm is where it was told to be ``COMMAND_S`` ago; samples arrive ``SEEN_S`` after their
    capture and carry the time of arrival, less ``corrected_s``.
    """

    def __init__(self, corrected_s: float) -> None:
        super().__init__()
        self.corrected_ns, self.new = round(1e9 * corrected_s), []

    def observe(self):
        sent_ns = np.array([c.due_ns for c in self.commands] or [self.t_ns])
        sent = np.array([c.action[TOOL] for c in self.commands] or [self.xy])
        captured = self.t_ns - round(1e9 * SEEN_S)
        at = captured - round(1e9 * COMMAND_S)
        xy = np.array([np.interp(at, sent_ns, v) for v in sent.T])
        self.new = [Sample(self.t_ns - self.corrected_ns, xy)]
        return Observation(self.t_ns, {TOOL: self.new[0]})

    def drain(self):
        t_ns = np.array([s.t_ns for s in self.new])
        block = SampleBlock(t_ns, np.stack([s.value for s in self.new]), np.ones(1, np.bool_))
        return dataclasses.replace(super().drain(), signals={TOOL: block})


@dataclass
class Tracks:
    """Answers with the reference at the times that its actions are meant for."""

    spec: PolicySpec = POLICY
    requests: list[PolicyInput] = field(default_factory=list)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        self.requests.append(request)
        chunk = reference(request.t_ns[0] + PERIOD_NS * np.arange(self.spec.horizon))
        return PolicyOutput(np.repeat(chunk[None, None], n, axis=1), np.zeros((1, n)), request.t_ns)


def tracked(folder, *, ahead_s, corrected_s, told, delay=2):
    """Run and record 12 s; returns the store, the episode, and what the policy was asked."""
    store, policy = EpisodeStore.create(folder), Tracks()
    agent = ChunkAgent(
        POLICY, SPEC, name="tracks", lead_ticks=delay, realtime=True, command_latency_s=ahead_s
    )
    with EpisodeRecorder(store, spec=SPEC, kind="deployment") as recorder:
        run_episode(
            SlowEnv(corrected_s),
            agent,
            InProcessInference(policy, delay_ticks=delay),
            [recorder],
            CONDITION,
            max_steps=120,
            provenance={KEY: told.to_json()},
        )
    return store, store.read(recorder.saved[0]), policy.requests


def lag_s(episode):
    """By how much the recorded motion is behind the reference."""
    stream = episode.streams[TOOL]
    fine = np.arange(stream.t_ns[0] - 10**9, stream.t_ns[-1] + 10**9, 10**7)
    wanted = TimeSeries(fine * 1e-9, reference(fine))
    # The first plan is an arm's that stands: it begins when it comes, and the reference does not
    # wait. From the second one on (tick 13) the motion is in time.
    moved = TimeSeries(stream.t_ns[20:] * 1e-9, stream.value[20:])
    return latency(wanted, moved, low_s=-0.3, high_s=0.5).latency_s


@pytest.mark.parametrize(
    ("ahead_s", "corrected_s", "late_s"),
    [(COMMAND_S, SEEN_S, 0.0), (0.0, SEEN_S, COMMAND_S), (0.0, 0.0, COMMAND_S + SEEN_S)],
)
def test_what_is_compensated_is_in_time_and_what_is_not_is_late(
    tmp_path, ahead_s, corrected_s, late_s
):
    told = Latencies(ahead_s, {TOOL: corrected_s})
    _, episode, _ = tracked(tmp_path / "s", ahead_s=ahead_s, corrected_s=corrected_s, told=told)
    assert lag_s(episode) == pytest.approx(late_s, abs=2e-3)


def test_training_reads_commands_when_they_took_effect_and_inputs_bit_for_bit(tmp_path):
    told = Latencies(COMMAND_S, {TOOL: SEEN_S})
    store, episode, requests = tracked(
        tmp_path / "s", ahead_s=COMMAND_S, corrected_s=SEEN_S, told=told
    )
    source = StoreSource(store, DataConfig((TOOL,), kinds=("deployment",)))
    assert source.latencies == told
    dataset = EpisodeDataset(flatten(source), BatchSpec(2, 16, 4), seed=0)
    assert len(requests) > 10
    for request in requests:
        row = int(np.flatnonzero(episode.tick_t_ns == request.t_ns[0])[0])
        batch = dataset.gather(np.array([row]))
        seen = request.observations[TOOL].astype(np.float32)
        assert np.array_equal(batch.observations[TOOL].numpy(), seen)
    # Sent ahead, read back when it took effect: what the policy meant for that tick.
    meant = reference(episode.tick_t_ns)[20:]
    np.testing.assert_allclose(dataset.flat.actions[20:], meant, atol=2e-3)
    assert np.abs(episode.action[TOOL][20:] - meant).max() > 0.02
    # And seen as late as another cell would see it.
    later = StoreSource(store, DataConfig((TOOL,), kinds=("deployment",), latency_s={TOOL: 0.2}))
    assert later.latencies == Latencies(COMMAND_S, {TOOL: 0.2})
    moved = flatten(later).observations[TOOL]
    # A sample of a tick is 60 ms old, the newest one that is at least 200 ms old is two ticks more.
    np.testing.assert_array_equal(moved[2:], dataset.flat.observations[TOOL][:-2])


def test_prefixes_count_what_was_sent_ahead(tmp_path):
    told = Latencies()
    *_, requests = tracked(tmp_path / "s", ahead_s=COMMAND_S, corrected_s=SEEN_S, told=told)
    # Two ticks until the answer and two that were sent ahead of it are executed whatever it says.
    assert requests[2].prefix_weight is not None
    assert np.flatnonzero(requests[2].prefix_weight[0] == 1.0).tolist() == [0, 1, 2, 3]
    np.testing.assert_allclose(
        requests[2].prefix[0, :4], reference(requests[2].t_ns[0] + PERIOD_NS * np.arange(4))
    )


def test_turns_and_relative_actions_between_two_ticks():
    pose = ActionSpec("tool/pose", (7,))
    yaw = ActionSpec("tool/xyz_yaw", (4,))
    step = ActionSpec("tool/delta_pose", (6,), mode="relative")
    ticks = np.array([0, 100, 200], dtype=np.int64)
    poses = np.zeros((3, 7))
    poses[:, 3], poses[:, 6] = np.cos([0, 0.2, 0.4]), np.sin([0, 0.2, 0.4])
    found = in_effect(poses, ticks, pose, 50)
    np.testing.assert_allclose(found[:, 3], np.cos([0, 0.1, 0.3]), atol=1e-12)
    turns = np.array([[0, 0, 0, 3.1], [0, 0, 0, -3.1], [0, 0, 0, -3.0]], dtype=np.float64)
    assert np.abs(in_effect(turns, ticks, yaw, 50)[1, 3]) == pytest.approx(np.pi)
    steps = np.arange(18.0).reshape(3, 6)
    np.testing.assert_array_equal(in_effect(steps, ticks, step, 50), steps[[0, 0, 1]])
    space = TaskSpace((), (yaw, step), 10.0)
    first, second = np.r_[turns[0], steps[0]], np.r_[turns[1], steps[1]]
    mixed = blend(space, first, second, 0.5)
    assert np.abs(mixed[3]) == pytest.approx(np.pi)
    np.testing.assert_array_equal(mixed[4:], steps[0])


def test_bad_latencies_and_a_horizon_that_is_too_short_are_told():
    with pytest.raises(DataError, match=r"\[0, 10\) s"):
        Latencies(-0.1)
    with pytest.raises(DataError, match="what was written"):
        Latencies.of({KEY: {"command": 1}})
    assert Latencies.of({}) == Latencies()
    with pytest.raises(ConfigError, match="command latency"):
        ChunkAgent(POLICY, SPEC, name="x", execute=8, lead_ticks=6, command_latency_s=0.25)
    both = trained_with([Latencies(0.1, {"a/b": 0.2}), Latencies(0.0, {"a/b": 0.1})], {"c/d": 0.3})
    assert both == Latencies(0.1, {"a/b": 0.2, "c/d": 0.3})
    (line,) = differences(both, Latencies(0.0, {"a/b": 0.205}), ["a/b", "c/d"])
    assert line == "c/d: trained with 300 ms, here 0 ms"
