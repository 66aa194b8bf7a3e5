"""Sub-goals in turn: who is shown when, against a table of what happens tick by tick."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest

from robolearn.agents.execution import Execution
from robolearn.agents.sub_goals import ACHIEVED, WANTED, GoalsInTurn
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec, TaskSpace
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Sample

MARKS = 3
SECOND = 1_000_000_000
ARM = "arm/joint_position"
SIGNALS = tuple(SignalSpec(name, (MARKS,), "1", 1.0) for name in (WANTED, ACHIEVED))
ACTIONS = (ActionSpec(ARM, (1,), "rad", 1.0),)
SPEC = PolicySpec(TaskSpace(SIGNALS, ACTIONS, 1.0), 1, 2, 1)


@dataclass
class Shown:
    """An agent that keeps what it was shown."""

    name: str = "shown"
    goals: list[list[float]] = field(default_factory=list[list[float]])
    seen: list[Observation] = field(default_factory=list[Observation])

    def reset(self, seed: int) -> None:
        self.goals.clear()

    def request(self, observation: Observation) -> PolicyInput | None:
        self.goals.append(observation.value(WANTED).tolist())
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        self.seen.append(observation)
        return Command(0, {ARM: np.zeros(1)}, observation.t_ns, "shown")


def moment(t_s: float, wanted: str, held: str) -> Observation:
    t_ns = round(t_s * SECOND)
    marks = {WANTED: wanted, ACHIEVED: held}
    return Observation(
        t_ns, {n: Sample(t_ns, np.array([float(c) for c in m])) for n, m in marks.items()}
    )


def turns(agent: GoalsInTurn, inner: Shown, held: list[str], wanted: str = "111") -> list[str]:
    """What is shown at ticks of one second in which ``held`` holds."""
    agent.reset(0)
    for tick, marks in enumerate(held):
        agent.request(moment(tick, wanted, marks))
    return ["".join(str(int(v)) for v in goal) for goal in inner.goals]


def test_a_sub_goal_has_its_turn_until_it_is_reached_or_its_time_is_up() -> None:
    inner = Shown()
    agent = GoalsInTurn(inner, SPEC, 3.0)
    # 0 is reached at once, 1 is not within three seconds, 2 holds for a moment only.
    held = ["000", "100", "100", "100", "100", "101", "000", "000", "010"]
    shown = ["100", "010", "010", "010", "001", "010", "010", "010", "111"]
    assert turns(agent, inner, held) == shown
    # A new episode knows nothing of the last one.
    assert turns(agent, inner, held) == shown


def test_turns_go_round_and_what_is_not_wanted_has_none() -> None:
    inner = Shown()
    nothing = ["000"] * 6
    assert turns(GoalsInTurn(inner, SPEC, 1.0), inner, nothing) == ["100", "010", "001"] * 2
    assert turns(GoalsInTurn(inner, SPEC, 1.0), inner, nothing, "101") == ["100", "001"] * 3
    assert turns(GoalsInTurn(inner, SPEC, 1.0), inner, ["000", "000"], "000") == ["000", "000"]
    ordered = GoalsInTurn(inner, SPEC, 1.0, (2,))
    assert turns(ordered, inner, nothing) == ["001", "100", "010"] * 2


def test_decisions_are_of_what_is_observed() -> None:
    inner = Shown()
    agent = GoalsInTurn(inner, SPEC, 1.0)
    agent.reset(0)
    now = moment(0.0, "111", "000")
    agent.request(now)
    agent.decide(now, None)
    assert inner.seen == [now]
    assert now.value(WANTED).tolist() == [1.0, 1.0, 1.0]


def test_the_execution_wraps_its_agent_and_says_so() -> None:
    how = Execution(goal_s=9.0, goal_order=(2,))
    assert how.label == "goal_s=9.0,goal_order=(2,)"
    embodiment = EmbodimentSpec("it", SIGNALS, ACTIONS, 1.0)
    assert isinstance(how.agent(SPEC, embodiment, "it"), GoalsInTurn)
    assert not isinstance(Execution().agent(SPEC, embodiment, "it"), GoalsInTurn)


def test_mistakes_are_explained() -> None:
    blind = PolicySpec(TaskSpace(SIGNALS[1:], ACTIONS, 1.0), 1, 2, 1)
    with pytest.raises(SpecMismatchError, match=f"must observe '{WANTED}'"):
        GoalsInTurn(Shown(), blind, 1.0)
    with pytest.raises(ConfigError, match="more than 0 s"):
        GoalsInTurn(Shown(), SPEC, 0.0)
    for order in ((3,), (0, 0)):
        with pytest.raises(ConfigError, match="different sub-goals of 0 to 2"):
            GoalsInTurn(Shown(), SPEC, 1.0, order)
    with pytest.raises(ConfigError, match="needs the seconds"):
        Execution(goal_order=(1,)).check()
