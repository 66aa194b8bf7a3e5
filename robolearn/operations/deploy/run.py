"""Runs a policy on a robot: checks, places, runs, scores, keeps, returns; one after the other."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from eval.trials.suites import Suite
from eval.trials.table import TrialStore
from hardware.cell.config import CellConfig
from hardware.cell.demand import CertificateDemand, load_demand
from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.env.real_env import RealEnv
from hardware.supervisor.link import Status
from hardware.teleop.device import unheard
from hardware.teleop.registry import DEVICES
from robolearn.agents.chunk import ticks_per_action
from robolearn.agents.take_over import Person
from robolearn.config import config_hash, to_dict
from robolearn.contracts import Agent, Subscriber
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import SafetyStopError, StartError
from robolearn.files import write_atomic
from robolearn.instructions import require_understood
from robolearn.operations.builders import executed_as
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.cell.opened import CellChoice
from robolearn.operations.cell.placing import require_starts
from robolearn.operations.cell.release import why_stopped_for_good
from robolearn.operations.deploy.figures import (
    figures,
    lateness_ms,
    safety_metrics,
    trial_metrics,
)
from robolearn.operations.deploy.opened import PolicyCell, open_checked, policy_agent
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.options import DeployOptions
from robolearn.operations.deploy.policy import Source, open_policy
from robolearn.operations.deploy.result import (
    DOCUMENT,
    DeployResult,
    Intervention,
    Preflight,
    TrialDetail,
    Watched,
    earlier_details,
)
from robolearn.operations.deploy.take_over import (
    DeviceOperator,
    device_operator,
    recorded_settings,
    require_known,
    scripted_person,
    settings_of,
)
from robolearn.operations.deploy.task import recorded_params, task_of
from robolearn.operations.deploy.trials import PERSON_STEPS, TrialWriter, blank_trial
from robolearn.operations.deploy.video import Film, film_of
from robolearn.operations.deploy.watch import first_action, shadow
from robolearn.operations.suites import aside, open_suite
from robolearn.operations.trust.permission import Permission, Wanted, permit
from robolearn.runtime import EpisodeResult, run_episode
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.types import TrialRecord

# How often a start that is too far off may be placed again by a person.
_PLACINGS = 3


def deploy(
    options: DeployOptions, operator: Operator, *, write: Callable[[str], None] = unheard
) -> DeployResult:
    """Run the policy on the cell and keep everything in ``options.out``; ``write``: text of the
    device of whoever takes over, for the terminal.

    ConfigError, SpecMismatchError before anything is connected; RobotError and its kin for devices;
    what cuts a trial short (KeyboardInterrupt too) is raised after its row is written and the arm
    holds; trials before it are kept.
    """
    return _Deployment(options, operator, write).run()


class _Deployment:
    """One deployment."""

    def __init__(
        self, options: DeployOptions, operator: Operator, write: Callable[[str], None]
    ) -> None:
        self._options, self._operator = options, operator
        require_known(options.takeover.by)
        self._cell: CellConfig = options.limits.on(load_cell(options.robot))
        self._suite: Suite = open_suite(options.suite)
        self._task = task_of(self._suite, self._cell, options.robot, options.suite, options.run)
        self._conditions = self._suite.select(options.first + options.episodes)[options.first :]
        cell = CellChoice(self._cell, options.robot, options.start_lab, options.lab_seed)
        self._chosen = PolicyCell(cell, options.score, options.execution.lead_ticks)
        # Who takes over, and sees how it goes.
        self._seat: DeviceOperator | None = None
        self._person: Person | None = None
        self._watching: tuple[Subscriber, ...] = ()
        self._settings = settings_of(options.takeover)
        if options.takeover.by in DEVICES:
            self._seat = self._operator = device_operator(
                options.takeover,
                self._settings,
                operator,
                self._cell,
                self._suite.config.task,
                trials=options.episodes,
                max_steps=self._max_steps,
                write=write,
            )
        self._chosen.require_possible(self._operator)
        self._demand = load_demand(options.robot)
        self._permission = Permission("uncertified")
        lab = options.start_lab
        self._film = film_of(self._cell, options.robot, lab=lab) if options.video else None
        self._world = ""
        self._trials: list[TrialRecord] = []
        # Safety stops that it went on after.
        self._stops = 0
        self._details: list[TrialDetail] = []
        # Those of earlier deployments into the same folder, too.
        self._all_trials: tuple[TrialRecord, ...] = ()

    def run(self) -> DeployResult:
        """Everything, from the first check to the way home."""
        options, operator = self._options, self._operator
        with ExitStack() as stack:
            policy = open_policy(
                options.run,
                options.server,
                options.runtime,
                options.guidance,
                accept_edited=options.accept_edited,
            )
            stack.callback(policy.inference.close)
            operator.told("policy", f"{policy.where} on {self._cell.name} ({options.robot})")
            space = policy.inference.spec.task_space
            ticks_per_action(space, cell_spec(self._cell))
            require_understood(space, (self._instruction,))
            operator.told("task space fits", "observations and action agree with the robot")
            require_starts(self._conditions, self._cell, options.suite)
            self._permission = self._permit(policy)
            operator.told("certificate", self._permission.told())
            env, preflight = self._start(stack, policy)
            if options.mode != "run":
                watched = self._watch(env, policy)
                return self._write(policy, preflight, name=f"{options.mode}.json", watched=watched)
            store = EpisodeStore.open_or_create(options.out / "store")
            # The store's lock is the folder's: from here on no other deployment writes into it.
            recorder = stack.enter_context(self._recorder(store, env))
            self._details = list(earlier_details(options.out))
            table = stack.enter_context(TrialStore(options.out))
            operator.consent("the arm will move")
            stack.callback(operator.close)
            operator.told("keys", operator.listen(env.estop))
            self._join(stack, env)
            self._run_trials(env, policy, preflight, recorder, table)
            env.home()
            supervisor = env.status()
        if self._film is not None:
            self._videos(store, self._film)
        return self._write(policy, preflight, supervisor=supervisor)

    # -- before ----------------------------------------------------------------------------------

    def _permit(self, policy: Source) -> Permission:
        """Why this policy may drive; where nothing moves none is demanded."""
        options = self._options
        name, digest = self._executed(policy)
        demand = self._demand if options.mode == "run" else CertificateDemand("optional")
        return permit(
            Wanted(
                run=options.run,
                policy=name,
                policy_hash=digest,
                suite=self._suite.label,
                conditions=self._conditions,
                cell=self._cell.name,
                cell_hash=self._cell_hash,
            ),
            demand,
            lab=self._cell.lab,
            certificate=options.certificate,
            accept=options.accept_uncertified,
        )

    def _executed(self, policy: Source) -> tuple[str, str]:
        """Name and hash of the policy as trials record them."""
        options = self._options
        return executed_as(
            *(policy.name, policy.hash),
            execution=options.executed,
            runtime=options.runtime,
            guidance=options.guidance,
            aside=aside(self._suite.config, self._max_steps, self._instruction),
        )

    @property
    def _cell_hash(self) -> str:
        return config_hash(to_dict(self._cell), self._options.lab_seed)

    def _start(self, stack: ExitStack, policy: Source) -> tuple[RealEnv, Preflight]:
        opened = open_checked(stack, self._chosen, self._task, policy, self._operator)
        self._world = opened.world
        return opened.env, opened.preflight

    def _recorder(self, store: EpisodeStore, env: RealEnv) -> EpisodeRecorder:
        return EpisodeRecorder(
            store,
            spec=env.spec,
            kind="corrected" if self._options.takeover.by else "deployment",
            task_text=self._suite.config.instruction or self._task.name,
            operator=self._options.operator,
            autosave=False,
            keep_interrupted=True,
        )

    def _watch(self, env: RealEnv, policy: Source) -> Watched:
        """``dry_run``: one answer about what is seen now. ``shadow``: an episode of them."""
        condition, told = self._conditions[0], self._operator.told
        if self._options.mode == "dry_run":
            watched = first_action(env, policy.inference, condition, self._instruction)
            action = list(watched.first_action)
            told("dry run", f"the policy's first action would be {action}; nothing moved")
            return watched
        agent = self._agent(env, policy)
        watched = shadow(env, agent, policy.inference, condition, self._max_steps)
        told(
            "shadow",
            f"{watched.ticks} ticks: the policy's actions were {watched.median:.4f} (median) and at"
            f" most {watched.max:.4f} away from where the arm stood; nothing moved",
        )
        return watched

    def _agent(self, env: RealEnv, policy: Source) -> Agent:
        return policy_agent(
            *(policy, env, self._options.executed, self._instruction, self._person),
            self._settings.takeover,
        )

    def _join(self, stack: ExitStack, env: RealEnv) -> None:
        """Whoever takes over takes a seat."""
        if self._seat is not None:
            self._person, self._watching = (
                self._seat.sit(lambda: env.slowed, env.look),
                (self._seat,),
            )
        elif self._options.takeover.by:
            scripted = scripted_person(stack, env, self._suite.config.task)
            self._person, self._watching = scripted, (scripted,)

    @property
    def _max_steps(self) -> int:
        return self._options.max_steps or self._suite.config.max_steps

    @property
    def _instruction(self) -> str:
        """What a policy that reads text is told."""
        return self._options.instruction or self._suite.config.instruction

    # -- trials ----------------------------------------------------------------------------------

    def _run_trials(
        self,
        env: RealEnv,
        policy: Source,
        preflight: Preflight,
        recorder: EpisodeRecorder,
        table: TrialStore,
    ) -> None:
        agent, writer = self._agent(env, policy), TrialWriter(table, self._blank(policy))
        provenance = self._provenance(policy, preflight)
        for number, condition in enumerate(self._conditions, 1):
            placings = 0
            while True:
                self._operator.told("trial", f"{number}/{len(self._conditions)}: {condition.id}")
                writer.begin(condition)
                try:
                    result = run_episode(
                        env,
                        agent,
                        policy.inference,
                        [HoldAtEnd(env), recorder, writer, *self._watching],
                        condition,
                        max_steps=self._max_steps,
                        task=self._suite.config.task,
                        env_name=env.spec.name,
                        provenance=provenance,
                    )
                    self._keep(env, result, recorder.keep(), writer)
                    break
                except BaseException as error:
                    episode = recorder.keep_stopped()
                    why = str(error) or "stopped"
                    self._details.append(TrialDetail(condition.id, episode, aborted=why))
                    cut = writer.abort(error, _counted(env), episode)
                    if isinstance(error, SafetyStopError) and self._goes_on(env, error):
                        # A trial that had not begun begins anew.
                        if cut.status == "voided":
                            continue
                        break
                    placings += 1
                    again = isinstance(error, StartError) and self._operator.places
                    if not again or placings == _PLACINGS:
                        raise
                    self._operator.told("start", str(error))
                finally:
                    self._all_trials = table.all()
                    self._write(policy, preflight)

    def _goes_on(self, env: RealEnv, error: SafetyStopError) -> bool:
        """Whether a stop was cleared, so that the next trial may begin. A real arm, and a stop that
        somebody asked for, are looked at first.
        """
        if self._stops >= self._options.go_on_after_stop:
            return False
        self._stops += 1
        self._operator.told("stopped", str(error))
        text = "the arm stopped: find the cause and make the cell safe"
        refused = why_stopped_for_good(env, self._cell, self._operator, text)
        if refused:
            self._operator.told("stopped", refused)
        return not refused

    def _blank(self, policy: Source) -> TrialRecord:
        """What is the same in all trials of this deployment."""
        name, digest = self._executed(policy)
        return dataclasses.replace(
            blank_trial(self._cell, self._cell_hash, self._world),
            policy=name,
            policy_hash=digest,
            suite=self._suite.label,
            operator=self._options.operator,
        )

    def _keep(self, env: RealEnv, result: EpisodeResult, episode: str, writer: TrialWriter) -> None:
        events = tuple(
            Intervention(e.t_ns, e.cause.name.lower(), e.value, e.seq) for e in env.interventions
        )
        metrics = trial_metrics(result, env.tick_lateness_ns, env.overruns) | _counted(env)
        video = f"videos/{episode}.mp4" if self._film is not None else ""
        record = writer.finish(result, episode, video, metrics)
        self._trials.append(record)
        self._details.append(
            TrialDetail(
                condition=record.condition,
                episode=episode,
                start=result.reset.note,
                interventions=events,
                inference_ms=tuple(round(v * 1e-6, 3) for v in result.inference_ns),
                overrun_ms=tuple(round(v * 1e-6, 3) for v in result.overrun_ns),
                setpoint_lateness_ms=tuple(lateness_ms(env.tick_lateness_ns)),
            )
        )
        self._operator.told(
            "",
            f"score {record.score:.3f}, success {record.success},{_helped(record)}"
            f" {record.steps} steps,"
            f" {len(events)} intervention(s); start: {result.reset.note}",
        )
        self._operator.ended(record)

    def _provenance(self, policy: Source, preflight: Preflight) -> dict[str, Any]:
        options = self._options
        return {
            "command": "robolearn deploy",
            "policy": policy.where,
            "policy_hash": policy.hash,
            "execution": dataclasses.asdict(options.executed),
            # What a server does is told by those who started it.
            "guidance": None if options.server else options.guidance,
            "max_steps": self._max_steps,
            "instruction": self._instruction,
            **self._permission.to_json(),
            **recorded_settings(options.takeover, self._settings),
            "robot": to_dict(self._cell),
            LATENCIES: self._cell.latencies.to_json(),
            "devices": {name: dict(ids) for name, ids in preflight.devices.items()},
            "lab_seed": self._lab_seed,
            **recorded_params(self._task),
        }

    @property
    def _lab_seed(self) -> int | None:
        return self._options.lab_seed if self._options.start_lab else None

    # -- after -----------------------------------------------------------------------------------

    def _videos(self, store: EpisodeStore, film: Film) -> None:
        for record in self._trials:
            film.write(store.read(record.episode), self._options.out / record.video)

    def _write(
        self,
        policy: Source,
        preflight: Preflight,
        *,
        name: str = DOCUMENT,
        watched: Watched | None = None,
        supervisor: Status | None = None,
    ) -> DeployResult:
        """The result as it stands now, also as JSON."""
        details = tuple(self._details)
        inference = [v for d in details for v in d.inference_ms]
        lateness = [v for d in details for v in d.setpoint_lateness_ms]
        result = DeployResult(
            robot=self._cell.name,
            policy=policy.where,
            suite=self._suite.label,
            lab_seed=self._lab_seed,
            trials=tuple(self._trials),
            details=details,
            figures=figures(self._all_trials, inference, lateness),
            preflight=preflight,
            permission=self._permission,
            supervisor=supervisor,
            watched=watched,
        )
        path = self._options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(result.document(), indent=1, default=float)
        write_atomic(path, text + "\n")
        return result


def _helped(record: TrialRecord) -> str:
    driven = int(record.metrics.get(PERSON_STEPS, 0))
    if not driven:
        return ""
    solved = "solved" if record.metrics.get("corrected_success") else "not solved"
    return f" corrected ({solved} with help; the person drove {driven}),"


def _counted(env: RealEnv) -> dict[str, float]:
    return safety_metrics(len(env.interventions), env.implausible_poses)
