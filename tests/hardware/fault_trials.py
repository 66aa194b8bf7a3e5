"""Randomised fault trials of agent and link, judged at the emulated controller's side.

    python -m tests.hardware.fault_trials agent 500
    python -m tests.hardware.fault_trials link 200

An agent trial: a process of its own drives the arm through its supervisor and then is killed, hangs
or misbehaves at a random moment. A link trial: the connection drops, hangs or carries garbage, or
the whole controller freezes, at a random moment between the first byte of the connection and the
motion. Both use the unmodified ``ur_rtde``; what the controller received is what counts, and
``fault_verdict.py`` says what is allowed. A trial that failed because the emulated controller was
held up by its machine (by its own ticks) is told and made again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.emulators.lab.admin import LabClient
from hardware.emulators.lab.launch import LabProcess
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import Target
from robolearn.errors import DataError, RobolearnError, RobotError
from tests.hardware.fault_tally import STALLED, Tally, Trial
from tests.hardware.fault_verdict import (
    LATCHED,
    STALLED_S,
    TOLD_S,
    Ending,
    agent_allowed,
    ending,
    excused,
    gaps,
    link_allowed,
    out_of_limits,
    still_after,
)
from tests.hardware.lab import CONFIG
from tests.hardware.real_cell import cell_at, prompt_lab
from tests.hardware.workcell import FOLLOWER, joints_at
from tests.waiting import paced, pass_time, wait_until

KILLING = ("killed", "group killed", "hung")
COMMANDS = ("nan", "infinite", "stale", "ahead", "disordered", "far", "shape", "silent")
AGENT_FAULTS = (*KILLING, *COMMANDS)
LINK_FAULTS = ("drop", "hang", "freeze", "garbage")
AGENT_PRIORITY = 5
# Bad commands come for longer than an arm may take to come to rest [s].
BAD_COMMANDS, _BAD_S, _WATCHED_S, _COMMAND_S = 12, 0.96, 0.6, 0.1


def misbehave(client: SupervisorClient, fault: str, seq: int, rng: random.Random) -> None:
    """Send what a broken agent would send, whatever the supervisor does meanwhile."""
    bad = {"nan": np.nan, "infinite": np.inf, "far": rng.choice([-9.0, 4.0, 1e300])}
    value = np.array([bad.get(fault, 0.3), rng.uniform(0.1, 0.4)])
    late_ns = {"stale": -600_000_000, "ahead": 5_000_000_000}.get(fault, 0)
    for k in range(BAD_COMMANDS):
        number = seq - 20 if fault == "disordered" else seq + k
        due = time.monotonic_ns() + late_ns
        if fault == "shape":
            with contextlib.suppress(DataError):
                client.command(Target(number, due, np.zeros(7), np.zeros((0, 7))))
        elif fault != "silent":
            plan = np.full((3, 2), np.nan if fault == "nan" and rng.random() < 0.5 else 0.3)
            client.command(Target(number, due, value, plan))
        pass_time(_BAD_S / BAD_COMMANDS, "the rate of a broken agent")


def wander(client: SupervisorClient, rng: random.Random, seq: int, seconds: float) -> int:
    """One more command of a drive across the table, and a pause; returns the next number."""
    xy = np.array([rng.uniform(0.05, 0.46), rng.uniform(0.05, 0.46)])
    client.command(Target(seq, time.monotonic_ns(), xy, np.zeros((0, 2))))
    pass_time(seconds, "until the next command")
    return seq + 1


def trial_cell(address: str) -> CellConfig:
    """The lab's cell with the times of its config, but for those that a busy test machine breaks:
    a stalled emulator or agent is not what is tested here.
    """
    patient = cell_at(address)
    own = load_cell(CONFIG).supervisor
    times = dataclasses.replace(
        patient.supervisor,
        late_s=own.late_s,
        heartbeat_s=own.heartbeat_s,
        frozen_s=3.0,
        goto_speed=1.2,
    )
    return dataclasses.replace(
        patient, driver={**patient.driver, "watchdog_hz": 10.0}, supervisor=times
    )


def as_deployed() -> None:
    """The agent's real-time priority, where that is permitted: below the supervisor's."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(AGENT_PRIORITY))


def start(client: SupervisorClient, pipe) -> None:
    """To the start, and from there on the agent is followed; says so."""
    client.request("goto", [joints_at((0.256, 0.3), 0.1), joints_at((0.256, 0.3))])
    client.request("follow")
    pipe.send((os.getpid(), client.pid))


