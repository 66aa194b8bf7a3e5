"""Runs blinded trials on a cell: several policies behind aliases, one arm, one lock."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.blinded.interim import interim
from eval.blinded.plan import BLIND, TrialPlan
from eval.blinded.queue import Standing, standing
from eval.blinded.schedule import unbalanced
from eval.trials.table import TrialStore, has_trials, read_trials
from hardware.devices.claim import lock_folder
from hardware.env.real_env import RealEnv
from robolearn.config import config_hash, to_dict
from robolearn.contracts import Agent, Subscriber
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.lock import StoreLock
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, SafetyStopError
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.cell.look import look_at
from robolearn.operations.cell.opened import open_cell
from robolearn.operations.cell.release import why_stopped_for_good
from robolearn.operations.deploy.figures import safety_metrics, trial_metrics
from robolearn.operations.deploy.opened import policy_agent
from robolearn.operations.deploy.policy import Source, policy_latency_s
from robolearn.operations.deploy.task import recorded_params
from robolearn.operations.deploy.trials import blank_trial
from robolearn.operations.pictures.draw import Drawn
from robolearn.operations.pictures.overlay import StartOverlay
from robolearn.operations.trial.episodes import STORE
from robolearn.operations.trial.operator import TrialOperator
from robolearn.operations.trial.options import TrialOptions
from robolearn.operations.trial.planned import (
    Draft,
    OpenedTrials,
    cell_hash,
    draft_trials,
    lock_trials,
    open_trials,
    trials_lock,
)
from robolearn.operations.trial.prepared import Prepared, prepare
from robolearn.operations.trial.session import TrialSession, redacted, uncompared
from robolearn.operations.trial.successor import Successor, require_rows
from robolearn.operations.trust.permission import Permission
from robolearn.runtime import EpisodeResult, run_episode
from robolearn.shapes import Picture
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.types import Condition, TrialRecord

# So long a picture is waited for that a person should see.
_PICTURE_S = 2.0


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Where the trials stand after a session; ``began``: whether it planned them. ``cells``: the
    file of each; ``uncompared``: pairs of which nobody said yet which trial was better, by cell;
    ``decided``: whether a sequential plan is, so that what it has left is not tried.
    """

    plan: str
    slots: int
    standing: Standing
    began: bool
    cells: Mapping[str, str]
    uncompared: Mapping[str, int]
    decided: bool


def run_trials(options: TrialOptions, operator: TrialOperator) -> SessionResult:
    """Plan the trials if need be and run those that wait on the cell, until all are done.

    Errors: ConfigError before anything is connected; RobotError and its kin for devices, without
    the names of policies. StoreLockedError: another process runs trials of this plan, or this cell.
    """
    with ExitStack() as stack:
        # What is planned is locked once all that needs no arm was looked at: a call that is refused
        # before leaves nothing behind.
        draft = draft_trials(options)
        if draft is None:
            stack.enter_context(trials_lock(options.out))
        trials = open_trials(options) if draft is None else draft.trials
        stack.enter_context(blinded_log(trials))
        try:
            return _run(stack, options, trials, draft, operator)
        except Exception as error:
            shown = redacted(trials, error)
            if shown is error:
                raise
            # The cause would tell the names.
            raise shown from None


def _run(
    stack: ExitStack,
    options: TrialOptions,
    trials: OpenedTrials,
    draft: Draft | None,
    operator: TrialOperator,
) -> SessionResult:
    plan = trials.locked.plan
    _require_asked(plan, operator)
    lock = StoreLock(_place_of(trials), f"the cell '{trials.cell.name}'")
    stack.callback(lock.release)
    ready = None
    if draft is not None:
        ready = prepare(stack, trials, options.overlay, operator)
        stack.enter_context(trials_lock(options.out))
        lock_trials(draft)
    word = "planned" if trials.began else "goes on"
    operator.told("plan", f"{trials.locked.hash}, {word}: {len(plan.slots)} trials of"
                          f" {len(plan.aliases)} policies, written {plan.written}")  # fmt: skip
    remark = unbalanced(plan.slots, pairs=plan.pairs) if trials.began else ""
    if remark:
        operator.told("balance", remark)
    store = EpisodeStore.open_or_create(trials.folder / STORE)
    blind = trials.folder / BLIND
    require_rows(store, read_trials(blind) if has_trials(blind) else ())
    table = stack.enter_context(TrialStore(blind, Successor(trials.locked, store, operator)))
    if not _is_over(trials, table, operator):
        ready = ready or prepare(stack, trials, options.overlay, operator)
        stage = CellStage.open(stack, options, trials, ready, store, operator)
        operator.consent("the arm will move")
        stack.callback(operator.close)
        operator.told("keys", operator.listen(stage.env.estop))
        TrialSession(trials, stage, table, operator, options.operator).run(options.at_most)
        stage.env.home()
    return _result(trials, table.all())


