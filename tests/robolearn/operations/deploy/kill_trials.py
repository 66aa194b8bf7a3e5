"""Randomised SIGKILLs of whole deployments, one after the other into the same folder.

    python -m tests.robolearn.operations.deploy.kill_trials 50

Each deployment is a process of its own on an emulated UR, and dies at a random moment of a random
place: while it connects, while the row of a trial is written, on the way to a start, in the middle
of a trial, while an episode is saved, between trials, on the way home. What it had done until then
stands in a witness file; after its death the table, the store, the arm and the supervisor are
compared with that. The last deployment is not disturbed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eval.trials.table import SCORED, UNKNOWN, TrialStore, has_trials, read_trials
from hardware.emulators.lab.admin import LabClient, LabLog
from hardware.supervisor.client import SupervisorClient
from robolearn.cli.main import main as robolearn
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.deploy import policy as deploy_policy
from robolearn.operations.deploy import run as deploy_run
from robolearn.types import TrialRecord
from tests.hardware.fault_tally import at_rest, outcome_text
from tests.hardware.fault_verdict import gaps, out_of_limits
from tests.hardware.lab import CONFIG
from tests.hardware.real_cell import alive, prompt_lab
from tests.mocks import BuildWalk
from tests.programs import program
from tests.waiting import pass_time, wait_until

MODULE = "tests.robolearn.operations.deploy.kill_trials"
TRIALS, STEPS, BLOCK = 2, 10, (0.3, 0.12, 0.5)
# From the limits of the cell: 0.5 m/s are braked within 0.12 s, and the servos settle. What a busy
# machine adds is known by the ticks that the emulated controller lost.
REST_S = 0.5
Table = tuple[TrialRecord, ...]
# Where a deployment dies, and for how long it still lives from there at most [s].
PLACES = {
    "connecting": 2.0,
    "row begins": 0.01,
    "to the start": 1.0,
    "trial": 0.1,
    "episode saved": 0.1,
    "row ends": 0.01,
    "between": 0.1,
    "home": 0.5,
}


@dataclass(frozen=True)
class Outcome:
    """Where it died, when the arm was at rest after that [s], what was wrong ("" if nothing)."""

    place: str
    rest_s: float
    wrong: str


@dataclass(frozen=True)
class Death:
    """How a deployment's process ended, what it said, what it had witnessed."""

    code: int
    said: str
    witness: list[dict[str, Any]]

    def count(self, what: str) -> int:
        return sum(w["what"] == what for w in self.witness)


# -- the deployment that dies --------------------------------------------------------------------


