import dataclasses

import numpy as np
import pytest

from robolearn.agents.replay import ReplayAgent
from robolearn.errors import DataError
from tests.contracts import AgentContract
from tests.mocks import ACTION, SPEC, TOOL, observation

PATH = np.linspace([0.1, 0.1], [0.2, 0.4], 6)


class TestReplayAgent(AgentContract):
    def make(self):
        return ReplayAgent({TOOL: PATH}, SPEC.actions)


def decide_all(agent, ticks):
    here = observation(5, tool__xy_table=np.array([0.3, 0.3]))
    return [agent.decide(here, None) for _ in range(ticks)]


def test_actions_come_in_order_and_the_last_is_held():
    agent = ReplayAgent({TOOL: PATH}, SPEC.actions, name="person", source="scripted")
    commands = decide_all(agent, 8)
    assert np.array_equal([c.action[TOOL] for c in commands[:6]], PATH)
    assert [c.source for c in commands] == ["scripted"] * 6 + ["hold"] * 2
    assert np.array_equal(commands[7].action[TOOL], PATH[-1])
    assert np.array_equal(commands[2].plan, PATH[3:])
    assert commands[5].plan is None
    assert agent.request(observation(0)) is None
    agent.reset(0)
    assert decide_all(agent, 1)[0].seq == 0


def test_out_of_range_values_are_clipped():
    agent = ReplayAgent({TOOL: np.array([[0.6, -0.1]])}, SPEC.actions)
    assert decide_all(agent, 1)[0].action[TOOL].tolist() == [0.512, 0.0]


def test_an_empty_recording_holds():
    agent = ReplayAgent({TOOL: np.zeros((0, 2))}, SPEC.actions)
    command = decide_all(agent, 1)[0]
    assert command.source == "hold"
    assert command.action[TOOL].tolist() == [0.3, 0.3]


def test_missing_or_uneven_actions_are_refused():
    two = (*SPEC.actions, dataclasses.replace(ACTION, name="gripper/width", shape=(1,)))
    with pytest.raises(DataError, match="gripper/width"):
        ReplayAgent({TOOL: PATH}, two)
    with pytest.raises(DataError, match="one length"):
        ReplayAgent({TOOL: PATH, "gripper/width": np.zeros((5, 1))}, two)
