"""Opens a cell for a policy: who scores, the checks of the cell and of the policy."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

from hardware.env.real_env import RealEnv
from robolearn.agents.execution import Execution
from robolearn.agents.take_over import Person, TakeOverConfig
from robolearn.contracts import Agent
from robolearn.errors import ConfigError
from robolearn.operations.cell.driving import on_cell
from robolearn.operations.cell.opened import CellChoice, open_cell
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.policy import Source
from robolearn.operations.deploy.preflight import Checks
from robolearn.operations.deploy.result import Preflight
from sim.tasks.contract import Task


@dataclass(frozen=True, slots=True)
class PolicyCell:
    """A cell, and how a policy is judged and asked on it.

    ``score``: by the task's predicate, or by the operator's keys alone; ``lead_ticks``: how far
    ahead the policy is asked.
    """

    chosen: CellChoice
    score: Literal["task", "operator"]
    lead_ticks: int

    def require_possible(self, operator: Operator) -> None:
        """:class:`ConfigError` for what could not be opened; nothing is connected."""
        if self.score == "operator" and not operator.judges:
            raise ConfigError("score: the operator needs a terminal whose keys can be read")
        self.chosen.require_possible()


@dataclass(frozen=True, slots=True)
class CheckedCell:
    """A cell that was checked; nothing has moved. ``world``: physics of its lab, if it has one."""

    env: RealEnv
    preflight: Preflight
    world: str


def policy_agent(
    policy: Source,
    env: RealEnv,
    execution: Execution,
    instruction: str,
    person: Person | None = None,
    takeover: TakeOverConfig = TakeOverConfig(),  # noqa: B008 (frozen)
) -> Agent:
    """``policy`` as it acts on a cell (:func:`on_cell`)."""
    agent = execution.agent(
        policy.inference.spec, env.spec, policy.name, env.config.command_latency_s
    )
    return on_cell(agent, env, instruction, person, takeover)


def open_checked(
    stack: ExitStack, wanted: PolicyCell, task: Task, policy: Source, operator: Operator
) -> CheckedCell:
    """Open the cell (:func:`open_cell`) and check it and the policy; ``stack`` closes it.

    Errors: RobotError and its kin for devices that do not answer.
    """
    scorer = task if wanted.score == "task" else None
    opened = open_cell(stack, wanted.chosen, scorer, operator)
    checks = Checks(wanted.chosen.cell, policy, operator.told)
    preflight = checks.run(
        opened.env, lead_ticks=wanted.lead_ticks, agent_real_time=opened.agent_real_time
    )
    return CheckedCell(opened.env, preflight, opened.world)