class Witness:
    """Lines that survive the process: what it was about to do, and what it had done."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def say(self, what: str, **more: Any) -> None:
        line = json.dumps({"what": what, "t_ns": time.monotonic_ns(), **more})
        os.write(self._fd, f"{line}\n".encode())

    def supervisor(self, client: SupervisorClient) -> None:
        self.say("supervisor", pid=client.pid)


def read_witness(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def die(witness: Witness, delay_s: float) -> None:
    """By SIGKILL, a little later, whatever the process does then."""

    def kill() -> None:
        pass_time(delay_s, "it dies at any moment")
        witness.say("dies")
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=kill, daemon=True).start()


def wrap(
    owner: Any,
    name: str,
    before: Callable[[], None],
    after: Callable[[Any], None] = lambda _: None,
) -> None:
    """Something happens before and after every call of a method."""
    method = getattr(owner, name)

    def wrapped(self: Any, *args: Any, **options: Any) -> Any:
        before()
        answer = method(self, *args, **options)
        after(self)
        return answer

    setattr(owner, name, wrapped)


@dataclass
class Doom:
    """Dies at the ``number``-th time that the process comes by a place."""

    place: str
    number: int
    delay_s: float
    witness: Witness

    def passes(self, here: str) -> None:
        """The process comes by."""
        if here == self.place:
            self.number -= 1
            if self.number == 0:
                die(self.witness, self.delay_s)


def dying(place: str, number: int, delay_s: float, witness: Path, command: list[str]) -> int:
    """Run the command and die there: at the ``number``-th time that it comes by."""
    told = Witness(witness)
    pass_by = Doom(place, number, delay_s, told).passes

    def on_tick(self: Any, tick: Any) -> None:
        if tick.index == STEPS // 2:
            pass_by("trial")

    def row(what: str) -> None:
        told.say(f"{what}s")
        pass_by(f"row {what}s")

    def row_ended(_: Any) -> None:
        told.say("ended")
        pass_by("between")

    env = deploy_run.RealEnv
    wrap(env, "__init__", lambda: pass_by("connecting"), lambda e: told.supervisor(e.supervisor))
    wrap(env, "reset", lambda: pass_by("to the start"))
    wrap(env, "home", lambda: pass_by("home"))
    wrap(EpisodeRecorder, "keep", lambda: pass_by("episode saved"))
    wrap(TrialStore, "begin", lambda: row("begin"), lambda _: told.say("begun"))
    wrap(TrialStore, "end", lambda: row("end"), row_ended)
    deploy_run.HoldAtEnd.on_tick = on_tick
    deploy_policy.policy_builder = lambda *_, **__: BuildWalk(0.02)
    deploy_policy.policy_hash = lambda run: "walk"
    deploy_policy.run_provenance = lambda run: {}
    return robolearn(command)


def dying_as_told(words: list[str]) -> int:
    """The same with what a command line says."""
    place, number, delay_s, witness, *command = words
    return dying(place, int(number), float(delay_s), Path(witness), command)


# -- what is judged ------------------------------------------------------------------------------


class Folder:
    """The results that all deployments share, and the files that they are started with."""

    def __init__(self, root: Path, address: str, tracker_port: int) -> None:
        self.out, self.root = root / "out", root
        raw = yaml.safe_load(CONFIG.read_text())
        robot = raw["robot"]
        robot["driver"] |= {"address": address, "watchdog_hz": 5}
        udp = robot["trackers"]["block/pose"]["udp"]
        udp |= {"address": address, "port": tracker_port, "max_age_s": 1.0}
        robot["supervisor"] = {
            "late_s": 0.4,
            "heartbeat_s": 0.4,
            "frozen_s": 2.0,
            "state_late_s": 0.1,
            "state_stale_s": 0.4,
            "goto_speed": 1.2,
            "goto_acceleration": 6.0,
        }
        (root / "cell.yaml").write_text(yaml.safe_dump(raw))
        suite = yaml.safe_load((CONFIG.parents[1] / "eval" / "pusht.yaml").read_text())
        starts = [[0.1, 0.3], [0.14, 0.42]]
        suite["conditions"] = [
            {"id": f"c{i}", "seed": i, "poses": {"tool/xy_table": xy, "block/pose": list(BLOCK)}}
            for i, xy in enumerate(starts)
        ]
        (root / "suite.yaml").write_text(yaml.safe_dump({**suite, "subset": TRIALS}))

    @property
    def command(self) -> list[str]:
        files = ("--robot", "cell.yaml", "--suite", "suite.yaml", "--out", "out")
        counts = ("--episodes", str(TRIALS), "--max-steps", str(STEPS))
        return ["deploy", "walk", *files, *counts, "--yes", "--no-video", "--json"]

    def deploy(self, place: str, number: int, delay_s: float) -> Death:
        """Run one that dies there, or one that does not (``place`` is "")."""
        witness = self.root / "witness"
        witness.write_text("")
        how = (place, str(number), str(delay_s), str(witness))
        done = subprocess.run(
            [*program(MODULE, "dying_as_told"), *how, *self.command],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=300,
            check=False,
        )
        said = done.stderr.decode("utf-8", "replace")[-600:]
        return Death(done.returncode, said, read_witness(witness))

    def trials(self) -> Table:
        return read_trials(self.out) if has_trials(self.out) else ()


def wrong_rows(before: Table, after: Table, death: Death) -> str:
    """What the table says that did not happen, or keeps quiet about, or ""."""
    if after[: len(before)] != before:
        return "trials of earlier deployments were changed"
    new, count = after[len(before) :], death.count
    if not count("begun") <= len(new) <= count("begins"):
        return f"{len(new)} rows of {count('begun')} to {count('begins')} trials that began"
    for number, row in enumerate(new, 1):
        finished = row.status == "finished" and row.steps == STEPS and row.episode != ""
        orphan = (row.status, row.reason, row.success) == ("aborted", UNKNOWN, False)
        # A row whose end was being written may be either, whole.
        known = finished if number <= count("ended") else orphan
        if not known and not (number == count("ends") and (finished or orphan)):
            return f"trial {number}, of which {count('ended')} had ended: {row}"
    return ""


def wrong_store(out: Path, trials: Table) -> str:
    """Which episode of a finished trial cannot be read, or ""."""
    episodes = [t.episode for t in trials if t.status == "finished"]
    if not episodes:
        return ""
    store = EpisodeStore.open(out / "store")
    lost = [e for e in episodes if e not in store.ids()]
    steps = [] if lost else [store.read(e).steps for e in episodes[-TRIALS:]]
    return f"no episodes {lost}" if lost else "" if set(steps) == {STEPS} else f"steps {steps}"


def rest_s(log: LabLog, died_ns: int) -> float:
    """When the arm came to rest after that; 0 for one that stood."""
    return max(0, *(t - died_ns for t in log.times("rest")), 0) * 1e-9


def kill_trial(folder: Folder, door: LabClient, place: str, rng: random.Random) -> Outcome:
    """One deployment dies."""
    before, begin_ns = folder.trials(), time.monotonic_ns()
    number = 1 if place in ("connecting", "home") else rng.randint(1, TRIALS)
    death = folder.deploy(place, number, rng.uniform(0.0, PLACES[place]))
    for pid in [w["pid"] for w in death.witness if w["what"] == "supervisor"]:
        wait_until(lambda pid=pid: not alive(pid), 10.0)
    wait_until(lambda: not door.log(begin_ns).moving, 10.0)
    log, after = door.log(begin_ns), folder.trials()
    if death.code != -signal.SIGKILL:
        # A stop on a busy machine: an aborted trial, which the next deployment must keep.
        return Outcome("ended by itself", 0.0, "" if death.code == 2 else death.said)
    wrong = wrong_rows(before, after, death) or wrong_store(folder.out, after) or out_of_limits(log)
    died_ns = next(w["t_ns"] for w in death.witness if w["what"] == "dies")
    resting_s = rest_s(log, died_ns)
    lost_s = sum(gaps(log, died_ns, died_ns + round(1e9 * resting_s)))
    if resting_s > REST_S + lost_s:
        wrong = wrong or f"at rest {resting_s:.2f} s after its death"
    return Outcome(place, resting_s, wrong)


def last_deployment(folder: Folder) -> str:
    """What is wrong with one that nobody disturbs, after all others, or ""."""
    before, death, after = folder.trials(), folder.deploy("", 0, 0.0), folder.trials()
    if death.code != 0:
        return f"exit code {death.code}: {death.said}"
    if after[: len(before)] != before:
        return "trials of earlier deployments were changed"
    ended = [(t.status, t.steps) for t in after[len(before) :]]
    if ended != [("finished", STEPS)] * TRIALS:
        return f"its trials: {ended}"
    counted = json.loads((folder.out / "deploy.json").read_text())["episodes"]
    scored = sum(t.status in SCORED for t in after)
    return "" if counted == scored else f"deploy.json counts {counted} of {scored} trials"


def run(count: int, seed: int = 0, last: int = 26) -> list[Outcome]:
    """So many deployments that die, and one that does not."""
    rng, out = random.Random(seed), []
    rounds = -(-count // len(PLACES))
    places = [p for _ in range(rounds) for p in rng.sample([*PLACES], len(PLACES))]
    with tempfile.TemporaryDirectory() as name, prompt_lab(Path(name), last, 30126) as lab:
        folder = Folder(Path(name), lab.where.address, lab.where.tracker_port)
        with lab.where.connect() as door:
            door.place("block", BLOCK)
            for place in places[:count]:
                out.append(kill_trial(folder, door, place, rng))
                door.fault("unlock")
        out.append(Outcome("not disturbed", 0.0, last_deployment(folder)))
    return out


def text(outcomes: list[Outcome]) -> str:
    """One line per place."""
    return outcome_text(outcomes, lambda o: o.place, at_rest)


if __name__ == "__main__":
    load = os.getloadavg()[0]
    print(text(run(int(sys.argv[1]), int((*sys.argv, 0)[2]))))
    print(f"1-minute load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
