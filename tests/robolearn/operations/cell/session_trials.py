"""Randomised faults of a person's sessions on an arm, one after the other into the same store.

    python -m tests.robolearn.operations.cell.session_trials 100 [SEED [PLACE]]

Each session is ``robolearn collect --robot`` in a terminal of its own, on an emulated UR, with a
person who starts, moves and keeps. At a random moment of a random place (while it connects, ready,
recording, while an episode is saved, on the way to the next start) it is killed, alone or with all
of its processes, the terminal is closed, the pad is unplugged, the page is closed, or the disk is
full. Then: whatever was said to be saved can be read, what the key had kept when the session died
is saved or can be recovered, the arm is at rest in time, nothing goes on running, and the next
session says what it found. The last session is not disturbed. ``PLACE``: deaths there alone.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from hardware.emulators.lab.admin import LabClient, LabLog
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.repair import find_recoverable
from tests.hardware.fault_tally import at_rest, outcome_text
from tests.hardware.fault_verdict import gaps
from tests.hardware.lab import CONFIG
from tests.hardware.real_cell import alive, largest_speed, prompt_lab
from tests.robolearn.operations.cell.sitting_person import (
    Keyboard,
    Pad,
    Page,
    Person,
    Session,
    SessionEndedError,
)
from tests.robolearn.operations.deploy.kill_trials import REST_S, rest_s
from tests.waiting import paced, pass_time, wait_until

CELL = CONFIG.parent / "lab_ur5e_pick_place.yaml"
# As the cell says [rad/s].
JOINT_SPEED = 3.0
# How a session ends against its will; behind "page", "pad" and "disk" it goes on.
FAULTS = ("killed", "group killed", "terminal", "page", "pad", "disk")
DEATHS = ("killed", "group killed", "terminal")
PLACES = ("connecting", "ready", "recording", "saving", "resetting")
# How long a pad is away [s].
_AWAY_S = 1.0
# The disk that sessions record to: what a session needs free, and what its trial may leave there.
_DISK_MIB, _TRIAL_MIB = 16, 2


@dataclass(frozen=True)
class Outcome:
    """What happened where, when the arm was at rest after it [s], what was wrong ("": nothing)."""

    fault: str
    place: str
    rest_s: float
    wrong: str


# -- one trial -----------------------------------------------------------------------------------


class Cell:
    """The emulated arm's address, the files sessions are started with, and the store's disk."""

    def __init__(self, root: Path, address: str) -> None:
        self.root, self.store = root, root / "disk" / "store"
        raw = yaml.safe_load(CELL.read_text())
        robot = {k: v for k, v in raw["robot"].items() if k in ("name", "driver", "arm", "tool")}
        # Where the emulated arm stands first, a longer tool would be in the table.
        robot["tool"]["tool_offset_m"] = [0.0, 0.0, 0.08]
        robot |= {"rate_hz": 20}
        robot["driver"] |= {"address": address, "watchdog_hz": 5}
        robot["supervisor"] = {
            "late_s": 0.4,
            "heartbeat_s": 0.4,
            "frozen_s": 2.0,
            "state_late_s": 0.1,
            "state_stale_s": 0.4,
            "goto_speed": 1.2,
            "goto_acceleration": 6.0,
        }
        (root / "cell.yaml").write_text(yaml.safe_dump({"robot": robot}))
        for agent, device in (
            ("keyboard", {"kind": "keyboard"}),
            ("gamepad", {"kind": "gamepad", "path": str(root / "pad")}),
            ("browser", {"kind": "browser"}),
        ):
            config = {"robot": "cell.yaml", "device": device}
            (root / f"{agent}.yaml").write_text(yaml.safe_dump(config))

    @contextlib.contextmanager
    def disk(self, mib: int) -> Generator[bool, None, None]:
        """A small disk under the store, where one may be mounted."""
        folder = self.root / "disk"
        folder.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(folder)]
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
        try:
            yield mounted
        finally:
            if mounted:
                subprocess.run(["umount", str(folder)], capture_output=True, check=False)

    @contextlib.contextmanager
    def full(self) -> Generator[None, None, None]:
        """Somebody else fills the disk, and makes room again."""
        filler = self.root / "disk" / "filler"
        fd = os.open(filler, os.O_WRONLY | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):
                while True:
                    os.write(fd, bytes(4096))
            yield
        finally:
            os.close(fd)
            filler.unlink()


@dataclass
class Trials:
    """What all trials share: ids that must be there, what the next session must say."""

    cell: Cell
    door: LabClient
    rng: random.Random
    pad: Pad
    kept: list[str]
    leftovers: int = 0
    # Stops that nobody meant, which the person cleared.
    stops: int = 0
    # Recordings that a session ended by death had been told to keep, and did not say it had.
    unsaid: int = 0

    def trial(self, fault: str, place: str) -> Outcome:
        """One session meets its fault."""
        begin_ns = time.monotonic_ns()
        agent = {"page": "browser", "pad": "gamepad"}.get(fault) or self.rng.choice(
            ["keyboard", "gamepad"]
        )
        session = Session(self.cell.root, agent)
        person: Person
        if agent == "keyboard":
            person = Keyboard(session)
        else:
            person = self.pad if agent == "gamepad" else Page(session)
        wrong, died_ns = "", 0
        self._there, self._pressed = self._recordings(), 0
        try:
            died_ns = self._until_fault(session, person, fault, place)
            wrong = self._after(session, fault)
        except SessionEndedError as ended:
            wrong = f"ended by itself: {ended}"
        except AssertionError as error:
            wrong = str(error)
        finally:
            self.kept += [name for name in session.saved if name not in self.kept]
            if isinstance(person, Page):
                person.close()
            session.close()
        wait_until(lambda: not self.door.log(begin_ns).moving, 10.0)
        log = self.door.log(begin_ns)
        resting_s = rest_s(log, died_ns) if died_ns else 0.0
        if fault in DEATHS and died_ns:
            lost_s = sum(gaps(log, died_ns, died_ns + round(1e9 * resting_s)))
            if resting_s > REST_S + lost_s:
                wrong = wrong or f"at rest {resting_s:.2f} s after it"
        wrong = wrong or _too_fast(log) or self._store(session) or self._missing(session, fault)
        with contextlib.suppress(Exception):
            self.door.fault("unlock")
        return Outcome(fault, place, resting_s, wrong)

    def _until_fault(self, session: Session, person: Person, fault: str, place: str) -> int:
        """Act as a person does until the fault's place and moment; when it happened."""
        round_to = self.rng.randint(1, 2)
        if place == "connecting":
            pass_time(self.rng.uniform(0.5, 6.0), "it may come at any moment of a start")
            return self._strike(session, person, fault, place)
        for number in range(1, round_to + 1):
            last, since = number == round_to, len(session.text)
            if number == 1:
                since = 0
            self._ready(session, person, since)
            if last and place == "ready":
                pass_time(self.rng.uniform(0.0, 1.0), "the person waits")
                return self._strike(session, person, fault, place)
            person.start()
            session.await_line("^recording", since)
            moves = self.rng.randint(20, 60)
            stop_at = self.rng.randint(5, moves) if last and place == "recording" else -1
            for k in paced(25, moves):
                if k == stop_at:
                    return self._strike(session, person, fault, place)
                person.move(self.rng)
            saying = len(session.text)
            person.keep()
            self._pressed += 1
            if last and place == "saving":
                pass_time(self.rng.uniform(0.0, 0.3), "while it is saved")
                return self._strike(session, person, fault, place)
            session.await_line("^keep it|saved episode", saying)
            if session.heard("^keep it", saying) and not session.heard("saved episode", saying):
                person.keep()
            session.await_line("saved episode", saying)
            if last:
                pass_time(self.rng.uniform(0.0, 0.6), "on the way to the start")
        return self._strike(session, person, fault, place)

    def _ready(self, session: Session, person: Person, since: int) -> None:
        """Until the arm is at the start; a stop on a busy machine is looked at and cleared."""
        while True:
            session.await_line("^ready|^stopped:", since)
            if session.heard("^ready", since):
                return
            since = len(session.text)
            self.stops += 1
            person.start()

    def _strike(self, session: Session, person: Person, fault: str, place: str) -> int:
        now, pids = time.monotonic_ns(), session.family()
        self._pids = pids
        if fault == "killed":
            os.kill(session.process.pid, signal.SIGKILL)
        elif fault == "group killed":
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif fault == "terminal":
            session.hang_up()
        elif fault == "page" and isinstance(person, Page):
            person.leave()
            self._held(now, place)
        elif fault == "pad" and isinstance(person, Pad):
            person.unplug()
            try:
                self._held(now, place)
            finally:
                person.plug()
        elif fault == "disk":
            with self.cell.full():
                pass_time(3.0, "the session notices")
        return now

    def _held(self, now_ns: int, place: str) -> None:
        """An arm that nobody drives any more comes to rest, unless it is on the way to a start."""
        pass_time(_AWAY_S, "the arm comes to rest")
        assert place != "recording" or not self.door.log(now_ns).moving, "it moves on by itself"

    def _after(self, session: Session, fault: str) -> str:
        """What is wrong with what became of the session, or ""."""
        if fault in DEATHS:
            session.process.wait(20.0)
            for pid in self._pids:
                wait_until(lambda pid=pid: not alive(pid), 20.0, what=f"process {pid} ends")
            return ""
        # It goes on: told to end, it does so in order.
        if session.process.poll() is None:
            since = len(session.text)
            session.process.send_signal(signal.SIGTERM)
            try:
                session.process.wait(30.0)
            except subprocess.TimeoutExpired:
                return f"does not end: {session.text[since:][-400:]}"
        return ""

    def _store(self, session: Session) -> str:
        """Which kept episode cannot be read, or what the session did not say of the one before."""
        said = session.heard("killed before they were saved")
        if self.leftovers and session.heard("^ready") and not said:
            return f"{self.leftovers} killed recordings that it said nothing about"
        if not self.cell.store.is_dir():
            return f"the store is gone, with {self.kept}" if self.kept else ""
        store = EpisodeStore.open(self.cell.store)
        lost = [name for name in self.kept if name not in store.ids()]
        if lost:
            return f"no episodes {lost}"
        for name in self.kept[-3:]:
            store.read(name)
        self.leftovers = sum(not r.saved_as and not r.problem for r in find_recoverable(store))
        return ""

    def _recordings(self) -> int:
        """Episodes and recordings that can be recovered."""
        if not self.cell.store.is_dir():
            return 0
        store = EpisodeStore.open(self.cell.store)
        found = (not r.saved_as and not r.problem for r in find_recoverable(store))
        return len(store.ids()) + sum(found)

    def _missing(self, session: Session, fault: str) -> str:
        """How many that the key had kept are neither saved nor recoverable after a death, or ""."""
        if fault not in DEATHS:
            return ""
        self.unsaid += self._pressed - len(re.findall("saved episode", session.text))
        missing = self._there + self._pressed - self._recordings()
        return f"{missing} kept recordings are gone" if missing > 0 else ""