def agent(cell: CellConfig, seed: int, pipe) -> None:
    """The agent's process: drives until it is killed, or told to misbehave (again and again)."""
    os.setpgid(0, 0)
    as_deployed()
    rng = random.Random(seed)
    client = SupervisorClient(
        *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
    )
    start(client, pipe)
    seq = 0
    while True:
        if pipe.poll(0):
            fault = pipe.recv()
            if not fault:
                break
            # Silence begins when a command is missing, anything else at any time after a good one.
            seq = wander(client, rng, seq, _COMMAND_S * (fault == "silent" or rng.random()))
            client.events()
            at_ns = time.monotonic_ns()
            pipe.send(at_ns)
            misbehave(client, fault, seq, rng)
            seq += BAD_COMMANDS
            status = client.status()
            told_ns = [e.t_ns for e in client.events() if e.cause is status.cause]
            told_s = 1e-9 * (told_ns[0] - at_ns) if told_ns else 0.0
            pipe.send(Ending(status.mode, status.cause, told_s))
            if fault in LATCHED and status.cause is LATCHED[fault]:
                # As an operator would: nothing but this leads on.
                client.clear()
                start(client, pipe)
        else:
            seq = wander(client, rng, seq, _COMMAND_S)
    client.close()


def agent_trials(
    lab: LabProcess, faults: list[str], seed: int, patience_s: float = 0.0
) -> list[Trial]:
    """One agent lives through all command faults and the last of ``faults`` may end it.

    ``patience_s`` is added to what is allowed.
    """
    rng = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    begin_ns = time.monotonic_ns()
    cell = trial_cell(lab.where.address)
    process = context.Process(target=agent, args=(cell, seed, theirs))
    process.start()
    theirs.close()
    trials = []
    try:
        pids: tuple[int, int] | None = None
        with lab.where.connect() as door:
            for fault in faults:
                # After a stop it begins anew.
                pids = pids or _started(ours)
                if pids is None:
                    return [*trials, _no_agent(lab, begin_ns)]
                pass_time(rng.uniform(0.3, 0.6), "a fault comes at any moment of the drive")
                watch = _Watched(door, cell, ours, *pids, begin_ns, patience_s)
                trials.append(watch.trial(fault))
                if trials[-1].fault == STALLED or math.isinf(trials[-1].rest_s):
                    return trials
                pids = None if fault in LATCHED else pids
        if faults[-1] not in KILLING:
            ours.send("")
            process.join(15)
    finally:
        process.kill()
        process.join(10)
    return trials


def _started(pipe) -> tuple[int, int] | None:
    """The agent's process and its supervisor's, which follows it; None when the arm came to a stop
    on its way to the start: the agent's log says why, and the controller.
    """
    if not pipe.poll(60):
        raise RobotError("the agent does not start")
    try:
        return pipe.recv()
    except EOFError:
        return None


@dataclass(frozen=True)
class _Watched:
    """An agent in its process, seen from the lab's side door."""

    door: LabClient
    cell: CellConfig
    pipe: Any
    pid: int
    supervisor: int
    begin_ns: int
    patience_s: float

    def trial(self, fault: str) -> Trial:
        at_ns = self._cause(fault)
        if not at_ns:
            return Trial(fault, np.inf, "the agent does not answer")
        rest_ns = _wait_rest(self.door, at_ns)
        if fault in COMMANDS:
            if not self.pipe.poll(20):
                return Trial(fault, np.inf, "the agent did not survive")
            if end := self._ending(fault, self.pipe.recv()):
                return self._stopped(fault, end)
        if fault == "hung":
            os.kill(self.pid, signal.SIGKILL)
        if fault in KILLING:
            wait_until(lambda: not Path(f"/proc/{self.supervisor}").exists(), 15.0)
        return self._judged(fault, at_ns, rest_ns)

    def _ending(self, fault: str, end: Ending) -> str:
        period_s = _BAD_S / BAD_COMMANDS + self.patience_s
        return ending(fault, end, self.cell.supervisor.far_s, period_s)

    def _cause(self, fault: str) -> int:
        """When it began; 0 when the agent is gone."""
        at_ns = time.monotonic_ns()
        if fault == "group killed":
            os.killpg(self.pid, signal.SIGKILL)
        elif fault in KILLING:
            os.kill(self.pid, signal.SIGSTOP if fault == "hung" else signal.SIGKILL)
        else:
            self.pipe.send(fault)
            at_ns = self.pipe.recv() if self.pipe.poll(20) else 0
        return at_ns

    def _judged(self, fault: str, at_ns: int, rest_ns: float) -> Trial:
        log = self.door.log(self.begin_ns)
        until_ns = at_ns + round(_WATCHED_S * 1e9)
        allowed = agent_allowed(log, at_ns, self.cell)
        still_s, rest_s = still_after(log, at_ns, until_ns), (rest_ns - at_ns) * 1e-9
        lost = gaps(log, at_ns - 100_000_000, until_ns)
        excess_s = max(still_s - allowed.still_s, rest_s - allowed.rest_s)
        late = (
            f"set-points still after {1e3 * still_s:.0f} of {1e3 * allowed.still_s:.0f} ms, at rest"
            f" after {1e3 * rest_s:.0f} of {1e3 * allowed.rest_s:.0f} ms"
        ) * (excess_s > self.patience_s)
        wrong = out_of_limits(log) or late
        figures = (allowed.rest_s, allowed.speed, still_s, sum(lost))
        if wrong and wrong == late and excused(excess_s, lost):
            return Trial(STALLED, rest_s, "", 0.0, f"{fault}: {late}; {lost}", *figures)
        return Trial(fault, rest_s, wrong, 0.0, "", *figures)

    def _stopped(self, fault: str, end: str) -> Trial:
        """A stop is safe, but not the documented answer to this command."""
        log = self.door.log(self.begin_ns)
        self.door.fault("unlock")
        why = [e.detail for e in log.events if e.kind in ("protective_stop", "program_stopped")]
        lost = gaps(log, time.monotonic_ns() - 3_000_000_000, time.monotonic_ns())
        told = f"{end} {why}; {lost}"
        wrong = out_of_limits(log)
        if not wrong and max(lost, default=0.0) > STALLED_S:
            return Trial(STALLED, np.inf, "", error=f"{fault}: {told}", lost_s=sum(lost))
        return Trial(fault, np.inf, wrong or told, lost_s=sum(lost))


