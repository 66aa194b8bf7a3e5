"""Lets a policy practise on a cell, in real time: ``robolearn finetune RUN --robot CELL``.

    open the cell (checks, consent) --> pairs of episodes: parent, explorer, same start --> STORE
                                             ^                                                |
                                        versions <------- learner, a process of its own <-----'

Placement, score, keys, checks and the way home are a deployment's (``operations/deploy``); rounds,
ledger, versions and what is kept at the end are a practice's. The arm waits for nothing that is
learned; it takes the newest version at the start of a round. Held-out starts are not tried here:
the pairs say how both do, and ``robolearn deploy`` does over a suite.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from eval.trials.suites import Suite
from hardware.cell.config import CellConfig
from hardware.cell.limits import RunLimits
from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.env.real_env import RealEnv
from hardware.teleop.device import unheard
from hardware.teleop.registry import DEVICES
from robolearn.agents.chunk import ticks_per_action
from robolearn.agents.execution import Execution
from robolearn.config import config_hash, to_dict
from robolearn.errors import ConfigError, InferenceError, PracticeError, RobotError
from robolearn.instructions import require_understood
from robolearn.operations.cell.opened import CellChoice
from robolearn.operations.cell.placing import require_starts
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy.opened import CheckedCell, PolicyCell, open_checked
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.options import TakeOverOptions
from robolearn.operations.deploy.policy import open_policy
from robolearn.operations.deploy.take_over import (
    DeviceOperator,
    device_operator,
    recorded_settings,
    require_known,
    scripted_person,
    settings_of,
)
from robolearn.operations.deploy.task import recorded_params, task_of
from robolearn.operations.practice.beside import Hurry, LearnerProcess, LearningBeside, new_hurry
from robolearn.operations.practice.cell_flights import CellFlights, Explorer
from robolearn.operations.practice.correcting import SCRIPTED
from robolearn.operations.practice.elsewhere.link import (
    LearnerAddress,
    LearnerElsewhere,
    second_of,
)
from robolearn.operations.practice.experiment import PracticeExperiment, require_buildable
from robolearn.operations.practice.frame import (
    Books,
    LearnerBuilder,
    SecondStore,
    identity_of,
    is_over,
    limits_of,
    require_alike,
    require_apart,
    require_correctable,
    require_share,
    standing_of,
)
from robolearn.operations.practice.judging import EpisodeJudge
from robolearn.operations.practice.listener import PracticeListener
from robolearn.operations.practice.records import Standing
from robolearn.operations.practice.result import FinetuneResult, finished, found_result
from robolearn.operations.practice.session import Session
from robolearn.operations.suites import open_suite
from robolearn.operations.trust.permission import UNCERTIFIED
from robolearn.seeding import child_seed
from robolearn.spec import require_compatible
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.training.run_directory import Run, load_run
from robolearn.types import Condition
from sim.experts.registry import build_expert
from sim.tasks.contract import Task

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPractice:
    """On which cell, from what starts, and how a policy practises."""

    # A file of configs/hardware/.
    robot: Path
    # Its task, time limit and instruction; starts are drawn as its own were, and are others.
    suite: Path = Path("configs/eval/pusht.yaml")
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Who scores: the task's predicate, or the operator's keys alone (keys always count).
    score: Literal["task", "operator"] = "task"
    # Ask for the next chunk so many control steps ahead: inference may take that long.
    lead_ticks: int = 1
    # Who takes over where the policy is lost.
    takeover: TakeOverOptions = field(default_factory=TakeOverOptions)
    # A classifier of pictures, which decides on success ('robolearn success'); left out: ``score``.
    judge: Path | None = None
    # Tighter limits for this run.
    limits: RunLimits = field(default_factory=RunLimits)

    def __post_init__(self) -> None:
        Execution(lead_ticks=self.lead_ticks).check()
        require_known(self.takeover.by)


def finetune_on_cell(
    experiment: PracticeExperiment,
    run: Path,
    where: CellPractice,
    store: Path,
    out: Path,
    operator: Operator,
    *,
    second: SecondStore | None = None,
    elsewhere: LearnerAddress | None = None,
    threads: int = 1,
    resume: bool = False,
    listener: PracticeListener = PracticeListener(),  # noqa: B008 (frozen)
    write: Callable[[str], None] = unheard,
) -> FinetuneResult:
    """Let the policy of ``run`` practise on a cell; as :func:`finetune`, and ``operator`` stands
    beside it; ``write``: the view of a device in a terminal.

    Errors: those of :func:`finetune` and of a deployment before anything moves;
    :class:`PracticeError` where the cell, a policy or the learner is lost. Ctrl-C stops the arm.
    What was practised until then is kept, for ``resume``.
    """
    parent = load_run(run)
    chosen = _Chosen.of(where, parent)
    if where.takeover.by in DEVICES:
        config = experiment.practice
        operator = device_operator(
            where.takeover,
            chosen.settings,
            operator,
            chosen.config,
            chosen.task.name,
            trials=config.max_episodes or 0,
            max_steps=config.max_steps or chosen.suite.config.max_steps,
            write=write,
        )
    chosen.cell.require_possible(operator)
    second = second_of(elsewhere, parent, second)
    require_apart(run, store, out)
    require_share(experiment, second, where.takeover.by)
    require_correctable(experiment, where.takeover.by)
    _require_learnable(experiment)
    require_buildable(experiment.experiment, parent)
    judge = EpisodeJudge.of(where.judge, store)
    if judge is not None:
        judge.require_seen(cell_spec(chosen.config), str(where.robot))
    identity = identity_of(
        experiment,
        parent,
        [chosen.hash],
        second,
        where.takeover.by,
        judge,
        elsewhere=elsewhere is not None,
    )
    standing = standing_of(out, identity, resume=resume)
    limits = limits_of(experiment)
    if standing.result is not None and is_over(standing, limits):
        return found_result(standing.result, out)
    standing = dataclasses.replace(standing, limits=limits, result=None)
    build = LearnerBuilder(
        *(experiment, run, store, out, second, threads),
        corrected=bool(where.takeover.by),
        parent_hash=parent.policy_hash,
    )
    if elsewhere is None:
        build.require_second()
    require_alike(experiment, parent, store, chosen.suite.config.task, standing.id)
    learner = (
        _Beside(build)
        if elsewhere is None
        else LearnerElsewhere(elsewhere, build, parent.policy_hash, standing.id)
    )
    practice = _Practice(
        experiment, parent, chosen, store, out, operator, standing, listener, learner, judge
    )
    return practice.run()


def _require_learnable(experiment: PracticeExperiment) -> None:
    """:class:`ConfigError` for an algorithm that learns from its own decisions, step by step: what
    a cell records does not say how they were made; and for pairs of which the parent flies none.
    """
    inner, practice = experiment.experiment, experiment.practice
    if inner.algorithm.batches().decisions is not None:
        raise ConfigError(
            f"{inner.policy} learns from how each of its decisions was made, which a cell does not"
            " record. Choose another policy (idql, residual, rlpd, filtered_bc, ...), or practise"
            " in a world"
        )
    if practice.parent_share and not practice.parents_of(practice.lanes):
        raise ConfigError(
            f"practice.parent_share {practice.parent_share:g} of {practice.lanes} lanes is none of"
            " them: on a cell nothing else tells whether practice harms. Say more, or 0 if nobody"
            " is to watch"
        )


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is known before anything is connected."""

    where: CellPractice
    cell: PolicyCell
    suite: Suite
    task: Task
    # Of who takes over.
    settings: CollectConfig

    @staticmethod
    def of(where: CellPractice, parent: Run) -> _Chosen:
        """Checked against the policy."""
        cell: CellConfig = where.limits.on(load_cell(where.robot))
        suite = open_suite(where.suite)
        task = task_of(suite, cell, where.robot, where.suite, parent.path)
        spec, space = cell_spec(cell), parent.spec.task_space
        require_compatible(space, spec)
        if ticks_per_action(space, spec) != 1:
            raise ConfigError(
                f"{where.robot}: the cell ticks at {spec.rate_hz:g} Hz and the policy at"
                f" {space.rate_hz:g} Hz; set robot.rate_hz to the policy's, so that what is"
                " recorded can be learned from"
            )
        require_understood(space, (suite.config.instruction,))
        choice = CellChoice(cell, where.robot, where.start_lab, where.lab_seed)
        wanted = PolicyCell(choice, where.score, where.lead_ticks)
        found = _Chosen(where, wanted, suite, task, settings_of(where.takeover))
        require_starts([found.start(0, 0)], cell, where.suite)
        if where.takeover.by == SCRIPTED:
            # Whether there is an expert, before anything is connected.
            build_expert(task.name, spec)
        return found

    @property
    def config(self) -> CellConfig:
        """The cell's."""
        return self.cell.chosen.cell

    @property
    def hash(self) -> str:
        """Of the cell, its lab and the task."""
        config = self.suite.config
        seed = self.where.lab_seed if self.where.start_lab else None
        return config_hash(to_dict(self.config), seed, config.task, config.max_steps)

    def start(self, seed: int, number: int) -> Condition:
        """Start ``number`` of the list that belongs to ``seed``; none of the suite's own."""
        drawn = self.suite.starts.draw(child_seed(seed, "practice starts"), [number])
        return drawn[0]