def _too_fast(log: LabLog) -> str:
    """What a set-point that reached the controller violated, or ""."""
    if len(log.setpoint_q) < 2:
        return ""
    speed = largest_speed(log)
    return "" if speed <= 1.02 * JOINT_SPEED else f"joint speed {speed:.2f} rad/s"


def run(
    count: int,
    seed: int = 0,
    last: int = 27,
    faults: Sequence[str] = FAULTS,
    places: Sequence[str] = PLACES,
) -> tuple[list[Outcome], Trials]:
    """So many sessions that meet one of these faults at one of these places, and one that does not
    meet any.
    """
    rng, out = random.Random(seed), list[Outcome]()
    with tempfile.TemporaryDirectory() as name, prompt_lab(Path(name), last, 30127) as lab:
        cell = Cell(Path(name), lab.where.address)
        with cell.disk(_DISK_MIB + _TRIAL_MIB * count) as small, lab.where.connect() as door:
            pad = Pad(cell.root / "pad")
            trials = Trials(cell, door, rng, pad, [])
            possible = [f for f in faults if small or f != "disk"]
            for number in range(count):
                fault, place = possible[number % len(possible)], rng.choice(places)
                out.append(trials.trial(fault, place))
                print(f"{number + 1}: {out[-1]}", flush=True)
            out.append(trials.trial("none", "resetting"))
            pad.close()
            return out, trials


def text(outcomes: list[Outcome]) -> str:
    """One line per fault."""
    return outcome_text(outcomes, lambda o: o.fault, at_rest)


if __name__ == "__main__":
    load = os.getloadavg()[0]
    count, *more = sys.argv[1:]
    seed = int(more[0]) if more else 0
    told = {"faults": DEATHS, "places": more[1:]} if more[1:] else {}
    found, trials = run(int(count), seed, **told)
    print(text(found))
    print(f"{len(trials.kept)} episodes kept; {trials.stops} stops of a busy machine were cleared")
    print(f"{trials.unsaid} more by a key whose session died before it said so")
    print(f"1-minute load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
