"""Temporal ensembling against a mean over remembered chunks; wrappers under simulated delays."""

import dataclasses

import numpy as np
import pytest

from robolearn.agents.ensembling import TemporalEnsemble
from robolearn.agents.execution import Execution
from robolearn.errors import ConfigError
from robolearn.inference.local import InProcessInference
from robolearn.runtime import run_episode
from robolearn.spec import ActionSpec, TaskSpace
from tests.contracts import AgentContract
from tests.mocks import (
    CONDITION,
    PERIOD_NS,
    POLICY_SPEC,
    SPACE,
    SPEC,
    TOOL,
    Listener,
    PointEnv,
    WalkPolicy,
)

HORIZON = POLICY_SPEC.horizon


@dataclasses.dataclass
class Noisy(WalkPolicy):
    """Chunks that disagree; keeps them."""

    answers: list = dataclasses.field(default_factory=list)

    def sample(self, request, n=1):
        output = super().sample(request, n)
        rng = np.random.default_rng(int(request.seed[0]))
        actions = output.actions + 0.05 * rng.uniform(size=output.actions.shape)
        self.answers.append((int(request.t_ns[0]), actions[0, 0]))
        return dataclasses.replace(output, actions=actions)


def drive(execution, delay, ticks=30):
    env, listener, policy = PointEnv(), Listener(), Noisy(step=0.0)
    agent = execution.agent(POLICY_SPEC, SPEC, "walk")
    inference = InProcessInference(policy, delay_ticks=delay)
    run_episode(env, agent, inference, [listener], CONDITION, max_steps=ticks)
    return policy.answers, listener.ticks


@pytest.mark.parametrize("delay", range(9))
def test_an_action_is_the_mean_of_the_chunks_that_had_arrived(delay):
    m = 0.3
    answers, ticks = drive(Execution(ensemble=m), delay)
    # Ticks held since a request do not count: the first chunk begins when it comes.
    held = [t.observation.t_ns for t in ticks if t.command.source == "hold"]
    waited = {t: sum(t <= h < t + delay * PERIOD_NS for h in held) for t, _ in answers}
    assert [t.command.source for t in ticks[:delay]] == ["hold"] * delay
    # One request is in flight at a time: the next is asked one tick after the answer.
    assert set(np.diff([t for t, _ in answers])) == {(delay + 1) * PERIOD_NS}
    for tick in ticks[delay:]:
        now = tick.observation.t_ns
        if tick.command.source == "hold":
            continue
        arrived = [(t, c) for t, c in answers if t + delay * PERIOD_NS <= now]
        at = [((now - t) // PERIOD_NS - waited[t], c) for t, c in arrived]
        there = [c[i] for i, c in at if i < HORIZON]
        weights = np.exp(-m * np.arange(len(there)))
        expected = (weights[:, None] * there).sum(axis=0) / weights.sum()
        np.testing.assert_allclose(tick.command.action[TOOL], expected, atol=1e-12)
    last = [(t, c) for t, c in answers if t + delay * PERIOD_NS <= now]
    assert len(last) > 1


@pytest.mark.parametrize("delay", range(9))
@pytest.mark.parametrize(
    "execution",
    [
        Execution(),
        Execution(execute=1),
        Execution(realtime_chunking=True),
        Execution(ensemble=0.01),
    ],
    ids=["chunks", "receding", "realtime", "ensemble"],
)
def test_every_wrapper_hides_a_delay_that_is_planned_for(execution, delay):
    _, ticks = drive(dataclasses.replace(execution, lead_ticks=delay), delay)
    sources = [t.command.source for t in ticks]
    expected = ["hold"] * delay + ["policy"] * (30 - delay)
    if delay == 8 and (execution.execute == 1 or execution.ensemble is not None):
        # Asked one tick after an answer (9), answered at 17; the next comes 17 ticks after that was
        # asked: a chunk of 16 actions is too short by one.
        expected[25] = "hold"
    assert sources == expected


def test_weights_by_hand():
    ensemble = TemporalEnsemble(SPACE, 3, np.log(2.0))
    first = ensemble.add(0, np.array([[0.0, 0.0], [3.0, 0.0], [6.0, 0.0]]))
    assert first[:, 0].tolist() == [0, 3, 6]
    # The older chunk counts twice as much.
    second = ensemble.add(PERIOD_NS, np.array([[0.0, 3.0], [0.0, 6.0], [9.0, 9.0]]))
    np.testing.assert_allclose(second, [[2, 1], [4, 2], [9, 9]])
    ensemble.reset()
    np.testing.assert_allclose(ensemble.add(PERIOD_NS, np.ones((3, 2))), 1.0)


def test_turns_are_averaged_the_short_way():
    space = TaskSpace(
        (), (ActionSpec("tool/xyz_yaw", (4,)), ActionSpec("arm/pose", (7,))), rate_hz=10.0
    )
    ensemble = TemporalEnsemble(space, 2, 0.0)
    turn = np.array([np.cos(0.2), 0.0, 0.0, np.sin(0.2)])
    back = turn * [1, 1, 1, -1]
    one = np.concatenate([[0.0, 0.0, 0.0, 3.1], [0.0, 0.0, 2.0], turn])
    # The same place of the sphere seen from its other side.
    two = np.concatenate([[0.0, 0.0, 1.0, -3.1], [0.0, 0.0, 4.0], -back])
    ensemble.add(0, np.stack([one, one]))
    mean = ensemble.add(PERIOD_NS, np.stack([two, two]))[0]
    assert abs(abs(mean[3]) - np.pi) < 1e-9
    np.testing.assert_allclose(mean[[2, 6]], [0.5, 3.0])
    np.testing.assert_allclose(mean[7:], [1, 0, 0, 0], atol=1e-12)


def test_what_cannot_be_is_explained():
    with pytest.raises(ConfigError, match="exclude each other"):
        Execution(realtime_chunking=True, ensemble=0.01).agent(POLICY_SPEC, SPEC, "walk")
    with pytest.raises(ConfigError, match="at least 0"):
        Execution(ensemble=-1.0).agent(POLICY_SPEC, SPEC, "walk")


def test_a_label_names_what_was_changed():
    assert Execution().label == ""
    assert Execution(execute=4, ensemble=0.01).label == "execute=4,ensemble=0.01"
    assert Execution(realtime_chunking=True, goal_s=2.0).label == "realtime=True,goal_s=2.0"


class TestEnsemblingAgent(AgentContract):
    def make(self):
        return Execution(lead_ticks=2, ensemble=0.01).agent(POLICY_SPEC, SPEC, "walk")

    def inference(self):
        return InProcessInference(WalkPolicy(), delay_ticks=2)
