"""From an empty table to an evaluated policy, on a drawn workcell.

make bench-long ONLY=real_to_sim

Everything of ``reconstructed_scene`` with one policy and ten starts: capture, reconstruction,
demonstrations, training, recordings, identification, trials in reality and in both scenes. Half an
hour of computing; what is there under ``runs/bench/real_to_sim`` is taken, so a run that was ended
goes on.
"""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.capture.folder import read_capture
from sim.plants.grip import CUBE
from sim.reconstruction.verify import verify
from sim.scene.load import load_scene
from tests.benchmarks.floors import at_most
from tests.benchmarks.reconstructed_scene import SEED, TASK, compared, drawn, rebuilt
from tests.benchmarks.two_scenes import policies

FOLDER, STARTS = Path("runs/bench/real_to_sim"), 10


def rows(long: bool = False) -> list[dict[str, Any]]:
    """Geometry and silhouettes; with ``long`` how far a policy's success and score are off."""
    if not long:
        with tempfile.TemporaryDirectory() as name:
            return _geometry(Path(name))
    folder = FOLDER.resolve()
    one = replace(TASK.trainings["bc"], ages=TASK.trainings["bc"].ages[:1])
    task = replace(TASK, trainings={"bc": one})
    found = compared(folder, lambda _: policies(task, folder), STARTS)
    changes = {by: trust.report.tasks[0].closer for by, trust in found.items()}
    out = _geometry(folder)
    for by, change in changes.items():
        if change is not None:
            mae = change.changes["mae"]
            out.append(at_most(f"{by}, off in the reconstructed scene", "", mae.after, mae.before))
    return out


def _geometry(folder: Path) -> list[dict[str, Any]]:
    truth = drawn(SEED)
    cell = rebuilt(folder, truth, SEED)
    scene = load_scene(cell.scene)
    sizes = np.array(scene.config.task.params["sizes_m"][f"{CUBE}/pose"])
    checked = verify(scene, read_capture(cell.capture))
    off = 1e3 * float(np.abs(sizes - truth.box_m).max()) / 2
    return [
        at_most("surface of the box, worst side", "mm", off, 2.0),
        at_most("held-out silhouette, 1 - IoU", "", 1.0 - min(checked.iou.values()), 0.07),
    ]
