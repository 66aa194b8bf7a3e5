"""A scripted person: takes over where a policy makes no progress, and hands back when it does."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.scripted_person import PatienceConfig, ScriptedPerson
from robolearn.agents.take_over import Person, TakeOver
from robolearn.contracts import Subscriber
from robolearn.data.episode import drivers
from robolearn.errors import ConfigError
from robolearn.inference.local import InProcessInference
from robolearn.runtime import run_episode
from robolearn.types import Command, Condition, Observation, PolicyInput, PolicyOutput
from tests.mocks import CONDITION, POLICY_SPEC, SPEC, TOOL, Listener, PointEnv, WalkPolicy

PATIENCE = PatienceConfig(patience_s=1.0, gain=0.02, enough=0.1, reaction_s=0.2)


class Walker:
    """Goes on from where the tool is, by 2 cm a tick."""

    name = "scripted:walker"

    def __init__(self) -> None:
        self.seeds: list[int] = []

    def reset(self, seed: int) -> None:
        self.seeds.append(seed)

    def request(self, observation: Observation) -> PolicyInput | None:
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        del reply
        place = np.array(observation.value(TOOL)) + np.array([0.02, 0.0])
        return Command(0, {TOOL: np.minimum(place, 0.5)}, observation.t_ns, "scripted")


def drive(step: float, ticks: int = 60, seed: int = CONDITION.seed) -> tuple[str, Walker, Listener]:
    walker, listener = Walker(), Listener()
    person = ScriptedPerson(walker, PATIENCE)
    agent = TakeOver(ChunkAgent(POLICY_SPEC, SPEC, name="walk"), person, SPEC)
    start: Condition = dataclasses.replace(CONDITION, seed=seed)
    run_episode(
        PointEnv(),
        agent,
        InProcessInference(WalkPolicy(step)),
        [listener, person],
        start,
        max_steps=ticks,
    )
    said = {"policy": "p", "script": "s", "nobody": "-"}
    text = "".join(said[d] for d in drivers([t.command.source for t in listener.ticks]))
    return text, walker, listener


def test_a_policy_that_gets_along_is_left_alone() -> None:
    text, walker, listener = drive(0.005)
    assert text == "p" * 60
    assert listener.headers[0].agent == "walk corrected by operator:scripted:walker"
    assert len(walker.seeds) == 0


def test_one_that_is_lost_is_helped_until_it_is_far_enough_and_no_longer() -> None:
    """At 10 Hz: a second of patience, .1 to .3 s of reaction, two samples; .1 is 5 ticks."""
    text, walker, _ = drive(0.0)
    first = text.index("s")
    assert 10 <= first <= 16
    spells = [s for s in text.replace("-", "p").split("p") if s]
    assert len(spells) >= 2
    assert all(5 <= len(s) <= 9 for s in spells[:-1])
    assert len(walker.seeds) == len(set(walker.seeds)) == len(spells)


def test_the_same_seed_does_the_same_and_another_one_another() -> None:
    runs = [[t.command.action[TOOL] for t in drive(0.0, seed=s)[2].ticks] for s in (7, 7, 8)]
    np.testing.assert_array_equal(runs[0], runs[1])
    assert np.any(np.array(runs[0]) != np.array(runs[2]))


def test_it_is_a_person_who_watches() -> None:
    person = ScriptedPerson(Walker())
    assert isinstance(person, Person)
    assert isinstance(person, Subscriber)
    with pytest.raises(ConfigError, match="patience_s must be at least 0"):
        PatienceConfig(patience_s=-1.0)
