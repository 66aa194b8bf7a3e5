"""Is a reconstructed scene closer to reality than the scene that it is made from?

    python -m tests.benchmarks.reconstructed_scene FOLDER [REAL [ROLLOUTS [SEED]]]

Reality is a workcell whose table, object, camera and drive train are drawn from SEED (19): a box of
drawn sides and weight lies where the default scene (``pick_place_ur5e``) has its cube of 40 mm, on
a table that stands elsewhere. Its virtual lab is captured (``captured_lab``), reconstructed, and
identified from episodes that the reality recorded. Three policies (the last age of each
training of ``two_scenes pick_place``; runs that lie in FOLDER are taken) act in it from the first
REAL starts of the suite (50), and from where those trials really began, ROLLOUTS times each (1), in
the default and in the reconstructed scene. At the end both trust reports, and the paired
comparison. The same command goes on where it stopped.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import yaml

from eval.trust.pairing import By
from robolearn.cli.main import main as command
from robolearn.config import find_config
from robolearn.operations.capture.options import CaptureOptions
from robolearn.operations.trust.table import Trust
from robolearn.seeding import child_seed
from sim.plants.grip import CUBE
from sim.scene.load import load_scene
from tests.benchmarks.captured_lab import capture_in_process
from tests.benchmarks.two_scenes import (
    TASKS,
    evaluated,
    hidden,
    made,
    policies,
    recorded,
    report,
    told_by,
)

SEED, NAME = 19, "pick_place"
TASK = TASKS[NAME]
# What is drawn, and between what: the box's width between the fingers, and how much longer it is;
# its height, which the suite's starts hold above the table in every scene; its density; dry
# friction on the table; where the table stands [m, kg/m^3].
WIDTH_M, LONGEST_M, HEIGHT_M = (0.045, 0.06), 0.066, (0.04, 0.046)
LEAST_LONGER_M, DENSITY, FRICTION = 0.006, (300.0, 1200.0), (0.3, 0.7)
SHIFT_M = ((-0.03, 0.03), (-0.03, 0.03), (-0.02, 0.01))
# Where the box lies while the table is captured: x, y [m], yaw [rad].
LIES = ((0.0, 0.05), (0.08, 0.12), (-0.7, 0.7))
# What "robolearn capture" takes.
CELL, POSES, SCAN = Path("configs/hardware/lab_ur5e_pick_place_capture.yaml"), 20, 30


@dataclass(frozen=True)
class Drawn:
    """What nobody but the reality knows."""

    box_m: tuple[float, float, float]
    mass_kg: float
    friction: float
    origin_m: tuple[float, float, float]
    lies: tuple[float, float, float]

    @property
    def shift_m(self) -> np.ndarray:
        """How far the table stands from where the default scene has it."""
        return np.array(self.origin_m) - np.array([0.5, 0.0, 0.0])


def drawn(seed: int) -> Drawn:
    """The workcell of a seed."""
    rng = np.random.default_rng(child_seed(seed, "workcell"))
    width, height = float(rng.uniform(*WIDTH_M)), float(rng.uniform(*HEIGHT_M))
    long = float(rng.uniform(width + LEAST_LONGER_M, LONGEST_M))
    mass = float(rng.uniform(*DENSITY)) * long * width * height
    x, y, z = (float(rng.uniform(*span)) for span in SHIFT_M)
    at_x, at_y, yaw = (float(rng.uniform(*span)) for span in LIES)
    return Drawn(
        box_m=(round(long, 5), round(width, 5), round(height, 5)),
        mass_kg=mass,
        friction=float(rng.uniform(*FRICTION)),
        origin_m=(0.5 + x, y, z),
        lies=(at_x, at_y, yaw),
    )


def look(found: Drawn, folder: Path) -> Path:
    """The scene that draws the lab's pictures: the packaged one, changed as the lab is."""
    out = folder / "lab_look"
    scene = load_scene(TASK.scene)
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(scene.path, out)
    tree = ET.parse(out / "scene.xml")
    world = tree.getroot().find("worldbody")
    assert world is not None
    for element in world:
        if element.get("name") in ("table", "goal", CUBE) or element.get("material") == "mat":
            at = np.array(element.get("pos", "0 0 0").split(), float) + found.shift_m
            element.set("pos", " ".join(map(repr, at.tolist())))
    cube = world.find(f"./body[@name='{CUBE}']")
    assert cube is not None
    at = np.array(cube.get("pos", "").split(), float)
    at[2] = found.origin_m[2] + found.box_m[2] / 2
    cube.set("pos", " ".join(map(repr, at.tolist())))
    geom = cube.find("geom")
    assert geom is not None
    geom.set("size", " ".join(repr(v / 2) for v in found.box_m))
    tree.write(out / "scene.xml")
    load_scene(out)
    return out


