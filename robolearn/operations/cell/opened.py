"""Opens a cell for whoever acts on it: its lab where one stands for it, who places and scores.

deploy, practice   open_cell -> checks of the cell and of the policy (deploy/opened.py)
a person collects  open_cell -> checks of the cell
a replay           open_cell
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hardware.cell.config import CellConfig
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv, Scorer
from robolearn.errors import ConfigError
from robolearn.machine.process import take_real_time
from robolearn.operations.cell.placing import LabPlacement, PromptPlacement
from robolearn.operations.cell.scoring import KeyScorer, LabScorer
from robolearn.operations.deploy.operator import Attendant
from robolearn.types import Outcome, Signals

# Above every ordinary program, below the supervisor (50) and the lab's controller (40).
_AGENT_PRIORITY, _LAB_PRIORITY = 5, 40
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class CellChoice:
    """A cell. ``robot``: its file, which ``cell`` was read from; ``start_lab``: its virtual lab is
    started, with hidden physics and noise of ``lab_seed``.
    """

    cell: CellConfig
    robot: Path
    start_lab: bool
    lab_seed: int

    def require_possible(self) -> None:
        """:class:`ConfigError` for what could not be opened; nothing is connected."""
        if self.start_lab and not self.cell.lab:
            raise ConfigError(
                f"{self.robot} describes a real cell (robot.lab is false); no lab stands for it"
            )


@dataclass(frozen=True, slots=True)
class OpenedCell:
    """A cell that is connected; nothing has moved. ``world``: physics of its lab, if it has one,
    ``films``: the lab's cameras that do not show what happens; ``agent_real_time``: whether this
    process has priority over ordinary programs.
    """

    env: RealEnv
    world: str
    agent_real_time: bool
    films: Sequence[str] = ()


class Unjudged:
    """Nobody scores: the episode runs on until somebody ends it."""

    def reset(self) -> None:
        """Nothing to forget."""

    def judge(self, values: Signals) -> Outcome:
        """It runs on."""
        del values
        return Outcome(success=False, progress=0.0, reward=0.0)


def open_cell(
    stack: ExitStack, chosen: CellChoice, scorer: Scorer | None, operator: Attendant
) -> OpenedCell:
    """Start the lab if asked and connect everything; ``stack`` closes it. ``scorer``: judges beside
    the operator's keys, in a lab by the true poses; without both an episode runs on until somebody
    ends it.

    Errors: RobotError and its kin for devices that do not answer.
    """
    cell, world, films = chosen.cell, "", tuple[str, ...]()
    place: LabPlacement | PromptPlacement = PromptPlacement(operator)
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
        films = tuple(lab.where.films)
        if films:
            operator.told("film", f"camera(s) {', '.join(films)} do not show what happens")
    real_time = take_real_time(0, _AGENT_PRIORITY, inherit=True)
    judge: Scorer = KeyScorer(scorer, operator) if operator.judges else scorer or Unjudged()
    env = RealEnv(cell, place=place, scorer=judge, settable_poses=chosen.start_lab)
    stack.callback(env.close)
    return OpenedCell(env, world, real_time, films)