def _no_agent(lab: LabProcess, begin_ns: int) -> Trial:
    with lab.where.connect() as door:
        log = door.log(begin_ns)
    why = [e.detail for e in log.events if e.kind in ("protective_stop", "program_stopped")]
    lost = gaps(log, begin_ns, time.monotonic_ns())
    return Trial("no agent", 0.0, out_of_limits(log), error=f"{why}; {lost}", lost_s=sum(lost))


def _wait_rest(door: LabClient, at_ns: int, timeout_s: float = 5.0) -> float:
    """When the arm came to rest for good (it is watched for 0.6 s); infinite if it did not."""
    _watch(at_ns)
    for _ in paced(50, round(50 * timeout_s)):
        log = door.log(at_ns)
        if not log.moving:
            return max([at_ns, *log.times("rest")])
    return math.inf


def _watch(since_ns: int) -> None:
    left_s = _WATCHED_S - (time.monotonic_ns() - since_ns) * 1e-9
    pass_time(left_s, "an arm may come to rest and move again")


class _Break:
    """Breaks the link once, and mends it."""

    def __init__(self, lab: LabProcess, door: LabClient, fault: str, delay_s: float) -> None:
        self._lab, self._door, self._fault = lab, door, fault
        self.begin_ns = self.end_ns = 0
        self._timer = threading.Timer(delay_s, self._cause)

    def start(self) -> None:
        """From now on the delay counts."""
        self._timer.start()

    def mend(self) -> None:
        """After the fault; not before the arm had its time to come to rest."""
        if self._timer.ident is None:
            return
        self._timer.join()
        _watch(self.begin_ns)
        self.end_ns = self.begin_ns
        if self._fault == "hang":
            self._door.fault("hang", seconds=0.0)
        elif self._fault == "freeze":
            # Its world stood still, too: the time that counts begins now.
            os.kill(self._lab.pid, signal.SIGCONT)
            self.end_ns = time.monotonic_ns()

    def _cause(self) -> None:
        self.begin_ns = time.monotonic_ns()
        if self._fault == "freeze":
            os.kill(self._lab.pid, signal.SIGSTOP)
        elif self._fault == "hang":
            self._door.fault("hang", seconds=20.0)
        elif self._fault == "drop":
            self._door.fault("drop_links")
        else:
            self._door.fault("garbage", size=512.0)


