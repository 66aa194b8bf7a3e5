"""Opens a cell for a policy: its lab where one stands for it, who places and scores, the checks."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hardware.cell.config import CellConfig
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv, Scorer
from robolearn.errors import ConfigError
from robolearn.machine.process import take_real_time
from robolearn.operations.deploy.cell import (
    KeyScorer,
    LabPlacement,
    LabScorer,
    PromptPlacement,
)
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.policy import Source
from robolearn.operations.deploy.preflight import Checks
from robolearn.operations.deploy.result import Preflight
from sim.tasks.contract import Task

# Above every ordinary program, below the supervisor (50) and the lab's controller (40).
_AGENT_PRIORITY, _LAB_PRIORITY = 5, 40
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class CellChoice:
    """A cell and who stands beside it.

    ``robot``: its file, which ``cell`` was read from; ``start_lab``: its virtual lab is started,
    with hidden physics and noise of ``lab_seed``; ``score``: the task's predicate, or the
    operator's keys alone.
    """

    cell: CellConfig
    robot: Path
    start_lab: bool
    lab_seed: int
    score: Literal["task", "operator"]
    lead_ticks: int

    def require_possible(self, operator: Operator) -> None:
        """:class:`ConfigError` for what could not be opened; nothing is connected."""
        if self.score == "operator" and not operator.judges:
            raise ConfigError("score: the operator needs a terminal whose keys can be read")
        if self.start_lab and not self.cell.lab:
            raise ConfigError(
                f"{self.robot} describes a real cell (robot.lab is false); no lab stands for it"
            )


@dataclass(frozen=True, slots=True)
class OpenedCell:
    """A cell that was checked; nothing has moved. ``world``: physics of its lab, if it has one."""

    env: RealEnv
    preflight: Preflight
    world: str


def open_cell(
    stack: ExitStack, chosen: CellChoice, task: Task, policy: Source, operator: Operator
) -> OpenedCell:
    """Start the lab if asked, connect everything, check it all; ``stack`` closes it.

    Errors: RobotError and its kin for devices that do not answer.
    """
    cell, world = chosen.cell, ""
    place: LabPlacement | PromptPlacement = PromptPlacement(operator)
    scorer: Scorer | None = task if chosen.score == "task" else None
    if chosen.start_lab:
        lab = LabProcess(chosen.robot, address=cell.address or LOOPBACK, seed=chosen.lab_seed)
        stack.callback(lab.stop)
        take_real_time(lab.pid, _LAB_PRIORITY, inherit=False)
        client = lab.where.connect()
        stack.callback(client.close)
        objects = {signal: t.object(signal) for signal, t in cell.trackers.items()}
        place = LabPlacement(client, objects)
        if objects and scorer is not None:
            scorer = LabScorer(client, scorer, objects)
        world = lab.where.world
        where = f"{world}, serves at {lab.where.address} (seed {chosen.lab_seed})"
        operator.told("virtual lab", where)
    real_time = take_real_time(0, _AGENT_PRIORITY, inherit=True)
    if operator.judges:
        scorer = KeyScorer(scorer, operator)
    if scorer is None:
        raise ConfigError("nobody scores: give a terminal, or let the task score")
    env = RealEnv(cell, place=place, scorer=scorer, settable_poses=chosen.start_lab)
    stack.callback(env.close)
    checks = Checks(cell, policy, operator.told)
    preflight = checks.run(env, lead_ticks=chosen.lead_ticks, agent_real_time=real_time)
    return OpenedCell(env, preflight, world)
