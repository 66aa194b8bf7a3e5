"""Puts the task's expert beside a policy, to take over from it where it is lost."""

from __future__ import annotations

from robolearn.agents.scripted_person import ScriptedPerson
from robolearn.agents.take_over import TakeOver, TakeOverConfig
from robolearn.contracts import Agent
from robolearn.errors import ConfigError
from sim.contract import World
from sim.worlds import build_operator

SCRIPTED = "scripted"
"""The name of a program in a person's place."""


def require_person(name: str) -> None:
    """:class:`ConfigError` for somebody who cannot take over in a world that nobody waits for."""
    if name not in ("", SCRIPTED):
        raise ConfigError(
            f"takeover: in a world that runs faster than real time the task's expert takes over"
            f" ('{SCRIPTED}'), got '{name}'; a person does on a cell"
        )


def corrected_by_expert(
    policy: Agent,
    env: World,
    noise: float = 0.0,
    takeover: TakeOverConfig = TakeOverConfig(),  # noqa: B008 (frozen)
) -> tuple[TakeOver, ScriptedPerson]:
    """``policy`` with the expert of the task of ``env``, clumsy by ``noise``, who takes over; and
    that expert, who must be told of every tick (a subscriber). ``takeover``: what counts as a
    touch.

    Errors: :class:`ConfigError` for a task without an expert.
    """
    person = ScriptedPerson(build_operator(env, "scripted", noise))
    return TakeOver(policy, person, env.spec, takeover), person
