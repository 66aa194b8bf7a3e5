"""Adds to whoever drives a cell what every episode there needs: whole commands, rest at the end."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from eval.trials.instruments import InstructedAgent
from robolearn.agents.replay import WrappedAgent
from robolearn.agents.take_over import Person, TakeOver, TakeOverConfig
from robolearn.contracts import Agent
from robolearn.errors import RobotError
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Command,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyOutput,
    Signals,
    Tick,
)

log = logging.getLogger(__name__)


class WholeCommand(WrappedAgent):
    """An agent whose commands name every action of the cell: what it leaves out is recorded as it
    stands (``standing()``: the gripper of a policy that knows of none).
    """

    def __init__(self, inner: Agent, standing: Callable[[], Signals]) -> None:
        super().__init__(inner)
        self._standing = standing

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The wrapped agent's command over what stands."""
        command = super().decide(observation, reply)
        return dataclasses.replace(command, action={**self._standing(), **command.action})


@runtime_checkable
class Driven(Protocol):
    """An env whose actions may be left out of a command."""

    @property
    def spec(self) -> EmbodimentSpec:
        """Its signals."""
        ...

    @property
    def standing(self) -> Signals:
        """What its actions are while nobody commands them."""
        ...


def on_cell(
    agent: Agent, env: Driven, instruction: str, person: Person | None, takeover: TakeOverConfig
) -> Agent:
    """A policy's ``agent`` as it acts on a cell; ``instruction``: what one that reads text is told;
    ``person``: who takes over from it; ``takeover``: what counts as a touch.
    """
    if instruction:
        agent = InstructedAgent(agent, instruction)
    agent = WholeCommand(agent, lambda: env.standing)
    return agent if person is None else TakeOver(agent, person, env.spec, takeover)


@runtime_checkable
class Holding(Protocol):
    """An env that can brake and stand still."""

    def hold(self) -> None:
        """Brake and hold."""
        ...


class HoldAtEnd:
    """A subscriber that lets the arm rest before anything slow (saving, plotting) happens."""

    def __init__(self, env: Holding) -> None:
        self._env = env

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing."""

    def on_tick(self, tick: Tick) -> None:
        """Nothing."""

    def on_end(self, outcome: Outcome) -> None:
        """Brake and hold."""
        del outcome
        self._env.hold()

    def on_abort(self, error: BaseException) -> None:
        """Brake and hold, unless a stop is latched already."""
        try:
            self._env.hold()
        except RobotError as second:
            log.info("no hold after '%s': %s", error, second)
