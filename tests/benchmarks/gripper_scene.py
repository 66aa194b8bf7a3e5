"""Is the gripper what an identified scene gets wrong? And what is a real trial worth for its own
repetition?

    python -m tests.benchmarks.gripper_scene FOLDER [STARTS [ROLLOUTS]]

FOLDER is of ``two_scenes ... pick_place``. A third scene, the identified one with the drive of its
gripper identified from the same recordings, is simulated from the same real trials; three policies
act in reality a second time from the first real starts. The reports are of the first STARTS (20)
of the suite, each scene against the packaged one.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from eval.trials.table import TrialStore, read_trials
from eval.trust.pairing import By
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.operations.scenes.recorded_gripper import recorded_gripper
from robolearn.operations.suites import world_label
from robolearn.operations.trial.like import LikeOptions, evaluate_like
from robolearn.operations.trial.start_noise import StartNoise
from robolearn.operations.trust.options import Beside
from robolearn.operations.trust.trials import trust_of_trials
from sim.identification.gripper_motion import gripper_document
from sim.scene.load import load_scene
from tests.benchmarks.two_scenes import BATCH, STARTS, TASKS, policies, reality

NAME, AGAIN = "pick_place", ("flow_0900", "flow_1700", "bc_0900")


def with_gripper(folder: Path) -> Path:
    """The identified scene with its gripper's drive, from the reality's own recordings."""
    scene, out = folder / "identified", folder / "identified_gripper"
    store = EpisodeStore.open(folder / "recordings")
    found, _ = recorded_gripper(store, store.ids(), load_scene(str(scene)))
    if found is None or not found.known:
        raise RuntimeError(f"the gripper was not identified: {gripper_document(found)}")
    raw: dict[str, Any] = yaml.safe_load((scene / "scene.yaml").read_text())
    raw["name"] = out.name
    raw["control"]["arms"][0]["gripper"]["drive"] = {
        "delay_s": found.delay.value,
        "speed": found.speed.value,
        "pulls_on": found.pulls_on,
    }
    if not out.is_dir():
        unfinished = out.with_name(f"{out.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(scene, unfinished)
        (unfinished / "scene.yaml").write_text(yaml.safe_dump(raw, sort_keys=False))
        unfinished.rename(out)
    return out


def of_starts(folder: Path, out: Path, starts: int) -> Path:
    """The trials of the first starts alone; the same number of every policy."""
    shutil.rmtree(out, ignore_errors=True)
    wanted = {f"{NAME}-{i:04d}" for i in range(starts)}
    with TrialStore(out) as table:
        table.add([r for r in read_trials(folder) if r.condition in wanted])
    return out


def report(folder: Path, world: str, scenes: Mapping[str, str], starts: int) -> None:
    """By success and by score; the scenes after the first are compared with it."""
    of = {
        name: of_starts(folder / name, folder / "of_starts" / name, starts)
        for name in ("real", "again", *scenes)
    }
    first, *_ = scenes
    ways: tuple[By, ...] = ("success", "score")
    for by in ways:
        for when, scene in scenes.items():
            print(f"-- {when}, by {by}: {scene}")
            beside = Beside() if when == first else Beside(against=(of[first],))
            trust = trust_of_trials(
                *([of["real"], of["again"]], [of[when]]),
                real_world=world, sim_world=world_label(scene), beside=beside, by=by,
            )  # fmt: skip
            print("\n".join(trust.lines), flush=True)


def main(folder: Path, starts: int = 20, rollouts: int = 2) -> None:
    """Identify the gripper, simulate, repeat, report."""
    task = TASKS[NAME]
    world = reality(NAME, task, folder)
    runs = policies(task, folder)
    options = EvaluateOptions(
        suite=Path(task.suite), workers=0, batch=BATCH, videos=0, repeat=False
    )
    scene = str(with_gripper(folder))
    evaluate_like(
        runs, folder / "real", folder / "gripper", replace(options, worlds=(scene,)),
        how=LikeOptions(rollouts=rollouts, real_world=world),
    )  # fmt: skip
    evaluate_like(
        [run for run in runs if run.name in AGAIN],
        of_starts(folder / "real", folder / "first", STARTS),
        folder / "again", replace(options, worlds=(world,)),
        how=LikeOptions(rollouts=1, noise=StartNoise(0.0, 0.0), real_world=world),
    )  # fmt: skip
    scenes = {"before": task.scene, "after": str(folder / "identified"), "gripper": scene}
    report(folder, world, scenes, starts)


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    main(Path(where).resolve(), *(int(word) for word in numbers))
