"""What ``robolearn deploy`` puts together: policy worker, lab, robot env, recorder, trials."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import os
import sys
import time
from contextlib import ExitStack
from typing import Any

import numpy as np

from eval.trials.instruments import InstructedAgent
from eval.trials.suites import Suite
from eval.trials.table import TrialStore
from hardware.cell.config import CellConfig
from hardware.cell.device_ids import device_ids
from hardware.cell.load import load_cell
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv, Scorer, cell_spec
from hardware.env.shadow_env import ShadowEnv
from robolearn.agents.chunk import policy_input, ticks_per_action
from robolearn.cli.deploy.cell import (
    HoldAtEnd,
    KeyScorer,
    LabPlacement,
    LabScorer,
    PromptPlacement,
    WholeCommand,
    limits_text,
    require_starts,
)
from robolearn.cli.deploy.command import Args
from robolearn.cli.deploy.figures import figures, lateness_ms, trial_metrics
from robolearn.cli.deploy.keys import HELP, Keys
from robolearn.cli.deploy.policy import Source, open_policy, policy_latency_s
from robolearn.cli.deploy.trials import DOCUMENT, TrialWriter, earlier_details
from robolearn.cli.deploy.video import Film, film_of
from robolearn.cli.shared.consent import ask
from robolearn.cli.shared.parse import say
from robolearn.config import config_hash, to_dict
from robolearn.contracts import Agent
from robolearn.data.provenance import git_revision
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, InferenceError
from robolearn.files import write_atomic
from robolearn.instructions import require_understood
from robolearn.operations.builders import executed_as
from robolearn.operations.suites import open_suite
from robolearn.runtime import EpisodeResult, run_episode
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.timing.latencies import differences
from robolearn.types import TrialRecord
from sim.tasks.registry import build_task

log = logging.getLogger(__name__)

# Above every ordinary program, below the supervisor (50) and the lab's controller (40).
_AGENT_PRIORITY, _LAB_PRIORITY = 5, 40
CERTIFICATE = "uncertified"
LOOPBACK = "127.0.0.1"


class Deployment:
    """One run of the command."""

    def __init__(self, args: Args) -> None:
        self._args = args
        self._quiet = args.json
        self.cell: CellConfig = args.limits.on(load_cell(args.robot))
        self.suite: Suite = open_suite(args.suite)
        self._task = build_task(self.suite.config.task, {}, where=str(args.suite))
        self.conditions = self.suite.select(args.first + args.episodes)[args.first :]
        self.policy: Source | None = None
        # A terminal that answers questions also has the keys that score and stop.
        self._keys = Keys(sys.stdin.fileno()) if sys.stdin.isatty() else None
        if args.score == "operator" and self._keys is None:
            raise ConfigError("--score operator needs a terminal whose keys can be read")
        self.trials: list[TrialRecord] = []
        # Those of earlier deployments into the same folder, too.
        self._all_trials: tuple[TrialRecord, ...] = ()
        self._details: list[dict[str, Any]] = []
        self._devices: dict[str, dict[str, str]] = {}
        self._facts: dict[str, Any] = {}
        self._world = ""
        self._film = film_of(self.cell, args.robot, lab=args.start_lab) if args.video else None
        if args.start_lab and not self.cell.lab:
            raise ConfigError(
                f"{args.robot} describes a real cell (robot.lab is false); leave --start-lab out"
            )

    @property
    def finished(self) -> int:
        """Trials that are scored and saved."""
        return len(self.trials)

    def run(self) -> dict[str, Any]:
        """Everything, from the first check to the way home; returns ``deploy.json``."""
        args = self._args
        with ExitStack() as stack:
            policy = self.policy = open_policy(args.run, args.server, args.runtime, args.guidance)
            stack.callback(policy.inference.close)
            say(f"policy {policy.where} on {self.cell.name} ({args.robot})", quiet=self._quiet)
            ticks_per_action(policy.inference.spec.task_space, cell_spec(self.cell))
            require_understood(policy.inference.spec.task_space, (self._instruction,))
            self._checked("task space fits", "observations and action agree with the robot")
            require_starts(self.conditions, self.cell, args.suite)
            env = self._start_env(stack)
            self._preflight(env, policy)
            if args.dry_run or args.shadow:
                self._facts["shadow"] = self._watch(env, policy)
                return self._write("dry_run.json" if args.dry_run else "shadow.json")
            self._details = earlier_details(args.out)
            table = stack.enter_context(TrialStore(args.out))
            store = EpisodeStore.open_or_create(args.out / "store")
            ask("the arm will move", yes=args.yes)
            self._listen(stack, env)
            recorder = stack.enter_context(
                EpisodeRecorder(
                    store,
                    spec=env.spec,
                    kind="deployment",
                    task_text=self.suite.config.instruction or self._task.name,
                    operator=args.operator,
                    autosave=False,
                )
            )
            self._trials(env, policy, recorder, table)
            env.home()
            self._facts["supervisor"] = dataclasses.asdict(env.status())
        if self._film is not None:
            self._videos(store, self._film)
        document = self._write()
        self._show(document)
        return document

    # -- before ----------------------------------------------------------------------------------

    def _start_env(self, stack: ExitStack) -> RealEnv:
        args, cell = self._args, self.cell
        place: LabPlacement | PromptPlacement = PromptPlacement(not args.yes, self._keys)
        scorer: Scorer | None = self._task if args.score == "task" else None
        if args.start_lab:
            lab = LabProcess(args.robot, address=cell.address or LOOPBACK, seed=args.lab_seed)
            stack.callback(lab.stop)
            _real_time(lab.pid, _LAB_PRIORITY, inherit=False)
            client = lab.where.connect()
            stack.callback(client.close)
            objects = {signal: t.object(signal) for signal, t in cell.trackers.items()}
            place = LabPlacement(client, objects)
            if objects and scorer is not None:
                scorer = LabScorer(client, scorer, objects)
            self._world = lab.where.world
            self._checked(
                "virtual lab",
                f"{self._world}, serves at {lab.where.address} (seed {args.lab_seed})",
            )
        self._facts["agent_real_time"] = _real_time(0, _AGENT_PRIORITY, inherit=True)
        if self._keys is not None:
            scorer = KeyScorer(scorer, self._keys)
        if scorer is None:
            raise ConfigError("nobody scores: give a terminal, or leave --score operator out")
        env = RealEnv(cell, place=place, scorer=scorer, settable_poses=args.start_lab)
        stack.callback(env.close)
        return env

    def _preflight(self, env: RealEnv, policy: Source) -> None:
        self._devices = device_ids(self.cell)
        told = [
            f"{name} {ids.get('serial_number', ids['kind'])}" for name, ids in self._devices.items()
        ]
        self._checked("devices", ", ".join(told))
        state = env.supervisor.state()
        self._checked(
            "robot", f"{state.mode.name.lower()}, joints {np.round(state.joint_position, 2)}"
        )
        supervisor = "real-time priority" if env.supervisor.real_time else "no real-time priority"
        self._checked("supervisor", f"process {env.supervisor.pid}, {supervisor}")
        env.trackers.wait(2.0)
        for tracker in env.trackers:
            pose = tracker.latest()
            age_ms = (time.monotonic_ns() - pose.t_ns) * 1e-6
            told = f"{tracker.name} at {np.round(pose.pose, 3)}, {age_ms:.0f} ms old"
            self._checked("tracker", told)
        latency_s = policy_latency_s(policy.inference)
        lead_s = self._args.execution.lead_ticks / self.cell.rate_hz
        told = f"one call {1e3 * latency_s:.1f} ms"
        if latency_s < lead_s:
            self._checked("policy", f"{told}, fits the lead of {1e3 * lead_s:.0f} ms")
        else:
            enough = math.ceil(latency_s * self.cell.rate_hz)
            self._checked(
                "policy",
                f"{told}, DOES NOT FIT the lead of {1e3 * lead_s:.0f} ms: give --lead-ticks"
                f" {enough}, stop other programs, or give --no-realtime-chunking",
            )
        self._checked("limits", limits_text(self.cell))
        self._checked("certificate", CERTIFICATE)
        self._latencies(policy)
        self._facts |= {
            "policy_call_ms": 1e3 * latency_s,
            "supervisor_real_time": env.supervisor.real_time,
            LATENCIES: self.cell.latencies.to_json(),
        }

    def _latencies(self, policy: Source) -> None:
        """What is compensated here, and whether the policy was trained with something else."""
        here = self.cell.latencies
        told = f"actions are sent {1e3 * here.command_s:.0f} ms ahead"
        if policy.trained is None:
            self._checked("latencies", f"{told}; those of the training are not known (a server)")
            return
        names = [s.name for s in policy.inference.spec.task_space.observations]
        lines = differences(policy.trained, here, names)
        self._facts["latencies_differ"] = lines
        if not lines:
            self._checked("latencies", f"{told}; observations arrive as in training")
            return
        self._checked("latencies", f"{told}; DIFFERENT FROM TRAINING: {'; '.join(lines)}")
        self._checked(
            "", "train with data.latency_s (docs/calibration.md), or mend the slow stream"
        )

    def _checked(self, what: str, told: str) -> None:
        say(f"  {what:<14} {told}", quiet=self._quiet)

    def _listen(self, stack: ExitStack, env: RealEnv) -> None:
        """Keys from now on, where there is a terminal."""
        if self._keys is None:
            self._checked("keys", "no terminal: no emergency stop key, no score key")
            return
        stack.callback(self._keys.close)
        self._keys.start(env.estop)
        self._checked("keys", HELP)

    def _watch(self, env: RealEnv, policy: Source) -> dict[str, Any]:
        """``--dry-run``: one answer about what is seen now. ``--shadow``: an episode of them."""
        if self._args.dry_run:
            spec = policy.inference.spec
            asked = policy_input([env.watch(self.conditions[0])], spec, self.conditions[0].seed)
            policy.inference.submit(0, dataclasses.replace(asked, task=(self._instruction,)))
            deadline = time.monotonic() + 10.0
            while (reply := policy.inference.poll(0, time.monotonic_ns())) is None:
                if time.monotonic() > deadline:
                    raise InferenceError("the policy did not answer within 10 s")
                time.sleep(0.002)
            first = [round(float(v), 4) for v in reply.actions[0, 0, 0]]
            self._checked("dry run", f"the policy's first action would be {first}; nothing moved")
            return {"first_action": first}
        shadow = ShadowEnv(env)
        result = run_episode(
            shadow,
            self._agent(env, policy),
            policy.inference,
            [],
            self.conditions[0],
            max_steps=self._args.max_steps or self.suite.config.max_steps,
        )
        size = [float(np.linalg.norm(d)) for d in shadow.deviations]
        told = {"median": float(np.median(size)), "max": max(size), "ticks": result.steps}
        self._checked(
            "shadow",
            f"{result.steps} ticks: the policy's actions were {told['median']:.4f} (median) and at"
            f" most {told['max']:.4f} away from where the arm stood; nothing moved",
        )
        return told

    def _agent(self, env: RealEnv, policy: Source) -> Agent:
        agent: Agent = self._args.executed.agent(
            policy.inference.spec, env.spec, policy.name, self.cell.command_latency_s
        )
        if self._instruction:
            agent = InstructedAgent(agent, self._instruction)
        return WholeCommand(agent, lambda: env.standing)

    @property
    def _instruction(self) -> str:
        """What a policy that reads text is told."""
        return self._args.instruction or self.suite.config.instruction

    @property
    def _source(self) -> Source:
        if self.policy is None:
            raise RuntimeError("no policy is open")
        return self.policy

    # -- trials ----------------------------------------------------------------------------------

    def _trials(
        self, env: RealEnv, policy: Source, recorder: EpisodeRecorder, table: TrialStore
    ) -> None:
        agent, writer = self._agent(env, policy), TrialWriter(table, self._blank())
        for number, condition in enumerate(self.conditions, 1):
            say(f"trial {number}/{len(self.conditions)}: {condition.id}", quiet=self._quiet)
            writer.begin(condition)
            try:
                result = run_episode(
                    env,
                    agent,
                    policy.inference,
                    [HoldAtEnd(env), recorder, writer],
                    condition,
                    max_steps=self._args.max_steps or self.suite.config.max_steps,
                    task=self.suite.config.task,
                    env_name=env.spec.name,
                    provenance=self._provenance(),
                )
                self._keep(env, result, recorder.keep(), writer)
            except BaseException as error:
                self._details.append({"condition": condition.id, "aborted": str(error)})
                writer.abort(error, len(env.interventions))
                raise
            finally:
                self._all_trials = table.all()
                self._write()

    def _blank(self) -> TrialRecord:
        """What is the same in all trials of this deployment."""
        args, lab = self._args, self.cell.lab
        name, digest = executed_as(
            *(self._source.name, self._source.hash),
            execution=args.executed,
            runtime=args.runtime,
            guidance=args.guidance,
        )
        engine = f"virtual lab, {self._world}" if self._world else "virtual lab"
        return TrialRecord(
            policy=name,
            policy_hash=digest,
            env=self.cell.name,
            env_hash=config_hash(to_dict(self.cell), args.lab_seed),
            engine=engine if lab else "robot",
            kind="lab" if lab else "robot",
            condition="",
            seed=0,
            success=False,
            score=0.0,
            final_progress=0.0,
            return_=0.0,
            steps=0,
            duration_s=0.0,
            reason="",
            commit=git_revision(),
            suite=self.suite.label,
            operator=args.operator,
            status="started",
        )

    def _keep(self, env: RealEnv, result: EpisodeResult, episode: str, writer: TrialWriter) -> None:
        events = [
            {"t_ns": e.t_ns, "cause": e.cause.name.lower(), "value": e.value, "command": e.seq}
            for e in env.interventions
        ]
        metrics = trial_metrics(result, env.tick_lateness_ns, env.overruns, len(events))
        video = f"videos/{episode}.mp4" if self._film is not None else ""
        record = writer.finish(result, episode, video, metrics)
        self.trials.append(record)
        self._details.append(
            {
                "condition": record.condition,
                "episode": episode,
                "start": result.reset.note,
                "interventions": events,
                "inference_ms": [round(v * 1e-6, 3) for v in result.inference_ns],
                "overrun_ms": [round(v * 1e-6, 3) for v in result.overrun_ns],
                "setpoint_lateness_ms": lateness_ms(env.tick_lateness_ns),
            }
        )
        say(
            f"  score {record.score:.3f}, success {record.success}, {record.steps} steps,"
            f" {len(events)} intervention(s); start: {result.reset.note}",
            quiet=self._quiet,
        )

    def _provenance(self) -> dict[str, Any]:
        return {
            "command": "robolearn deploy",
            "policy": self._source.where,
            "policy_hash": self._source.hash,
            "execution": dataclasses.asdict(self._args.executed),
            # What a server does is told by those who started it.
            "guidance": None if self._args.server else self._args.guidance,
            "instruction": self._instruction,
            "certificate": CERTIFICATE,
            "robot": to_dict(self.cell),
            LATENCIES: self.cell.latencies.to_json(),
            "devices": self._devices,
            "lab_seed": self._args.lab_seed if self._args.start_lab else None,
        }

    # -- after -----------------------------------------------------------------------------------

    def _videos(self, store: EpisodeStore, film: Film) -> None:
        for record in self.trials:
            film.write(store.read(record.episode), self._args.out / record.video)

    def _write(self, name: str = DOCUMENT) -> dict[str, Any]:
        out = self._args.out
        out.mkdir(parents=True, exist_ok=True)
        document = {
            "robot": self.cell.name,
            "policy": self._source.where,
            "suite": self.suite.label,
            "certificate": CERTIFICATE,
            "lab_seed": self._args.lab_seed if self._args.start_lab else None,
            **figures(self._all_trials, self._details),
            **self._facts,
            "trials": self._details,
        }
        write_atomic(out / name, json.dumps(document, indent=1, default=float) + "\n")
        return document

    def _show(self, document: dict[str, Any]) -> None:
        say(
            f"{document['episodes']} trial(s), mean score {document['mean_score']:.3f},"
            f" {document['successes']} success(es); policy latency p50"
            f" {document['inference_ms_p50']:.1f} ms, p99 {document['inference_ms_p99']:.1f} ms;"
            f" {document['overruns']} late tick(s), {document['interventions']} intervention(s)",
            quiet=self._quiet,
        )
        say(f"results: {self._args.out}", quiet=self._quiet)


def _real_time(pid: int, priority: int, *, inherit: bool) -> bool:
    policy = os.SCHED_FIFO if inherit else os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
    try:
        os.sched_setscheduler(pid, policy, os.sched_param(priority))
    except OSError as error:
        log.info("no real-time priority for process %d: %s", pid, error)
        return False
    return True
