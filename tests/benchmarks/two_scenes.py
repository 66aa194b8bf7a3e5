"""Is a simulator closer to reality once it was identified? Twelve policies, before and after.

    python -m tests.benchmarks.two_scenes FOLDER pusht|pusht_late|pick_place [REAL [ROLLOUTS]]

Reality is a workcell in process with hidden parameters (``reality/TASK,seed=3``). Twelve policies
(ages of trainings, two algorithms, all and a few demonstrations) act in it from the first REAL
starts of the suite (50), and from where those trials really began, ROLLOUTS times each (4), in the
default scene and in the scene that was identified from episodes that the reality itself recorded.
A few starts of all policies at a time, so that what is there is comparable whenever it is stopped;
the same command goes on. At the end the two trust reports, and the paired comparison of the scenes.

The cell is the packaged one with forces recorded and a controller at 100 Hz instead of 500, which
is three times faster to compute; that of pick-and-place also has a drive train that is later than
its scene's, which otherwise has the reality's own figures, and so has that of ``pusht_late``.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from eval.sweep import Value
from eval.trust.pairing import By
from hardware.cell.load import load_cell
from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.cli.main import main as command
from robolearn.config import find_config
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.reality.worlds import REALITIES
from robolearn.operations.suites import world_label
from robolearn.operations.trial.like import LikeOptions, evaluate_like
from robolearn.operations.trust.options import Beside
from robolearn.operations.trust.table import Trust
from robolearn.operations.trust.trials import trust_of_trials
from tests.benchmarks.aged_policies import aged

SEED, CONTROLLER_HZ = 3, 100
STARTS, BATCH = 10, 10


@dataclass(frozen=True)
class Training:
    """Policies of one training: their ages, what differs from the recipe."""

    recipe: str
    ages: tuple[int, ...]
    settings: Mapping[str, Value]
    # Of the recipe's file, what else is the policy and its algorithm.
    instead: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Task:
    """Policies, the default scene, and what the reality is."""

    # Of the reality.
    world: str
    scene: str
    suite: str
    trainings: Mapping[str, Training]
    demonstrations: tuple[str, ...]
    # Of the reality, to identify the scene from.
    recordings: int
    drivetrain: Mapping[str, Any] | None = None


_PUSHT, _PICK = "configs/train/pusht_flow_demo.yaml", "configs/train/pick_place_ur5e_flow.yaml"
_CHUNKS = {"n_obs": 2, "horizon": 16, "execute": 14, "lr": 1e-3, "batch_size": 256}
TASKS = {
    "pusht": Task(
        world="pusht",
        scene="pusht_ur5e",
        suite="configs/eval/pusht.yaml",
        trainings={
            # By the ages of ``two_engines``, whose training is the same.
            "flow": Training(_PUSHT, (200, 300, 400, 600, 800, 1000, 1200, 1800, 2600, 3000), {}),
            "bc": Training("configs/train/pusht_bc.yaml", (300,), {}),
            "bc_few": Training("configs/train/pusht_bc.yaml", (300,), {"data.held_out": 0.9}),
        },
        demonstrations=("data", "import", str(pusht_demonstrations_path())),
        recordings=4,
    ),
    "pick_place": Task(
        world="pick_place",
        scene="pick_place_ur5e",
        suite="configs/eval/pick_place.yaml",
        trainings={
            "flow": Training(_PICK, (200, 500, 900, 1300, 1700, 2200), {}),
            "bc": Training(_PICK, (400, 900, 1500), {}, {"policy": "bc", "algorithm": _CHUNKS}),
            "bc_few": Training(
                *(_PICK, (300, 600, 1000), {"data.held_out": 0.8}),
                {"policy": "bc", "algorithm": _CHUNKS},
            ),
        },
        demonstrations=(
            *("collect", "--config", "configs/collect/pick_place_ur5e.yaml"),
            *("--agent", "scripted", "--episodes", "60"),
        ),
        recordings=4,
        drivetrain={
            "backlash_rad": [0.0008],
            "command_delay_s": 0.06,
            "state_delay_s": 0.02,
            "position_noise_rad": 2e-5,
            "velocity_noise_rad_s": 5e-4,
            "spread": 0.3,
        },
    ),
}
TASKS["pusht_late"] = replace(TASKS["pusht"], drivetrain=TASKS["pick_place"].drivetrain)


def policies(task: Task, folder: Path) -> list[Path]:
    """The runs; trained where they are not there yet."""
    store = made(folder / "demonstrations", *task.demonstrations)
    found: list[Path] = []
    for name, training in task.trainings.items():
        raw = yaml.safe_load(find_config(Path(training.recipe)).read_text())
        recipe = folder / f"{name}.yaml"
        recipe.write_text(yaml.safe_dump({**raw, **(training.instead or {})}, sort_keys=False))
        runs = [folder / f"{name}_{age:04d}" for age in training.ages]
        aged(recipe, store, training.ages, runs, training.settings)
        found += runs
    return found


def reality(name: str, task: Task, folder: Path) -> str:
    """The name of the world that stands for reality."""
    raw = yaml.safe_load(find_config(Path(REALITIES[name].cell)).read_text())
    return hidden(name, task, raw, folder)


def hidden(name: str, task: Task, raw: dict[str, Any], folder: Path, seed: int = SEED) -> str:
    """The world of a cell's file, as it is recorded and driven here."""
    raw["lab"]["devices"]["controller"]["rate_hz"] = CONTROLLER_HZ
    raw["robot"]["driver"]["rate_hz"] = CONTROLLER_HZ
    raw["robot"]["wrench"] = True
    if task.drivetrain is not None:
        raw["lab"]["drivetrain"] = dict(task.drivetrain)
    cell = folder / "cell.yaml"
    cell.write_text(yaml.safe_dump(raw, sort_keys=False))
    return f"reality/{name},seed={seed},cell={cell}"


