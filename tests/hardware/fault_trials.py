"""Randomised fault trials of agent and link, judged at the emulated controller's side.

    python -m tests.hardware.fault_trials agent 500
    python -m tests.hardware.fault_trials link 200

An agent trial: a process of its own drives the arm through its supervisor and then is killed, hangs
or misbehaves at a random moment. A link trial: the connection drops, hangs or carries garbage at a
random moment between the first byte of the connection and the motion. Both use the unmodified
``ur_rtde``; what the controller received is what counts.
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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.cell_config import CellConfig, load_cell
from hardware.emulators.admin import LabClient, LabLog
from hardware.emulators.launch import LabProcess
from hardware.supervisor_client import SupervisorClient
from hardware.supervisor_link import Cause, Mode, Target
from robolearn.arms import UR5E
from robolearn.errors import DataError, RobolearnError, RobotError
from tests.hardware.cell import FOLLOWER, WORKCELL, joints_at
from tests.hardware.lab import CONFIG
from tests.hardware.real_cell import cell_at, largest_speed, prompt_lab, until

KILLING = ("killed", "group killed", "hung")
COMMANDS = ("nan", "infinite", "stale", "ahead", "disordered", "far", "shape", "silent")
AGENT_FAULTS = (*KILLING, *COMMANDS)
LINK_FAULTS = ("drop", "hang", "garbage")
# Decelerating from 0.48 m/s takes 0.12 s; another 0.1 s is the time to notice.
ALLOWED_S = 0.1 + 0.12
AGENT_PRIORITY = 5
STALLED = "no trial: the lab stalled"


@dataclass(frozen=True)
class Trial:
    """What happened: from the fault to rest at the controller [s], and what was wrong ("" if
    nothing was).
    """

    fault: str
    rest_s: float
    wrong: str
    error_s: float = 0.0
    error: str = ""


@dataclass
class Tally:
    """All trials of a run."""

    trials: list[Trial] = field(default_factory=list)

    def text(self) -> str:
        """One line per kind of fault."""
        lines = []
        for fault in sorted({t.fault for t in self.trials}):
            mine = [t for t in self.trials if t.fault == fault]
            rest = 1e3 * np.array([t.rest_s for t in mine])
            wrong = sum(bool(t.wrong) for t in mine)
            told = 1e3 * max(t.error_s for t in mine)
            lines.append(
                f"{fault:<13} {len(mine):>4} trials, {wrong} wrong; rest after p50"
                f" {np.median(rest):.0f} ms, max {rest.max():.0f} ms; error within {told:.0f} ms"
            )
        lines += [f"WRONG {t.fault}: {t.wrong}" for t in self.trials if t.wrong]
        return "\n".join(lines)


def out_of_limits(log: LabLog) -> str:
    """What a set-point that reached the controller violated, or ""."""
    q = log.setpoint_q
    if not len(q):
        return ""
    if not np.isfinite(q).all():
        return "not finite"
    limits = FOLLOWER.limits
    low, high = (np.array(v) for v in (UR5E.low, UR5E.high))
    if np.any(q < low + limits.joint_margin) or np.any(q > high - limits.joint_margin):
        return "outside the joint limits"
    if (speed := largest_speed(log)) > 1.02 * limits.max_joint_speed:
        return f"joint speed {speed:.2f} rad/s"
    tips = np.array([WORKCELL.tip(UR5E, row)[:3, 3] for row in q[:: max(1, len(q) // 100)]])
    down = tips[:, 2] < WORKCELL.tip_height_m + FOLLOWER.raised_m
    margin = limits.workspace_margin + 1e-6
    inside = (tips[:, :2] >= np.array(limits.workspace_low) - margin) & (
        tips[:, :2] <= np.array(limits.workspace_high) + margin
    )
    if np.any(down & ~inside.all(axis=1)):
        return "outside the workspace"
    return "below the table" if np.any(tips[:, 2] < 0.0) else ""


def misbehave(client: SupervisorClient, fault: str, seq: int, rng: random.Random) -> None:
    """Send what a broken agent would send, for 0.6 s."""
    bad = {"nan": np.nan, "infinite": np.inf, "far": rng.choice([-9.0, 4.0, 1e300])}
    value = np.array([bad.get(fault, 0.3), rng.uniform(0.1, 0.4)])
    late_ns = {"stale": -600_000_000, "ahead": 5_000_000_000}.get(fault, 0)
    for k in range(8):
        number = seq - 5 if fault == "disordered" else seq + k
        due = time.monotonic_ns() + late_ns
        if fault == "shape":
            with contextlib.suppress(DataError):
                client.command(Target(number, due, np.zeros(7), np.zeros((0, 7))))
        elif fault != "silent":
            client.command(Target(number, due, value, np.full((3, 2), rng.choice([np.nan, 0.3]))))
        time.sleep(0.08)


def wander(client: SupervisorClient, rng: random.Random, seconds: float, seq: int = 0) -> int:
    """Drive across the table; returns the next number."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        xy = np.array([rng.uniform(0.05, 0.46), rng.uniform(0.05, 0.46)])
        client.command(Target(seq, time.monotonic_ns(), xy, np.zeros((0, 2))))
        seq += 1
        time.sleep(0.1)
    return seq


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


