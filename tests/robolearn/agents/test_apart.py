"""An expert that thinks for long keeps no loop waiting."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
import pytest

from robolearn.agents.apart import ApartAgent
from robolearn.contracts import Agent
from robolearn.errors import ConfigError, InferenceError
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Sample
from tests.mocks import SPEC, TOOL
from tests.waiting import pass_time, wait_until

THINKS_S = 0.5


@dataclass
class Thinker:
    """Goes right by a tenth of what it sees; thinks for long beyond 0.3, fails beyond 0.4."""

    name: str = "scripted:thinker"
    seed: int = 0

    def reset(self, seed: int) -> None:
        self.seed = seed

    def request(self, observation: Observation) -> PolicyInput | None:
        raise AssertionError("nobody asks")

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        x = float(observation.value(TOOL)[0])
        if x > 0.4:
            raise ZeroDivisionError("no way")
        if x > 0.3:
            pass_time(THINKS_S, "it thinks")
        return Command(99, {TOOL: np.array([1.1 * x, self.seed])}, 0, "scripted")


def think() -> Agent:
    return Thinker()


def refuse() -> Agent:
    raise ConfigError("noise is 0 to 1")


@pytest.fixture(scope="module")
def agent() -> Generator[ApartAgent]:
    made = ApartAgent(think, SPEC)
    yield made
    made.close()
    made.close()


def seen(x: float, t_ns: int = 5) -> Observation:
    return Observation(t_ns, {TOOL: Sample(t_ns, np.array([x, 0.2]))})


def wanted(agent: ApartAgent, x: float, t_ns: int = 5) -> Command:
    """Its own command, however long a busy machine takes for it."""

    def look() -> Command | None:
        command = agent.decide(seen(x, t_ns), None)
        return command if command.source != "hold" else None

    found = wait_until(look)
    assert found is not None
    return found


def test_what_stands_stands_until_it_has_thought(agent: ApartAgent) -> None:
    agent.reset(3)
    assert agent.name == "scripted:thinker"
    quick = wanted(agent, 0.2, 7)
    np.testing.assert_allclose(quick.action[TOOL], [0.22, 3.0])
    assert (quick.source, quick.due_ns) == ("scripted", 7)
    begun = time.monotonic()
    slow = agent.decide(seen(0.35, 8), None)
    assert time.monotonic() - begun < THINKS_S
    assert (slow.source, slow.due_ns, slow.seq) == ("hold", 8, quick.seq + 1)
    np.testing.assert_allclose(slow.action[TOOL], [0.22, 3.0])
    # By what it saw when it began to think.
    np.testing.assert_allclose(wanted(agent, 0.1).action[TOOL], [0.385, 3.0])


def test_what_it_thought_about_another_episode_is_void(agent: ApartAgent) -> None:
    agent.reset(3)
    agent.decide(seen(0.35), None)
    agent.reset(4)
    first = agent.decide(seen(0.1), None)
    # Nothing stands yet: it stays where it is.
    assert first.source == "hold"
    np.testing.assert_allclose(first.action[TOOL], [0.1, 0.2])
    assert first.seq == 0
    np.testing.assert_allclose(wanted(agent, 0.1).action[TOOL], [0.11, 4.0])


def test_whoever_fails_is_heard(agent: ApartAgent) -> None:
    agent.reset(5)
    with pytest.raises(InferenceError, match="the expert failed: ZeroDivisionError: no way"):
        wanted(agent, 0.45)
    with pytest.raises(InferenceError, match="process died"):
        wanted(agent, 0.1)
    with pytest.raises(ConfigError, match="noise is 0 to 1"):
        ApartAgent(refuse, SPEC)
