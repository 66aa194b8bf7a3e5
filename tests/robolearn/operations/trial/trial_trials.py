"""Blinded trials in a lab whose operator's process is killed: nothing lost, nothing twice.

    python -m tests.robolearn.operations.trial.trial_trials 60 5

So many conditions by three policies on an emulated UR; the process dies so many times, by SIGKILL
at a random moment of a random place. At the end the table, the store and everything that was ever
printed are compared with the plan.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from eval.blinded.plan import read_locked
from eval.blinded.queue import counted, standing
from eval.trials.table import TrialStore, has_trials, read_trials
from robolearn.cli.main import main as robolearn
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.deploy import policy as deploy_policy
from robolearn.operations.trial import on_cell
from tests.hardware.real_cell import prompt_lab
from tests.mocks import BuildWalk
from tests.programs import program
from tests.robolearn.operations.deploy.kill_trials import BLOCK, Doom, Witness, wrap
from tests.robolearn.operations.deploy.kill_trials import Folder as Deployments

MODULE = "tests.robolearn.operations.trial.trial_trials"
RUNS = {"kestrel": 0.002, "osprey": 0.006, "harrier": 0.01}
STEPS = 6
# Where a session dies, and for how long it still lives from there at most [s].
PLACES = {
    "row begins": 0.01,
    "to the start": 1.0,
    "trial": 0.1,
    "episode saved": 0.1,
    "row ends": 0.01,
    "between": 0.1,
}


def dying(place: str, number: int, delay_s: float, witness: Path, command: list[str]) -> int:
    """Run the command and die there: at the ``number``-th time that it comes by."""
    pass_by = Doom(place, number, delay_s, Witness(witness)).passes

    def on_tick(self: object, tick: object) -> None:
        if getattr(tick, "index", 0) == STEPS // 2:
            pass_by("trial")

    wrap(on_cell.RealEnv, "reset", lambda: pass_by("to the start"))
    wrap(EpisodeRecorder, "keep", lambda: pass_by("episode saved"))
    wrap(TrialStore, "begin", lambda: pass_by("row begins"))
    wrap(TrialStore, "end", lambda: pass_by("row ends"), lambda _: pass_by("between"))
    on_cell.HoldAtEnd.on_tick = on_tick
    deploy_policy.policy_builder = lambda run, **__: BuildWalk(RUNS[run.name])
    deploy_policy.policy_hash = lambda run: run.name
    deploy_policy.run_provenance = lambda run: {}
    return robolearn(command)


def dying_as_told(words: list[str]) -> int:
    """The same with what a command line says."""
    place, number, delay_s, witness, *command = words
    return dying(place, int(number), float(delay_s), Path(witness), command)


@dataclass(frozen=True)
class Session:
    """How a session's process ended, and all that it printed."""

    code: int
    said: str


class Folder:
    """The plan's folder and the files that sessions are started with."""

    def __init__(self, root: Path, address: str, port: int, trials: int) -> None:
        Deployments(root, address, port)
        self.root, self.out = root, root / "out"
        suite = yaml.safe_load((root / "suite.yaml").read_text())
        suite["conditions"] = [
            {
                "id": f"c{i}",
                "seed": i,
                "poses": {
                    "tool/xy_table": [0.1 + 0.002 * (i % 20), 0.3 + 0.01 * (i % 10)],
                    "block/pose": list(BLOCK),
                },
            }
            for i in range(trials)
        ]
        (root / "suite.yaml").write_text(yaml.safe_dump({**suite, "subset": trials}))
        for name in RUNS:
            (root / name).mkdir()
            (root / name / "config.yaml").write_text(f"policy: {name}\n")

    @property
    def command(self) -> list[str]:
        design = ("--robot", "cell.yaml", "--policies", *RUNS, "--suite", "suite.yaml")
        design += ("--max-steps", str(STEPS))
        always = ("--out", "out", "--yes", "--go-on-after-stop", "20", "--operator", "me")
        planned = (self.out / "plan.yaml").is_file()
        return ["trial", *always, *(() if planned else design)]

    def session(self, place: str, number: int, delay_s: float) -> Session:
        """One that dies there, or one that does not (``place`` is "")."""
        witness = self.root / "witness"
        witness.write_text("")
        how = (place, str(number), str(delay_s), str(witness))
        done = subprocess.run(
            [*program(MODULE, "dying_as_told"), *how, *self.command],
            cwd=self.root,
            env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            check=False,
        )
        return Session(done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace"))

    def done(self) -> int:
        """How many slots are done."""
        if not has_trials(self.out / "blind"):
            return 0
        return len(standing(read_locked(self.out), read_trials(self.out / "blind")).done)


def wrong(folder: Folder, sessions: list[Session]) -> str:
    """What is not as it was planned, or ""."""
    locked, rows = read_locked(folder.out), read_trials(folder.out / "blind")
    now = standing(locked, rows)
    kept = counted(now, rows)
    if [r.slot for r in kept] != [s.number for s in locked.plan.slots]:
        return f"slots {[r.slot for r in kept]}"
    finished = [r for r in kept if r.status == "finished"]
    store = EpisodeStore.open(folder.out / "store")
    if len({r.episode for r in finished}) != len(finished):
        return "an episode belongs to two trials"
    named = {store.meta(r.episode).provenance["trial"]["slot"] for r in finished}
    if named != {r.slot for r in finished}:
        return "episodes and trials do not belong together"
    extra = len(store.ids()) - len(finished)
    if extra:
        return f"{extra} episodes are of no trial"
    # The first session is told the names, and may repeat them in the order in which it was.
    told = [name for name in RUNS for s in sessions[1:] if name in s.said]
    return f"{told} was printed" if told else ""


def run(trials: int, deaths: int, seed: int = 0, last: int = 29) -> str:
    """All sessions; what was wrong, and how it went."""
    rng, sessions, begin = random.Random(seed), list[Session](), time.monotonic()
    with tempfile.TemporaryDirectory() as name, prompt_lab(Path(name), last, 30129) as lab:
        folder = Folder(Path(name), lab.where.address, lab.where.tracker_port, trials)
        with lab.where.connect() as door:
            door.place("block", BLOCK)
            killed = 0
            while True:
                left = 3 * trials - folder.done()
                place = rng.choice([*PLACES]) if killed < deaths else ""
                share = max(1, left // (deaths - killed + 1)) if place else 0
                delay_s = rng.uniform(0.0, PLACES.get(place, 0.0))
                found = folder.session(place, rng.randint(1, max(1, share)), delay_s)
                sessions.append(found)
                killed += found.code == -signal.SIGKILL
                words = place or "to the end"
                print(f"  {words}: exit {found.code}, {folder.done()} done", flush=True)
                door.fault("unlock")
                if found.code not in (0, 2, -signal.SIGKILL) or len(sessions) > 8 * deaths + 8:
                    return found.said[-800:]
                if found.code == 0:
                    break
        rows = read_trials(folder.out / "blind")
        said = wrong(folder, sessions)
        tally = {s: sum(r.status == s for r in rows) for s in ("finished", "aborted", "voided")}
    took_s = time.monotonic() - begin
    return (
        f"{3 * trials} slots, {killed} deaths, {len(sessions)} sessions, {took_s:.0f} s: {tally};"
        f" {said or 'nothing lost, nothing twice, in order, no name printed'}"
    )


if __name__ == "__main__":
    print(run(int(sys.argv[1]), int(sys.argv[2]), int((*sys.argv, 0)[3])))