def agent(cell: CellConfig, seed: int, pipe) -> None:
    """The agent's process: drives until it is killed, or told to misbehave (again and again)."""
    os.setpgid(0, 0)
    as_deployed()
    rng = random.Random(seed)
    client = SupervisorClient(
        *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
    )
    client.request("goto", [joints_at((0.256, 0.3), 0.1), joints_at((0.256, 0.3))])
    client.request("follow")
    pipe.send((os.getpid(), client.pid))
    seq = 0
    while True:
        if pipe.poll(0):
            fault = pipe.recv()
            if not fault:
                break
            pipe.send(time.monotonic_ns())
            misbehave(client, fault, seq, rng)
            seq += 10
            status = client.status()
            pipe.send((status.mode is Mode.FOLLOW, status.cause))
        else:
            seq = wander(client, rng, 0.1, seq)
    client.close()


def agent_trials(lab: LabProcess, faults: list[str], seed: int) -> list[Trial]:
    """One agent lives through all command faults and the last of ``faults`` may end it."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    begin_ns = time.monotonic_ns()
    process = context.Process(target=agent, args=(trial_cell(lab.where.address), seed, theirs))
    process.start()
    theirs.close()
    trials = []
    try:
        if not ours.poll(60):
            raise RobotError("the agent does not start")
        try:
            pid, supervisor = ours.recv()
        except EOFError:
            # It came to a stop on its way to the start: its log above says why.
            return [Trial(STALLED, 0.0, "")]
        with lab.where.connect() as door:
            for fault in faults:
                time.sleep(rng.uniform(0.3, 0.6))
                trials.append(_agent_trial(door, ours, fault, pid, supervisor, begin_ns))
                if trials[-1].fault == STALLED:
                    return trials
        if faults[-1] not in KILLING:
            ours.send("")
            process.join(15)
    finally:
        process.kill()
        process.join(10)
    return trials


def _agent_trial(door: LabClient, pipe, fault: str, pid: int, supervisor: int, begin_ns: int):
    if fault in KILLING:
        at_ns = time.monotonic_ns()
        if fault == "group killed":
            os.killpg(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP if fault == "hung" else signal.SIGKILL)
    else:
        pipe.send(fault)
        if not pipe.poll(20):
            return Trial(fault, np.inf, "the agent does not answer")
        at_ns = pipe.recv()
    rest_ns = _wait_rest(door, at_ns)
    if fault not in KILLING:
        if not pipe.poll(20):
            return Trial(fault, np.inf, "the agent did not survive")
        follows, cause = pipe.recv()
        if not follows and _stalled(door.log(begin_ns), cause):
            return Trial(STALLED, 0.0, out_of_limits(door.log(begin_ns)))
        if not follows:
            why = [e.detail for e in door.log(begin_ns).events if e.kind == "protective_stop"]
            door.fault("unlock")
            return Trial(fault, np.inf, f"a bad command latched a stop: {cause.name} {why}")
    if fault == "hung":
        os.kill(pid, signal.SIGKILL)
    if fault in KILLING:
        until(lambda: not Path(f"/proc/{supervisor}").exists(), 15.0)
    wrong = out_of_limits(door.log(begin_ns)) or ("" if rest_ns < math.inf else "no rest")
    return Trial(fault, max(0.0, (rest_ns - at_ns) * 1e-9), wrong)


def _stalled(log: LabLog, cause: Cause) -> bool:
    """Whether this machine held up the emulated controller, or the way to it, for so long that the
    supervisor or the controller's watchdog stopped the arm, as they should.
    """
    silent = [e for e in log.events if e.kind == "program_stopped" and "watchdog" in e.detail]
    kinds = {e.kind for e in log.events}
    fault = cause is Cause.ROBOT_FAULT and silent and "protective_stop" not in kinds
    return cause is Cause.STATE_STALE or bool(fault)


def _wait_rest(door: LabClient, at_ns: int, timeout_s: float = 5.0) -> float:
    """When the arm came to rest; infinite if it did not."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        rest_ns = _rested(door.log(at_ns), at_ns)
        if rest_ns:
            return rest_ns
        time.sleep(0.02)
    return math.inf


