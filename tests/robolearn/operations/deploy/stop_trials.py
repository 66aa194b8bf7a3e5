"""Protective stops at random moments of a deployment that goes on after them.

    python -m tests.robolearn.operations.deploy.stop_trials 20

One ``robolearn deploy --go-on-after-stop`` over so many trials on an emulated UR, a process of its
own; the controller protects itself at random moments: on the way to a start, in the middle of a
trial, between two. What the controller says of its stops is compared with what the deployment says:
every stop stands in the row of one trial, every condition is tried to its end or its failure, in
order, and from a stop on the arm stands until the stop is released.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from eval.trials.table import SCORED, has_trials, read_trials
from hardware.emulators.lab.admin import LabClient, LabLog
from robolearn.cli.main import main as robolearn
from robolearn.operations.deploy import policy as deploy_policy
from robolearn.types import TrialRecord
from tests.hardware.fault_verdict import out_of_limits
from tests.hardware.real_cell import prompt_lab
from tests.mocks import BuildWalk
from tests.programs import program
from tests.robolearn.operations.deploy.kill_trials import BLOCK, Folder
from tests.waiting import pass_time

MODULE = "tests.robolearn.operations.deploy.stop_trials"
STEPS = 25
# Between two stops [s], uniformly; a trial takes about four.
APART_S = (1.0, 10.0)
# In which an arm that protects itself comes to rest [s].
BRAKING_NS = 300_000_000


@dataclass(frozen=True)
class Outcome:
    """What happened: trials wanted, rows that failed by a stop, rows that began anew, stops of the
    controller that were caused, stops of a busy machine beside them, what was wrong ("": nothing).
    """

    trials: int
    failed: int
    anew: int
    caused: int
    others: int
    wrong: str


def deploy(command: Sequence[str]) -> int:
    """In a process of its own: a policy that walks a little."""
    deploy_policy.policy_builder = lambda *_, **__: BuildWalk(0.004)
    deploy_policy.policy_hash = lambda run: "walk"
    deploy_policy.run_provenance = lambda run: {}
    return robolearn([*command])


def write_suite(root: Path, trials: int, rng: random.Random) -> None:
    path = root / "suite.yaml"
    suite = yaml.safe_load(path.read_text())
    suite["conditions"] = [
        {
            "id": f"c{i:02}",
            "seed": i,
            "poses": {
                "tool/xy_table": [rng.uniform(0.08, 0.2), rng.uniform(0.3, 0.42)],
                "block/pose": list(BLOCK),
            },
        }
        for i in range(trials)
    ]
    path.write_text(yaml.safe_dump({**suite, "subset": trials}))


def disturb(door: LabClient, rng: random.Random, process: subprocess.Popen[bytes]) -> None:
    """Protective stops while the arm is being used, until the deployment is over."""
    while process.poll() is None:
        pass_time(rng.uniform(*APART_S), "a stop comes at any moment")
        told = [e.kind for e in door.log().events if e.kind.startswith("program_")][-1:]
        # A controller whose program does not run has nothing to protect.
        if told == ["program_started"] and process.poll() is None:
            door.fault("protective_stop")


def wrong_rows(rows: Sequence[TrialRecord], trials: int, stops: int) -> str:
    """What the table says that did not happen, or keeps quiet about, or ""."""
    scored = [r.condition for r in rows if r.status in SCORED]
    if scored != [f"c{i:02}" for i in range(trials)]:
        return f"conditions that count: {scored}"
    odd = [(r.status, r.reason, r.note) for r in rows if not _explained(r)]
    if odd:
        return f"rows without an explanation: {odd}"
    told = sum("PROTECTIVE_STOP" in r.note for r in rows)
    return "" if told == stops else f"{told} rows tell of {stops} protective stops"


def _explained(row: TrialRecord) -> bool:
    if row.status == "finished":
        return row.steps == STEPS and row.episode != ""
    return row.reason == "safety_stop" and not row.success


def moved_while_stopped(log: LabLog) -> str:
    """Whether the arm began to move between a stop and its release, or ""."""
    stops = [e.t_ns for e in log.events if e.kind == "protective_stop"]
    released = [e.t_ns for e in log.events if e.kind == "unlocked"]
    for stop_ns in stops:
        free_ns = min((t for t in released if t > stop_ns), default=2**63 - 1)
        late = [t for t in log.times("motion") if stop_ns + BRAKING_NS < t < free_ns]
        if late:
            return f"it moved {1e-9 * (late[0] - stop_ns):.2f} s after a stop that held"
    return ""


def run(trials: int, seed: int = 0, last: int = 28) -> Outcome:
    """One deployment over so many trials."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, prompt_lab(Path(name), last, 30128) as lab:
        root = Path(name)
        folder = Folder(root, lab.where.address, lab.where.tracker_port)
        write_suite(root, trials, rng)
        command = folder.command
        command[command.index("--episodes") + 1] = str(trials)
        command[command.index("--max-steps") + 1] = str(STEPS)
        command += ["--go-on-after-stop", str(10 * trials)]
        with lab.where.connect() as door, lab.where.connect() as other:
            door.place("block", BLOCK)
            process = subprocess.Popen(
                [*program(MODULE, "deploy"), *command],
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(Path.cwd()), "OMP_NUM_THREADS": "1"},
                stdout=subprocess.DEVNULL,
                stderr=(root / "said").open("wb"),
            )
            hand = threading.Thread(target=disturb, args=(other, rng, process), daemon=True)
            hand.start()
            code = process.wait(40.0 * trials)
            hand.join(2.0 * APART_S[1])
            log = door.log()
        said = (root / "said").read_text("utf-8", "replace")[-600:]
        rows = read_trials(folder.out) if has_trials(folder.out) else ()
        return judged(rows, trials, code, said, log, folder.out)


def judged(
    rows: Sequence[TrialRecord], trials: int, code: int, said: str, log: LabLog, out: Path
) -> Outcome:
    """The deployment's words beside the controller's."""
    caused = len([e for e in log.events if e.kind == "protective_stop"])
    scored = [r for r in rows if r.status in SCORED]
    # On the way home there is no trial that could tell of it: the command does.
    homing = code == 2 and len(scored) == trials and "PROTECTIVE_STOP" in said
    wrong = "" if code == 0 or homing else f"exit code {code}: {said}"
    wrong = wrong or wrong_rows(rows, trials, caused - homing)
    wrong = wrong or moved_while_stopped(log) or out_of_limits(log)
    if not wrong:
        counted = json.loads((out / "deploy.json").read_text())
        if (counted["episodes"], len(counted["trials"])) != (len(scored), len(rows)):
            wrong = f"deploy.json counts {counted['episodes']} of {len(scored)} trials"
    cut = [r for r in rows if r.status != "finished"]
    return Outcome(
        trials,
        sum(r.status == "aborted" for r in cut),
        sum(r.status == "voided" for r in cut),
        caused,
        sum("PROTECTIVE_STOP" not in r.note for r in cut),
        wrong,
    )


if __name__ == "__main__":
    load = os.getloadavg()[0]
    print(run(int(sys.argv[1]), int((*sys.argv, 0)[2])))
    print(f"1-minute load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