def link_trial(
    lab: LabProcess, fault: str, delay_s: float, moving: bool, patience_s: float = 0.0
) -> Trial:
    """The link fails ``delay_s`` after connecting began, or after the arm began to move.

    ``patience_s`` is added to what is allowed.
    """
    cell = trial_cell(lab.where.address)
    begin_ns = time.monotonic_ns()
    with lab.where.connect() as door:
        broken = _Break(lab, door, fault, delay_s)
        told_ns, error = _drive_on(cell, broken, moving)
        if not broken.begin_ns:
            # It did not even get that far; without a fault this is no trial.
            return Trial(f"no {fault}", 0.0, out_of_limits(door.log(begin_ns)), error=error)
        rest_ns = _wait_rest(door, broken.end_ns, 10.0)
        log = door.log(begin_ns)
    wrong = out_of_limits(log) or ("" if rest_ns < math.inf else "no rest")
    begun = [t for t in log.times("program_started") if t < broken.begin_ns]
    if not error and fault in ("drop", "garbage") and not begun:
        # There was no link yet that could drop or carry garbage.
        return Trial(f"no {fault}", 0.0, wrong)
    name = f"{fault}, {'moving' if moving else 'start'}"
    if not error:
        wrong = wrong or ("" if fault == "garbage" else "nobody was told")
        return Trial(name, 0.0, wrong, allowed_s=math.inf)
    rest_s, told_s = (rest_ns - broken.end_ns) * 1e-9, (told_ns - broken.begin_ns) * 1e-9
    allowed = link_allowed(log, broken.begin_ns, broken.end_ns, cell)
    lost = gaps(log, broken.end_ns, broken.end_ns + round(_WATCHED_S * 1e9))
    late = [("rest", rest_s, allowed.rest_s + patience_s), ("told", told_s, TOLD_S + patience_s)]
    told = ", ".join(f"{k} after {1e3 * s:.0f} of {1e3 * a:.0f} ms" for k, s, a in late if s > a)
    figures = (allowed.rest_s, allowed.speed, 0.0, sum(lost))
    if not wrong and told and excused(max(s - a for _, s, a in late), lost):
        return Trial(STALLED, rest_s, "", told_s, f"{name}: {told}; {lost}; {error}", *figures)
    return Trial(name, rest_s, wrong or told, told_s, error, *figures)


def _drive_on(cell: CellConfig, broken: _Break, moving: bool) -> tuple[int, str]:
    """Connect and move until somebody says what is wrong: when, and what ("": nobody did)."""
    client: SupervisorClient | None = None
    try:
        if not moving:
            broken.start()
        client = SupervisorClient(
            *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
        )
        client.request("goto", [joints_at((0.2, 0.3), 0.1)])
        if moving:
            broken.start()
        client.request("goto", [joints_at((0.4, 0.4), 0.1), joints_at((0.1, 0.1), 0.1)])
        for _ in paced(100, 600):
            client.require_running()
            client.state()
    except RobolearnError as problem:
        return time.monotonic_ns(), f"{type(problem).__name__}: {problem}"[:120]
    finally:
        broken.mend()
        if client is not None:
            client.close()
    return 0, ""


def agent_plan(count: int, seed: int) -> list[list[str]]:
    """Faults in random order, grouped by the agent that lives through them."""
    rng = random.Random(seed)
    groups, left = [], count
    while left > 0:
        size = min(left, rng.randint(2, 8))
        groups.append([*(rng.choice(COMMANDS) for _ in range(size - 1)), rng.choice(KILLING)])
        left -= size
    return groups


def connecting_s(lab: LabProcess) -> float:
    """How long a start takes until the controller runs the program [s]."""
    cell, begin_ns = trial_cell(lab.where.address), time.monotonic_ns()
    SupervisorClient(cell.robot_builder(), FOLLOWER, cell.supervisor).close()
    with lab.where.connect() as door:
        return (door.log(begin_ns).times("program_started")[0] - begin_ns) * 1e-9


def run(kind: str, count: int, seed: int = 0, show: bool = False) -> Tally:
    """That many trials against one lab after the other; those that do not count are made again."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder, prompt_lab(Path(folder), 31, 30131) as lab:
        trials = _agents(lab, count, seed) if kind == "agent" else _links(lab, seed)
        for trial in trials:
            tally.trials.append(trial)
            if show:
                print(trial, flush=True)
            if len(tally.real) >= count:
                break
            if len(tally.trials) - len(tally.real) > count // 5 + 2:
                raise RobotError("too many trials do not count on this machine")
    return tally


def _agents(lab: LabProcess, count: int, seed: int) -> Generator[Trial]:
    plan = agent_plan(count, seed)
    for number, faults in enumerate(plan):
        done = agent_trials(lab, faults, seed + number)
        yield from done
        # After a stop that should not have been, the same agent cannot go on.
        left = faults[len(Tally(done).real) :]
        if left:
            plan.append(left)


def _links(lab: LabProcess, seed: int) -> Generator[Trial]:
    as_deployed()
    rng, start_s = random.Random(seed), connecting_s(lab)
    while True:
        # Half of them while moving; of the others half in the moment of connecting.
        moving = rng.random() < 0.5
        delay_s = rng.uniform(0.0, 1.0)
        if not moving:
            early = rng.random() < 0.5
            delay_s = start_s * delay_s if early else start_s - 0.25 + 0.3 * delay_s
        yield link_trial(lab, rng.choice(LINK_FAULTS), delay_s, moving)


if __name__ == "__main__":
    before = os.getloadavg()[0]
    print(run(sys.argv[1], int(sys.argv[2]), int((*sys.argv, 0)[3]), show=True).text())
    print(f"1-minute load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