def _rested(log: LabLog, at_ns: int) -> int:
    """When the arm came to rest after ``at_ns``; 0 while it has not."""
    after = [t for t in log.times("rest") if t >= at_ns]
    if after:
        return after[0]
    return 0 if log.moving else at_ns


def link_trial(lab: LabProcess, fault: str, delay_s: float, moving: bool) -> Trial:
    """The link fails ``delay_s`` after connecting began, or after the arm began to move."""
    cell = trial_cell(lab.where.address)
    begin_ns = time.monotonic_ns()
    happened: list[int] = []
    client: SupervisorClient | None = None
    with lab.where.connect() as door:
        trigger = threading.Timer(delay_s, _break, (lab, door, fault, happened))
        if not moving:
            trigger.start()
        told_ns, error = 0, ""
        try:
            client = SupervisorClient(
                *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
            )
            client.request("goto", [joints_at((0.2, 0.3), 0.1)])
            if moving:
                trigger.start()
            client.request("goto", [joints_at((0.4, 0.4), 0.1), joints_at((0.1, 0.1), 0.1)])
            for _ in range(600):
                client.require_running()
                client.state()
                time.sleep(0.01)
        except RobolearnError as problem:
            told_ns, error = time.monotonic_ns(), f"{type(problem).__name__}: {problem}"[:120]
        finally:
            if trigger.ident is None:
                # It did not even get that far; without a fault this is no trial.
                happened.append(time.monotonic_ns())
                error = f"before the fault: {error}"
            else:
                trigger.join()
            if fault == "hang" and trigger.ident is not None:
                os.kill(lab.pid, signal.SIGCONT)
            if client is not None:
                client.close()
        rest_ns = _wait_rest(door, happened[0], 10.0)
        log = door.log(begin_ns)
    wrong = out_of_limits(log) or ("" if rest_ns < math.inf else "no rest")
    if error.startswith("before"):
        return Trial(f"no {fault}", 0.0, wrong)
    begun = [t for t in log.times("program_started") if t < happened[0]]
    if not error and fault != "hang" and not begun:
        # There was no link yet that could drop or carry garbage.
        return Trial(f"no {fault}", 0.0, wrong)
    if not error and fault != "garbage":
        wrong = wrong or "nobody was told"
    told_s = max(0.0, (told_ns - happened[0]) * 1e-9) if told_ns else 0.0
    name = f"{fault}, moving" if moving else f"{fault}, start"
    return Trial(name, max(0.0, (rest_ns - happened[0]) * 1e-9), wrong, told_s, error)


def _break(lab: LabProcess, door: LabClient, fault: str, happened: list[int]) -> None:
    happened.append(time.monotonic_ns())
    if fault == "hang":
        os.kill(lab.pid, signal.SIGSTOP)
    elif fault == "drop":
        door.fault("drop_links")
    else:
        door.fault("garbage", size=512.0)


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
    """That many trials against one lab after the other."""
    tally, rng, start_s = Tally(), random.Random(seed), 0.0
    with tempfile.TemporaryDirectory() as folder, prompt_lab(Path(folder), 31, 30131) as lab:
        if kind == "link":
            as_deployed()
            start_s = connecting_s(lab)
        plan = agent_plan(count, seed) if kind == "agent" else []
        for number, faults in enumerate(plan):
            done = agent_trials(lab, faults, seed + number)
            tally.trials += done
            if done[-1].fault == STALLED:
                plan.append(faults[len(done) - 1 :])
            if sum(t.fault == STALLED for t in tally.trials) > count // 20 + 1:
                raise RobotError("the emulated controller stalls too often on this machine")
            if show:
                print(*done, sep="\n", flush=True)
        for _ in range(count if kind == "link" else 0):
            # Half of them while moving; of the others half in the moment of connecting.
            moving = rng.random() < 0.5
            delay_s = rng.uniform(0.0, 1.0)
            if not moving:
                early = rng.random() < 0.5
                delay_s = start_s * delay_s if early else start_s - 0.25 + 0.3 * delay_s
            tally.trials.append(link_trial(lab, rng.choice(LINK_FAULTS), delay_s, moving))
            if show:
                print(tally.trials[-1], flush=True)
    return tally


if __name__ == "__main__":
    print(run(sys.argv[1], int(sys.argv[2]), int((*sys.argv, 0)[3]), show=True).text())
