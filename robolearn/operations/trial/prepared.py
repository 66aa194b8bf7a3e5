"""Opens and checks what blinded trials need beside their arm: policies, task, picture of a start.

Nothing is connected but servers of policies, and nothing is written, so that all of it comes before
a plan is locked.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hardware.cell.spec import cell_spec
from robolearn.errors import ConfigError, DataError
from robolearn.instructions import require_understood
from robolearn.operations.builders import executed_as, is_server
from robolearn.operations.cell.opened import CellChoice
from robolearn.operations.deploy.policy import Source, open_policy
from robolearn.operations.deploy.task import task_of
from robolearn.operations.goals import goal_run
from robolearn.operations.pictures.overlay import StartOverlay
from robolearn.operations.suites import aside
from robolearn.operations.trial.operator import TrialOperator
from robolearn.operations.trial.planned import OpenedTrials
from sim.tasks.contract import Task


@dataclass(frozen=True, slots=True)
class Prepared:
    """Policies by alias, which fit the cell; ``overlay``: None where nobody asked for one."""

    sources: Mapping[str, Source]
    chosen: CellChoice
    task: Task
    overlay: StartOverlay | None


def prepare(
    stack: ExitStack, trials: OpenedTrials, overlay: str, operator: TrialOperator
) -> Prepared:
    """Open policies and overlay and check them against the cell; ``stack`` closes them.

    Errors: ConfigError and SpecMismatchError for what could not run on this cell.
    """
    plan, cell, suite = trials.locked.plan, trials.cell, trials.suite
    lab_seed = trials.lab_seed
    chosen = CellChoice(cell, trials.robot, lab_seed is not None, lab_seed or 0)
    chosen.require_possible()
    runs = [Path(s) for s in trials.sources.values() if not is_server(s)]
    run = goal_run(runs, suite.config.task)
    task = task_of(suite, cell, trials.robot, trials.folder, run)
    sources = {alias: _source(stack, trials, alias) for alias in plan.aliases}
    for alias, source in sources.items():
        spec = source.inference.spec
        # As they will act; made again when the cell is there.
        plan.execution.agent(spec, cell_spec(cell), alias, cell.command_latency_s)
        require_understood(spec.task_space, (plan.instruction,))
    operator.told("task space fits", f"{len(sources)} policies and the robot agree")
    return Prepared(sources, chosen, task, _overlay(stack, overlay, trials))


def _overlay(stack: ExitStack, text: str, trials: OpenedTrials) -> StartOverlay | None:
    """What shows the operator where things belong; ``stack`` closes it. ConfigError for a camera or
    scene that is not there, or does not have the plan's starts; nothing is connected.
    """
    overlay = StartOverlay.of(text, cell_spec(trials.cell))
    if overlay is None:
        return None
    stack.callback(overlay.close)
    try:
        overlay.require(next(iter(trials.conditions.values())))
    except DataError as error:
        raise ConfigError(f"overlay: '{text}' does not have the suite's starts: {error}") from error
    return overlay


def _source(stack: ExitStack, trials: OpenedTrials, alias: str) -> Source:
    plan, where = trials.locked.plan, trials.sources[alias]
    server = where if is_server(where) else ""
    policy = open_policy(
        None if server else Path(where),
        server,
        "torch" if server else plan.runtime,
        "auto" if server else plan.guidance,
        accept_edited=not server,
    )
    stack.callback(policy.inference.close)
    if server:
        _require_served(trials, alias, policy)
    return dataclasses.replace(
        policy, name=alias, hash=trials.key.sealed_hash(alias), where="a policy of the plan"
    )


def _require_served(trials: OpenedTrials, alias: str, policy: Source) -> None:
    plan = trials.locked.plan
    found = executed_as(
        *(policy.name, policy.hash),
        execution=plan.execution,
        aside=aside(trials.suite.config, plan.max_steps, plan.instruction),
    )
    planned = trials.key.of(alias)
    if found != (planned.name, planned.hash):
        what = "another name" if found[1] == planned.hash else "another policy"
        raise ConfigError(
            f"one of the plan's servers serves {what} than was planned; start all as they were, or"
            " plan further trials in another folder"
        )