@dataclass(slots=True)
class _Beside:
    """Starts the learner's process once there is something to learn from."""

    build: LearnerBuilder
    hurry: Hurry = field(default_factory=new_hurry)
    started: LearnerProcess | None = None

    def __call__(self) -> LearnerProcess:
        self.started = LearnerProcess(self.build, self.hurry)
        return self.started

    @property
    def cpu_seconds(self) -> float:
        """What it has computed [s]."""
        return 0.0 if self.started is None else self.started.cpu_seconds


@dataclass(slots=True)
class _Practice:
    """One practice on a cell."""

    experiment: PracticeExperiment
    parent: Run
    chosen: _Chosen
    store: Path
    out: Path
    operator: Operator
    standing: Standing
    listener: PracticeListener
    learner: _Beside | LearnerElsewhere
    judge: EpisodeJudge | None

    def run(self) -> FinetuneResult:
        """Everything, from the first check to the way home."""
        with contextlib.ExitStack() as outer:
            with contextlib.ExitStack() as stack:
                session, flights, env = self._opened(outer, stack)
                self.operator.consent("the arm will move")
                stack.callback(self.operator.close)
                self.operator.told("keys", self.operator.listen(env.estop))
                self._seat(stack, flights, env)
                learning = LearningBeside(session, self.learner.hurry)
                outer.callback(learning.stop)
                self._practise(session, flights, learning)
            # The arm is home and let go of: what is left takes no time of it.
            self.operator.told("learning", "from the last episodes; the arm is done")
            try:
                learning.finish()
            except BaseException:
                self._keep(session, learning)
                raise
            return finished(session)

    def _seat(self, stack: contextlib.ExitStack, flights: CellFlights, env: RealEnv) -> None:
        """Whoever takes over takes a seat."""
        flights.takeover = self.chosen.settings.takeover
        if isinstance(self.operator, DeviceOperator):
            flights.person = self.operator.sit(lambda: env.slowed, env.look)
            flights.watching = (self.operator,)
        elif self.chosen.where.takeover.by:
            scripted = scripted_person(stack, env, self.chosen.task.name)
            flights.person, flights.watching = scripted, (scripted,)

    def _opened(
        self, outer: contextlib.ExitStack, stack: contextlib.ExitStack
    ) -> tuple[Session, CellFlights, RealEnv]:
        """``stack`` closes the cell, ``outer`` what is needed longer."""
        chosen, told = self.chosen, self.operator.told
        policy = open_policy(self.parent.path, "")
        stack.callback(policy.inference.close)
        told("policy", f"{policy.where} on {chosen.config.name} ({chosen.where.robot})")
        opened = open_checked(stack, chosen.cell, chosen.task, policy, self.operator)
        execute = self.parent.spec.execute
        books = Books.opened(outer, self.store, self.out, self.standing, execute, self.judge)
        explorer = Explorer(self.out.absolute())
        stack.callback(explorer.close)
        execution = Execution(lead_ticks=chosen.where.lead_ticks)
        config, suite = self.experiment.practice, chosen.suite.config
        flights = CellFlights(
            env=opened.env,
            cell=chosen.config,
            parent=policy,
            parent_hash=self.parent.policy_hash,
            explorer=explorer,
            run_dir=self.out,
            drafts=books.writer.drafts,
            operator=self.operator,
            task=suite.task,
            max_steps=config.max_steps or suite.max_steps,
            max_stops=config.max_stops,
            execution=execution,
            instruction=suite.instruction,
            practice=self.standing.id,
            provenance=self._provenance(opened, execution),
        )
        seed = self.experiment.experiment.seed
        session = books.session(
            self.experiment,
            self.learner,
            lambda _, number: chosen.start(seed, number),
            (chosen.config.name,),
            self.listener,
            judge=self.judge,
            beside=lambda: self.learner.cpu_seconds,
            stopped=lambda: len(flights.stops),
            learns_on=True,
        )
        outer.callback(session.close)
        return session, flights, opened.env

    def _practise(self, session: Session, flights: CellFlights, learning: LearningBeside) -> None:
        """Episodes until it is over, and the way home."""
        try:
            for task in session.tasks():
                for flown in flights(task):
                    session.commit(task, [flown])
                    learning.add([flown])
                if flights.ended is not None:
                    session.ended = flights.ended
            flights.home()
        except (RobotError, InferenceError) as error:
            self._keep(session, learning)
            raise PracticeError(
                f"practice broke off ({type(error).__name__}: {error});"
                f" {len(session.ledger.flights)} episodes are kept in '{self.store}', mend what"
                " failed and go on with resume"
            ) from error
        except BaseException:
            self._keep(session, learning)
            raise

    def _keep(self, session: Session, learning: LearningBeside) -> None:
        """What going on needs."""
        learning.stop()
        session.rescue()

    def _provenance(self, opened: CheckedCell, execution: Execution) -> dict[str, Any]:
        """What every episode says; who drove it is added."""
        where, cell = self.chosen.where, self.chosen.config
        ids = opened.preflight.devices
        return {
            "command": "robolearn finetune",
            "policy": str(self.parent.path),
            "execution": dataclasses.asdict(execution),
            "certificate": UNCERTIFIED,
            "robot": to_dict(cell),
            LATENCIES: cell.latencies.to_json(),
            "devices": {name: dict(found) for name, found in ids.items()},
            "lab_seed": where.lab_seed if where.start_lab else None,
            **recorded_settings(where.takeover, self.chosen.settings),
            **recorded_params(self.chosen.task),
        }
