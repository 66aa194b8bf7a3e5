"""Do both forms of one reality agree?

    python -m tests.benchmarks.reality_forms [TRIALS] [TASK] [START ...]

The task's expert acts under the same starts in ``reality/TASK`` (in process) and in the lab behind
the wire protocols, with the same hidden physics and drivetrain (one file, one seed). It prints both
rates, in how many trials they agree, and the difference of scores with its interval. The second
form runs in real time: about half a minute a trial, on a quiet machine. A stop that is nothing the
expert did (a busy machine, the link) is tried again, as ``robolearn trial`` does, three times at
most. ``START``: the numbers of the starts, rather than the first TRIALS.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import yaml

from eval.statistics.intervals import mean_t
from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from robolearn.config import find_config, to_dict
from robolearn.contracts import Env
from robolearn.errors import LinkStopError, SafetyStopError, StaleSignalError
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.cell.opened import CellChoice, open_cell
from robolearn.operations.cell.release import Stopped, why_stopped_for_good
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.reality.worlds import REALITIES, WORN, make_world
from robolearn.runtime import run_episode
from sim.experts.registry import build_expert
from sim.scene.load import load_scene
from sim.tasks.registry import build_task

SEED, ADDRESS, TRIES = 7, "127.44.0.7", 3


NO_VERDICT = (float("nan"), float("nan"))


def tried(
    env: Env,
    task: str,
    max_steps: int,
    starts: Sequence[int],
    release: Callable[[], None] | None = None,
) -> np.ndarray:
    """Success and score ``[starts, 2]`` of the expert. NaN where what it sees broke off, as the
    tracker's gate does while an object flies faster than it believes, and where the machine
    stopped the arm each time; another stop of the supervisor is a failure without a score. After a
    stop the arm is released.
    """
    agent = build_expert(task, env.spec, 0.3, {})
    found: list[tuple[float, float]] = []
    for i in starts:
        condition = build_task(task, params(task)).sample_condition(i)
        for left in reversed(range(TRIES)):
            watching = [HoldAtEnd(env)] if release else []  # type: ignore[list-item]
            verdict = NO_VERDICT
            try:
                result = run_episode(
                    env, agent, None, watching, condition, max_steps=max_steps, task=task
                )
            except StaleSignalError as error:
                print(f"  {i}: no verdict: {error}", flush=True)
            except SafetyStopError as error:
                if release is None:
                    raise
                print(f"  {i}: stopped: {error}", flush=True)
                release()
                if isinstance(error, LinkStopError) and left:
                    continue
                if not isinstance(error, LinkStopError):
                    verdict = (0.0, float("nan"))
            else:
                verdict = (float(result.outcome.success), result.score)
                print(f"  {i}: success {result.outcome.success}, score {result.score:.3f}")
            found.append(verdict)
            break
    return np.array(found)


def release_lab(env: Stopped, cell: CellConfig) -> None:
    """As a deployment does between trials."""
    refused = why_stopped_for_good(env, cell, Unattended(agreed=True), "")
    if refused:
        raise RuntimeError(f"the lab's arm does not go on: {refused}")


def params(task: str) -> dict:
    """Of the task, as its reality has them."""
    scene = next(r.scene for r in REALITIES.values() if r.task == task)
    return dict(load_scene(scene).config.task.params) if scene else {}


def main(trials: int = 40, name: str = "pusht", chosen: Sequence[int] = ()) -> None:
    """Both forms, one after the other."""
    starts = chosen or range(trials)
    reality = REALITIES[name]
    raw = yaml.safe_load(find_config(Path(reality.cell)).read_text())
    raw["lab"]["drivetrain"] = to_dict(WORN)
    # Beside other labs of this machine.
    devices = [raw["robot"], raw["robot"].get("gripper"), *raw["robot"]["trackers"].values()]
    for part in (d["udp"] if "udp" in d else d["driver"] for d in devices if d is not None):
        part["address"] = ADDRESS
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        file = Path(folder) / "cell.yaml"
        file.write_text(yaml.safe_dump(raw))
        world = stack.enter_context(
            contextlib.closing(make_world(f"reality/{name},seed={SEED},cell={file}"))
        )
        steps = world.max_steps
        print("in process")
        inside = tried(world, reality.task, steps, starts)
        cell = load_cell(file)
        task = build_task(reality.task, params(reality.task))
        opened = open_cell(stack, CellChoice(cell, file, True, SEED), task, Unattended(agreed=True))
        print("through the wire protocols")
        outside = tried(
            opened.env, reality.task, steps, starts, lambda: release_lab(opened.env, cell)
        )
    judged = ~np.isnan(inside[:, 0] + outside[:, 0])
    print(f"{(~judged).sum()} of {len(starts)} trials have no verdict in one form or both")
    inside, outside, trials = inside[judged], outside[judged], int(judged.sum())
    agree = int((inside[:, 0] == outside[:, 0]).sum())
    gaps = inside[:, 1] - outside[:, 1]
    gap = mean_t(gaps[~np.isnan(gaps)])
    print(f"{name}, {trials} trials: success {inside[:, 0].mean():.2f} in process,")
    print(f"{outside[:, 0].mean():.2f} by wire; {agree} of {trials} agree; scores: {gap.text()}")


if __name__ == "__main__":
    main(
        int((sys.argv[1:2] or ["40"])[0]),
        (sys.argv[2:3] or ["pusht"])[0],
        [*map(int, sys.argv[3:])],
    )
