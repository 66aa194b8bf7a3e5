"""Real-time chunking: the mask, the estimate of the delay, what the agent asks for."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.realtime import DelayEstimate, continuation, soft_mask
from robolearn.errors import InferenceError, SpecMismatchError
from robolearn.inference.codec import decode, encode_request, request_from
from robolearn.inference.local import InProcessInference, stack_requests
from robolearn.runtime import run_episode
from tests.mocks import CONDITION, POLICY_SPEC, SPEC, TOOL, Listener, PointEnv, WalkPolicy


@given(st.integers(1, 40), st.data())
def test_the_mask_is_one_then_falls_then_nothing(horizon, data):
    planned = data.draw(st.integers(0, horizon))
    committed = data.draw(st.integers(0, planned))
    weight = soft_mask(horizon, committed, planned)
    assert np.all(weight[:committed] == 1.0)
    assert np.all(weight[planned:] == 0.0)
    assert np.all(np.diff(weight) <= 0.0)
    between = weight[committed:planned]
    assert np.all((between > 0.0) & (between < 1.0))


def test_the_mask_by_hand():
    # H = 5, d = 2, s = 1: c = (4 - i) / 3 for i = 2, 3.
    c = np.array([2 / 3, 1 / 3])
    soft = c * (np.exp(c) - 1) / (np.e - 1)
    np.testing.assert_allclose(soft_mask(5, 2, 4), [1, 1, *soft, 0], rtol=1e-12)


def test_one_slow_answer_is_forgotten():
    delay = DelayEstimate(3)
    assert delay.ticks == 3
    delay.add(9)
    for _ in range(8):
        delay.add(1)
    assert delay.ticks == 1


def test_a_plan_that_is_shorter_than_the_delay_is_all_committed():
    prefix, weight = continuation(np.ones((2, 3)), 6, 4)
    assert weight.tolist() == [1, 1, 0, 0]
    assert prefix[:2].tolist() == [[1] * 3] * 2


@dataclasses.dataclass
class Asked(WalkPolicy):
    """Keeps the requests."""

    requests: list = dataclasses.field(default_factory=list)

    def sample(self, request, n=1):
        self.requests.append(request)
        return super().sample(request, n)


def drive(delay, embodiment=SPEC, ticks=40, lead=0):
    env, listener, policy = PointEnv(), Listener(), Asked()
    env.spec = embodiment
    period = round(1e9 / embodiment.rate_hz)
    env.advance = lambda: setattr(env, "t_ns", env.t_ns + period)
    agent = ChunkAgent(
        POLICY_SPEC, embodiment, name="walk", execute=8, lead_ticks=lead, realtime=True
    )
    inference = InProcessInference(policy, delay, period)
    run_episode(env, agent, inference, [listener], CONDITION, max_steps=ticks)
    return policy.requests, [t.command for t in listener.ticks]


def test_a_request_carries_what_is_left_of_the_plan():
    requests, commands = drive(delay=3, lead=3)
    first, second = requests[:2]
    assert not first.prefix_weight.any()
    assert second.prefix_weight.shape == (1, 16)
    # The first plan begins at tick 3. Asked at tick 11, answered at tick 14: ticks 11, 12, 13 are
    # executed from the old plan.
    assert np.count_nonzero(second.prefix_weight == 1.0) == 3
    assert np.count_nonzero(second.prefix_weight) == 8
    executed = [c.action[TOOL] for c in commands[11:14]]
    np.testing.assert_array_equal(second.prefix[0, :3], executed)


def test_a_robot_may_tick_faster_than_the_policy():
    fast = dataclasses.replace(SPEC, rate_hz=50.0)
    requests, commands = drive(delay=7, embodiment=fast, ticks=120, lead=7)
    assert {c.source for c in commands[7:]} == {"policy"}
    # 8 actions of 100 ms pass between requests, each lasting five ticks of 20 ms.
    times = [int(r.t_ns[0]) for r in requests]
    # The first plan begins when it comes, after seven ticks.
    assert np.diff(times).tolist() == [940_000_000, 800_000_000]
    # 140 ms of delay touch two actions.
    assert np.count_nonzero(requests[1].prefix_weight == 1.0) == 2
    seen = requests[1].observations[TOOL][0, :, 0]
    by_tick = [c.action[TOOL][0] for c in commands]
    # The tool reaches a command within its tick: tick k shows the command of tick k - 1.
    np.testing.assert_allclose(seen, [by_tick[41], by_tick[46]])


def test_other_rates_are_refused():
    with pytest.raises(SpecMismatchError, match="control rate"):
        ChunkAgent(POLICY_SPEC, dataclasses.replace(SPEC, rate_hz=5.0), name="walk")


def test_prefixes_survive_the_wire_and_the_batch():
    request = drive(delay=3, lead=3)[0][1]
    again = request_from(decode(encode_request(request)))
    np.testing.assert_array_equal(again.prefix, request.prefix)
    np.testing.assert_array_equal(again.prefix_weight, request.prefix_weight)
    assert stack_requests([request, again]).prefix_weight.shape == (2, 16)
    with pytest.raises(InferenceError, match="prefix"):
        stack_requests([request, dataclasses.replace(request, prefix=None)])