def identified(task: Task, world: str, folder: Path) -> Path:
    """The scene that the reality's own recordings tell, and its cell's file."""
    return told_by(recorded(task, world, folder), task.scene, folder)


def told_by(store: Path, scene: str, folder: Path) -> Path:
    """The scene identified from ``store``, with the limits of its cell where that is commanded by
    the tool's pose.
    """
    cell = folder / "cell.yaml"
    limits = ("--cell", str(cell)) if load_cell(cell).tool is not None else ()
    told = ("--episodes", str(store), "--scene", scene)
    return made(folder / "identified", "identify", *told, *limits)


def recorded(task: Task, world: str, folder: Path) -> Path:
    """Episodes that the reality records, from starts that no evaluation has."""
    how = ("--noise", "0.2", "--episodes", str(task.recordings))
    return made(folder / "recordings", *collecting(world, folder, 20260102), *how)


def collecting(world: str, folder: Path, seed: int) -> tuple[str, ...]:
    """The command that lets the scripted expert act in ``world``."""
    config = folder / "collect.yaml"
    config.write_text(yaml.safe_dump({"world": world, "seed": seed}))
    return ("collect", "--config", str(config), "--agent", "scripted")


def made(out: Path, *words: str) -> Path:
    """The folder ``out``, made by a command where it is not there yet: whole or not at all."""
    if not out.is_dir():
        unfinished = out.with_name(f"{out.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        if command([*words, "--out", str(unfinished)]):
            raise RuntimeError(f"robolearn {' '.join(words)} failed")
        unfinished.rename(out)
    return out


def report(folder: Path, world: str, scenes: Mapping[str, str]) -> dict[By, Trust]:
    """Both reports and their comparison, of success and of score; that of the last scene is
    returned.
    """
    ways: tuple[By, ...] = ("success", "score")
    found: dict[By, Trust] = {}
    for by in ways:
        for when, scene in scenes.items():
            print(f"-- {when}, by {by}: {scene}")
            beside = Beside()
            if by == "success":
                # Recordings lead away as far whatever trials are judged by.
                beside = Beside(trajectories=folder / "recordings", trajectories_world=scene)
            if when == "after":
                beside = replace(beside, against=(folder / "before",))
            trust = trust_of_trials(
                *([folder / "real"], [folder / when]),
                real_world=world, sim_world=world_label(scene), beside=beside, by=by,
            )  # fmt: skip
            found[by] = trust
            print("\n".join(trust.lines), flush=True)
    return found


def evaluated(
    folder: Path,
    runs: Sequence[Path],
    suite: Path,
    world: str,
    scenes: Mapping[str, str],
    real: int,
    rollouts: int,
) -> None:
    """Trials in reality from the first starts of the suite, and from there in every scene; a few
    starts of all policies at a time.
    """
    options = EvaluateOptions(suite=suite, workers=0, batch=BATCH, videos=0, repeat=False)
    how = LikeOptions(rollouts=rollouts, real_world=world)
    for starts in (*range(STARTS, real, STARTS), real):
        evaluate(runs, folder / "real", replace(options, worlds=(world,), conditions=starts))
        for when, scene in scenes.items():
            asked = replace(options, worlds=(scene,))
            evaluate_like(runs, folder / "real", folder / when, asked, how=how)
        print(f"{starts} starts of {len(runs)} policies in reality and both scenes", flush=True)


def main(name: str, folder: Path, real: int = 50, rollouts: int = 4) -> None:
    """Train, record, identify, evaluate in the three worlds, report."""
    task = TASKS[name]
    folder.mkdir(parents=True, exist_ok=True)
    world = reality(task.world, task, folder)
    after = identified(task, world, folder)
    runs = policies(task, folder)
    scenes = {"before": task.scene, "after": str(after)}
    evaluated(folder, runs, Path(task.suite), world, scenes, real, rollouts)
    report(folder, world, scenes)


if __name__ == "__main__":
    where, which, *numbers = sys.argv[1:]
    main(which, Path(where).resolve(), *(int(word) for word in numbers))