def _is_over(trials: OpenedTrials, table: TrialStore, operator: TrialOperator) -> bool:
    """Whether nothing is left to do on this cell, so that its arm is not even connected."""
    rows, cell = table.all(), trials.cell.name
    now = standing(trials.locked, rows)
    found = interim(trials.locked.plan, now, rows)
    if found is not None and found.decided:
        for line in found.lines:
            operator.told("so far", line)
        return True
    return not (now.waiting[cell] or uncompared(trials.folder, trials.locked, rows, now).get(cell))


def _result(trials: OpenedTrials, rows: Sequence[TrialRecord]) -> SessionResult:
    plan = trials.locked.plan
    now = standing(trials.locked, rows)
    found = interim(plan, now, rows)
    return SessionResult(
        plan=trials.locked.hash,
        slots=len(plan.slots),
        standing=now,
        began=trials.began,
        cells={name: cell.file for name, cell in plan.cells.items()},
        uncompared=uncompared(trials.folder, trials.locked, rows, now),
        decided=found is not None and found.decided,
    )


@contextmanager
def blinded_log(trials: OpenedTrials) -> Generator[None]:
    """What is logged meanwhile names no policy."""

    def redact(record: logging.LogRecord) -> bool:
        record.msg, record.args = trials.redact(record.getMessage()), ()
        # A traceback may name runs, and quote a server.
        record.exc_info, record.exc_text, record.stack_info = None, None, None
        return True

    # Without any handler Python writes warnings by its last resort.
    handlers = [h for h in (*logging.getLogger().handlers, logging.lastResort) if h is not None]
    for handler in handlers:
        handler.addFilter(redact)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(redact)


def _require_asked(plan: TrialPlan, operator: TrialOperator) -> None:
    """ConfigError where the plan wants answers that nobody gives."""
    if (plan.rubric or plan.pairs) and not operator.answers:
        raise ConfigError("the plan asks the operator after trials: that needs a terminal")
    if plan.score == "operator" and not operator.judges:
        raise ConfigError("score: the operator needs a terminal whose keys can be read")


def _place_of(trials: OpenedTrials) -> Path:
    """A folder of this computer that stands for the arm, whatever its file is called and whoever
    runs trials, with whatever TMPDIR.
    """
    place = lock_folder() / f"cell-{config_hash(trials.cell.driver)}"
    place.mkdir(mode=0o777, exist_ok=True)
    return place


