"""Randomised trials of what reaches a running arm from outside: pauses of its link, targets far
away, and rivals for the arm.

    python -m tests.hardware.outside_trials pause 50
    python -m tests.hardware.outside_trials far 50
    python -m tests.hardware.outside_trials rival 20

The unmodified ``ur_rtde`` drives the emulated controller under the supervisor; what the servos of
the controller were told, tick by tick, is what is judged.
"""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import random
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.spec import cell_spec
from hardware.drivers.ur.robot import URConfig
from hardware.emulators.lab.launch import LabProcess
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import Cause, Mode, Target
from hardware.supervisor.watch.resuming import FACTOR
from robolearn.agents.actions import clip_slight
from robolearn.arms.models import UR5E
from robolearn.errors import RobolearnError, RobotConnectionError
from robolearn.pusht import TOOL
from tests.hardware.fault_tally import outcome_text
from tests.hardware.fault_trials import as_deployed, trial_cell
from tests.hardware.fault_verdict import gaps, out_of_limits
from tests.hardware.real_cell import prompt_lab
from tests.hardware.workcell import FOLLOWER, WORKCELL, joints_at
from tests.waiting import pass_time, wait_until

KINDS = ("pause", "far", "rival")
# What goes on after a pause; beyond that the supervisor latches. What queued up in a link that
# paused made seven times the limit.
ACCELERATION = FACTOR * FOLLOWER.limits.max_tool_acceleration
_RATE_HZ, _COMMAND_S, _JUDGED_NS = 500.0, 0.1, 400_000_000
_LEFT, _RIGHT = np.array([0.1, 0.3]), np.array([0.45, 0.3])


@dataclass(frozen=True)
class Outcome:
    """One trial: how it ended, the figure that is judged, what was wrong ("" if nothing)."""

    kind: str
    ended: str
    figure: float
    wrong: str