def cell(found: Drawn, folder: Path) -> dict[str, Any]:
    """The packaged cell's file, with what was drawn."""
    raw = yaml.safe_load(find_config(CELL).read_text())
    raw["lab"]["gripping"] |= {
        "origin_m": list(found.origin_m),
        "box_m": list(found.box_m),
        "cube_mass_kg": found.mass_kg,
        "table_friction": found.friction,
        "cube_pose": list(found.lies),
        "drawn_by": str(look(found, folder)),
    }
    # As a person measures it who sets the cell up.
    raw["robot"]["tool"]["frame"]["origin_m"] = list(found.origin_m)
    params = dict(load_scene(TASK.scene).config.task.params)
    raw["robot"]["task_params"] = {**params, "sizes_m": {f"{CUBE}/pose": list(found.box_m)}}
    return raw


def captured(raw: dict[str, Any], folder: Path, seed: int) -> Path:
    """The lab's capture, as ``robolearn capture --start-lab`` takes it, but in process."""
    out, taking = folder / "capture", folder / "capture.unfinished"
    if out.is_dir():
        return out
    file = folder / "capture_cell.yaml"
    file.write_text(yaml.safe_dump(raw, sort_keys=False))
    board = raw["lab"]["board"]["board"]
    options = CaptureOptions(
        squares=tuple(board["squares"]),
        square_m=board["square_m"],
        marker_m=board["marker_m"],
        dictionary=board["dictionary"],
        on_flange=("eye",),
        poses=POSES,
        scan=SCAN,
        objects=(CUBE,),
    )
    done = capture_in_process(file, taking, options, seed)
    print(done.pictures, done.problem, *done.advice, sep="\n", flush=True)
    taking.rename(out)
    return out


def suite(found: Drawn, folder: Path) -> Path:
    """The task's starts, the box lying on the table instead of the cube."""
    raw = yaml.safe_load(find_config(Path(TASK.suite)).read_text())
    for condition in raw["conditions"]:
        condition["poses"][f"{CUBE}/pose"][2] = round(found.box_m[2] / 2, 6)
    out = folder / "suite.yaml"
    out.write_text(yaml.safe_dump(raw, sort_keys=False, default_flow_style=None))
    return out


@dataclass(frozen=True)
class Rebuilt:
    """A workcell, its capture, and the scene that was reconstructed from it."""

    raw: dict[str, Any]
    capture: Path
    scene: Path


def rebuilt(folder: Path, found: Drawn, seed: int) -> Rebuilt:
    """Capture and reconstruct what was drawn."""
    folder.mkdir(parents=True, exist_ok=True)
    raw = cell(found, folder)
    capture = captured(raw, folder, seed)
    like = ("--arm", TASK.scene, "--task", NAME)
    return Rebuilt(raw, capture, made(folder / "reconstructed", "reconstruct", str(capture), *like))


def compared(
    folder: Path,
    runs_of: Callable[[str], Sequence[Path]],
    real: int = 50,
    rollouts: int = 1,
    seed: int = SEED,
) -> dict[By, Trust]:
    """Draw, capture, reconstruct, record, identify, evaluate in the three worlds, report; of the
    policies that ``runs_of`` has for the reality, by its name.
    """
    found = drawn(seed)
    have = rebuilt(folder, found, seed)
    raw = have.raw
    for side, eyes in (("lab", ("cameras", "board")), ("robot", ("cameras",))):
        raw[side] = {key: value for key, value in raw[side].items() if key not in eyes}
    world = hidden(NAME, TASK, raw, folder, seed)
    store = recorded(TASK, world, folder)
    after = told_by(store, str(have.scene), folder)
    # What every kitchen has scales for.
    weighed = ("scene", "override", str(after), CUBE, "--mass-kg", f"{found.mass_kg:.3f}")
    if command(list(weighed)):
        raise RuntimeError(f"robolearn {' '.join(weighed)} failed")
    runs = runs_of(world)
    scenes = {"before": TASK.scene, "after": str(after)}
    evaluated(folder, runs, suite(found, folder), world, scenes, real, rollouts)
    print(f"drawn: {found}")
    return report(folder, world, scenes)


def main(folder: Path, real: int = 50, rollouts: int = 1, seed: int = SEED) -> None:
    """Three policies: the last age of each training."""
    last = {n: replace(t, ages=t.ages[-1:]) for n, t in TASK.trainings.items()}
    task = replace(TASK, trainings=last)
    compared(folder, lambda _: policies(task, folder), real, rollouts, seed)


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    main(Path(where).resolve(), *(int(word) for word in numbers))