@dataclass(slots=True)
class CellStage:
    """See :class:`robolearn.operations.trial.session.Stage`."""

    env: RealEnv
    trials: OpenedTrials
    policies: Mapping[str, tuple[Source, Agent]]
    recorder: EpisodeRecorder
    operator: TrialOperator
    blanks: TrialRecord
    provenance: Mapping[str, Any]
    stops_left: int
    # None: nobody asked for one.
    overlay: StartOverlay | None

    @classmethod
    def open(
        cls,
        stack: ExitStack,
        options: TrialOptions,
        trials: OpenedTrials,
        ready: Prepared,
        store: EpisodeStore,
        operator: TrialOperator,
    ) -> CellStage:
        """Open the cell and check it; ``stack`` closes it. Nothing moves."""
        plan, cell, sources = trials.locked.plan, trials.cell, ready.sources
        judge = None if plan.score == "operator" else ready.task
        opened = open_cell(stack, ready.chosen, judge, operator)
        env = opened.env
        devices = look_at(env, operator.told)
        _check_latencies(sources, plan.execution.lead_ticks, cell.rate_hz, operator)
        agents = {
            alias: (source, policy_agent(source, env, plan.execution, plan.instruction))
            for alias, source in sources.items()
        }
        recorder = stack.enter_context(
            EpisodeRecorder(
                store,
                spec=env.spec,
                kind="deployment",
                task_text=trials.suite.config.instruction or ready.task.name,
                operator=options.operator,
                autosave=False,
                keep_interrupted=True,
            )
        )
        # A locked plan permits its own trials: they are how one comes by a certificate.
        permission = Permission(
            "accepted", reason=f"trials of the locked plan {trials.locked.hash}"
        )
        operator.told("certificate", permission.told())
        provenance = {
            "command": "robolearn trial",
            "execution": dataclasses.asdict(plan.execution),
            "guidance": plan.guidance,
            "instruction": plan.instruction,
            "robot": to_dict(cell),
            LATENCIES: cell.latencies.to_json(),
            "devices": {name: dict(ids) for name, ids in devices.items()},
            "lab_seed": trials.lab_seed,
            **permission.to_json(),
            **recorded_params(ready.task),
        }
        digest = cell_hash(trials.cell, trials.lab_seed)
        blank = blank_trial(trials.cell, digest, opened.world)
        stops = options.go_on_after_stop
        return cls(
            *(env, trials, agents, recorder, operator, blank, provenance, stops),
            overlay=ready.overlay,
        )

    def blank(self, alias: str) -> TrialRecord:
        """What is the same in all trials here."""
        del alias
        return self.blanks

    def attempt(
        self,
        alias: str,
        condition: Condition,
        watchers: Sequence[Subscriber],
        provenance: Mapping[str, Any],
    ) -> EpisodeResult:
        """Run one episode and leave its recording undecided."""
        source, agent = self.policies[alias]
        plan = self.trials.locked.plan
        return run_episode(
            self.env,
            agent,
            source.inference,
            [HoldAtEnd(self.env), self.recorder, *watchers],
            condition,
            max_steps=plan.max_steps,
            task=self.trials.suite.config.task,
            env_name=self.env.spec.name,
            provenance={
                **self.provenance,
                **provenance,
                "policy": alias,
                "policy_hash": self.trials.key.sealed_hash(alias),
            },
        )

    def show(self, condition: Condition) -> None:
        """Write the camera's picture with the wanted start over it, or say why there is none: then
        no picture of an earlier start stands in its place, and placing goes on without one.
        """
        if self.overlay is None:
            return
        path = self.trials.folder / "start.png"
        trouble = self._write_start(self.overlay, condition, path)
        text = f"no picture shows where things belong: {trouble}"
        self.operator.told("start", text if trouble else f"{path} shows where things belong")

    def _write_start(self, overlay: StartOverlay, condition: Condition, path: Path) -> str:
        """What went wrong; "" for nothing."""
        try:
            # Anew each time: whoever places things again looks at what lies there now.
            path.unlink(missing_ok=True)
            seen = self._seen(overlay.camera)
            if seen is None:
                return f"the camera '{overlay.camera}' has sent no picture lately"
            wanted = overlay.over(condition, seen)
            if not overlay.trouble:
                Drawn(overlay.camera, wanted).write(path)
        except (OSError, ConfigError) as error:
            return str(error)
        return overlay.trouble

    def _seen(self, camera: str) -> Picture | None:
        """The newest picture; None where none comes."""
        deadline = time.monotonic() + _PICTURE_S
        while True:
            sample = self.env.look().samples.get(f"{camera}/image")
            if sample is not None or time.monotonic() > deadline:
                return None if sample is None else sample.value
            time.sleep(0.02)

    def keep(self) -> str:
        """Commit the recording; returns its id."""
        return self.recorder.keep()

    def keep_stopped(self) -> str:
        """Commit the recording of an attempt that was cut short, where there is one; its id."""
        return self.recorder.keep_stopped()

    def figures(self, result: EpisodeResult | None) -> Mapping[str, float]:
        """What was counted."""
        counted = safety_metrics(len(self.env.interventions), self.env.implausible_poses)
        if result is None:
            return counted
        return trial_metrics(result, self.env.tick_lateness_ns, self.env.overruns) | counted

    def goes_on(self, error: SafetyStopError) -> bool:
        """Whether a stop was cleared; as many as the session may go on after."""
        if not self.stops_left:
            return False
        self.stops_left -= 1
        self.operator.told("stopped", str(redacted(self.trials, error)))
        text = "the arm stopped: find the cause and make the cell safe"
        refused = why_stopped_for_good(self.env, self.trials.cell, self.operator, text)
        if refused:
            self.operator.told("stopped", refused)
        return not refused


def _check_latencies(
    sources: Mapping[str, Source], lead_ticks: int, rate_hz: float, operator: TrialOperator
) -> None:
    """One sentence for all: how long each one takes might tell which it is."""
    slowest_s = max(policy_latency_s(source.inference) for source in sources.values())
    lead_s = lead_ticks / rate_hz
    fits = "fits" if slowest_s < lead_s else "DOES NOT FIT"
    operator.told("policies", f"the slowest call {fits} the lead of {1e3 * lead_s:.0f} ms")