class Drive:
    """An agent that drives back and forth until told otherwise."""

    def __init__(self, cell: CellConfig) -> None:
        self.client = SupervisorClient(
            *(cell.robot_builder(), FOLLOWER, cell.supervisor), watch=cell.connect_watch()
        )
        try:
            self.client.request("goto", [joints_at(_LEFT, 0.1), joints_at(_LEFT)])
            self.client.request("follow")
        except BaseException:
            self.client.close()
            raise
        self.seq = 0

    def command(self, xy: np.ndarray) -> None:
        self.client.command(Target(self.seq, time.monotonic_ns(), xy, np.zeros((0, 2))))
        self.seq += 1

    def go(self, xy: np.ndarray, seconds: float) -> None:
        """Towards a point for so long, while nothing is latched."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self.mode is not Mode.STOPPED:
            self.command(xy)
            pass_time(min(left, _COMMAND_S), "until the next command")

    @property
    def mode(self) -> Mode:
        return self.client.status().mode

    @property
    def cause(self) -> Cause:
        return self.client.status().cause


def impatient(cell: CellConfig) -> CellConfig:
    """With the time after which a deployed cell calls a state late."""
    times = dataclasses.replace(cell.supervisor, state_late_s=0.02)
    return dataclasses.replace(cell, supervisor=times)


def tool_path(q: np.ndarray) -> np.ndarray:
    """``[n, 2]`` of joint angles ``[n, 6]``."""
    return np.array([WORKCELL.tip(UR5E, row)[:2, 3] for row in q])


def pause_trial(lab: LabProcess, rng: random.Random) -> Outcome:
    """The link pauses for 60 to 200 ms in the middle of a drive."""
    # Half of them below the period of the controller's own watchdog.
    seconds = rng.uniform(0.06, 0.1) if rng.random() < 0.5 else rng.uniform(0.1, 0.2)
    begin_ns = time.monotonic_ns()
    drive = Drive(impatient(trial_cell(lab.where.address)))
    try:
        with lab.where.connect() as door:
            drive.go(_RIGHT, rng.uniform(0.35, 0.6))
            at_ns = time.monotonic_ns()
            door.fault("hang", seconds=seconds)
            drive.go(_RIGHT, seconds + 0.5)
            # A stop that is latched in the pause ends the drive before the link is back.
            wait_until(lambda: any(t > at_ns for t in door.log(at_ns).times("resumed")))
            pass_time(0.5 * (drive.mode is Mode.STOPPED), "a path that still comes is judged")
            ended = drive.mode.name.lower()
            if drive.mode is Mode.STOPPED:
                ended = f"latched: {drive.cause.name.lower()}"
            log, (t_ns, q) = door.log(begin_ns), door.reference(at_ns - 100_000_000)
    finally:
        drive.client.close()
    resumed_ns = next(t for t in log.times("resumed") if t > at_ns)
    rows = tool_path(q[(t_ns >= resumed_ns) & (t_ns <= resumed_ns + _JUDGED_NS)])
    peak = float(np.linalg.norm(np.diff(rows, n=2, axis=0), axis=1).max() * _RATE_HZ**2)
    wrong = out_of_limits(log)
    if peak > ACCELERATION and ended != "latched: link_pause":
        lost = gaps(log, resumed_ns, resumed_ns + _JUDGED_NS)
        wrong = wrong or f"{peak:.1f} m/s^2 after a pause of {1e3 * seconds:.0f} ms; gaps {lost}"
    return Outcome(f"pause, {'over' if seconds >= 0.1 else 'under'} 100 ms", ended, peak, wrong)


def far_trial(lab: LabProcess, rng: random.Random) -> Outcome:
    """A policy's target is 0.1 to 3 m outside from some moment of a drive on."""
    cell, begin_ns = trial_cell(lab.where.address), time.monotonic_ns()
    drive = Drive(cell)
    try:
        with lab.where.connect() as door:
            drive.go(_RIGHT, rng.uniform(0.3, 0.7))
            at_ns, angle = time.monotonic_ns(), rng.uniform(-np.pi, np.pi)
            away = rng.uniform(0.46, 3.0) * np.array([np.cos(angle), np.sin(angle)])
            asked = {TOOL: np.array([0.256, 0.256]) + away}
            while not _far(asked[TOOL]):
                asked = {TOOL: asked[TOOL] + 0.2 * away}
            # As an agent sends it.
            drive.go(clip_slight(cell_spec(cell).actions[:1], asked)[TOOL], 1.5)
            ended = f"{drive.mode.name.lower()}: {drive.cause.name.lower()}"
            told = [e.cause for e in drive.client.events()]
            wait_until(lambda: not door.log(at_ns).moving)
            log, (_, q) = door.log(begin_ns), door.reference(at_ns)
    finally:
        drive.client.close()
    path = tool_path(q[:: max(1, len(q) // 200)])
    moved = float(np.linalg.norm(path - path[0], axis=1).max())
    # From the highest speed: what is under way, and the braking.
    speed = FOLLOWER.limits.max_tool_speed
    allowed = 0.15 * speed + speed**2 / (2 * 0.68 * FOLLOWER.limits.max_tool_acceleration)
    wrong = out_of_limits(log)
    if ended != "stopped: far_agent" or told.count(Cause.FAR_OUTSIDE) < 3:
        wrong = wrong or f"{ended}, told {[c.name for c in told]}"
    if moved > allowed:
        wrong = wrong or f"the tool went on for {1e3 * moved:.0f} of {1e3 * allowed:.0f} mm"
    return Outcome("far", ended, moved, wrong)


def _far(xy: np.ndarray) -> bool:
    low, high = np.array(FOLLOWER.limits.workspace_low), np.array(FOLLOWER.limits.workspace_high)
    return bool(np.abs(xy - np.clip(xy, low, high)).max() > 0.06)


def take(address: str, vendor: bool, pipe) -> None:
    """The rival's process: with this program's driver, or with the vendor's client alone."""
    try:
        if vendor:
            from rtde_control import RTDEControlInterface

            control = RTDEControlInterface(address, 500.0)
            control.moveJ(joints_at(_LEFT, 0.1).tolist(), 0.5, 1.0)
        else:
            URConfig(address).build().connect()
    except (RobotConnectionError, RuntimeError) as error:
        pipe.send(str(error))
    else:
        pipe.send("")
    os._exit(0)


def rival_trial(lab: LabProcess, rng: random.Random) -> Outcome:
    """Another program wants the arm in the middle of a drive."""
    vendor, begin_ns = rng.random() < 0.5, time.monotonic_ns()
    context = multiprocessing.get_context("spawn")
    drive = Drive(trial_cell(lab.where.address))
    ours, theirs = context.Pipe()
    rival = context.Process(target=take, args=(lab.where.address, vendor, theirs))
    try:
        rival.start()
        turn, deadline = 0, time.monotonic() + 60.0
        while not ours.poll(0) and time.monotonic() < deadline:
            turn += 1
            drive.go(_RIGHT if turn % 2 else _LEFT, 0.5)
        refused = ours.recv() if ours.poll(0) else "no answer"
        drive.go(_RIGHT, 0.5)
        ended = drive.mode.name.lower()
        with lab.where.connect() as door:
            log = door.log(begin_ns)
            stops = [e.detail for e in log.events if e.kind == "program_stopped"]
    finally:
        rival.kill()
        rival.join()
        drive.client.close()
    wanted = "already in use" if vendor else "in use by process"
    wrong = "" if wanted in refused else f"the rival was told: {refused!r}"
    if ended != "follow" or stops:
        wrong = wrong or f"the drive ended {ended}: {stops}"
    return Outcome("rival, vendor" if vendor else "rival, ours", ended, 0.0, wrong)


TRIALS = {"pause": pause_trial, "far": far_trial, "rival": rival_trial}


def run(kind: str, count: int, seed: int = 0, last: int = 34) -> list[Outcome]:
    """That many trials against one lab after the other."""
    rng, out = random.Random(seed), []
    if kind != "rival":
        # A rival inherits it, and would take the processor from the vendor's ordinary threads.
        as_deployed()
    with tempfile.TemporaryDirectory() as folder, prompt_lab(Path(folder), last, 30134) as lab:
        for _ in range(count):
            try:
                out.append(TRIALS[kind](lab, rng))
            except RobolearnError as error:
                # A start or a reading that a busy machine spoiled; told, and no trial.
                out.append(Outcome("spoiled", str(error)[:200], 0.0, ""))
            with lab.where.connect() as door:
                door.fault("unlock")
    return out


def text(outcomes: list[Outcome]) -> str:
    """One line per kind and end."""

    def figures(mine: list[Outcome]) -> str:
        values = np.array([o.figure for o in mine])
        return f"figure p50 {np.median(values):.3g}, max {values.max():.3g}"

    return outcome_text(outcomes, lambda o: f"{o.kind}: {o.ended}", figures)


if __name__ == "__main__":
    before = os.getloadavg()[0]
    print(text(run(sys.argv[1], int(sys.argv[2]), int((*sys.argv, 0)[3]))))
    print(f"1-minute load {before:.1f} before, {os.getloadavg()[0]:.1f} after")
