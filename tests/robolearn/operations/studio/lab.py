"""Writes a folder with one of everything that studio has a view for, all of it tiny."""

from __future__ import annotations

import dataclasses
import json
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import mujoco

from eval.trials.table import TrialStore
from robolearn.data.store.store import EpisodeStore
from robolearn.operations.practice.records import read_standing, write_standing
from robolearn.operations.studio.apart import Apart
from robolearn.operations.studio.encoding import encode
from robolearn.operations.trial.planned import KEPT
from robolearn.operations.trial.report import unblind
from robolearn.table import resolve
from tests.episodes import small_episode
from tests.eval.report_folder import trial
from tests.robolearn.capture.foreign import ring, write_foreign
from tests.robolearn.operations.practice.flights import practised
from tests.robolearn.operations.studio.documents.test_scene_capture import FOUND, scene_with
from tests.robolearn.operations.studio.documents.training.test_run import make_run
from tests.robolearn.operations.trial.toy import Life, Person, live, plan_toy
from tests.robolearn.operations.trust.certified_run import workplace


def tiny_lab(folder: Path) -> Path:
    """All kinds of things in ``folder``."""
    make_run(folder / "one")
    make_run(folder / "two", seed=4, fit={"steps": 60})
    _practised(folder / "iql")
    with EpisodeStore.create(folder / "point").writer() as writer:
        for seed in range(2):
            writer.append(small_episode(seed, 12, image=False))
    for name, kind in (("real", "robot"), ("sim", "sim")):
        rows = [
            trial(f"p{k}", name, i, 1.0 if (good := i < 3 * k + 2) else 0.3, good, kind=kind,
                  reason="success" if good else "time_limit", policy_hash=f"h-p{k}",
                  episode=f"e{k}{i}" if kind == "robot" else "")
            for k in range(4)
            for i in range(10)
        ]  # fmt: skip
        with TrialStore(folder / name) as table:
            table.add(rows)
    with TrialStore(folder / "deployed") as table:
        table.add(
            [trial("p1", "real", i, 0.5, i == 0, kind="robot", episode=f"d{i}") for i in range(2)]
        )
    events = [{"t_ns": 1, "cause": "speed", "value": 0.1, "command": 3}]
    told = {"interventions": events, "setpoint_lateness_ms": [0.1, 0.2, 0.15]}
    (folder / "deployed" / "deploy.json").write_text(json.dumps({"trials": [told, told]}))
    live(plan_toy(folder / "blinded", trials=1), Person(), Life(), at_most=1)
    (folder / "blinded" / KEPT).mkdir()
    live(plan_toy(folder / "unblinded", trials=1), Person(), Life())
    unblind(folder / "unblinded")
    scene_with(folder / "table", FOUND)
    write_foreign(folder / "desk", ring(3))
    # The certificate's own scene and trials stay elsewhere: the list stays short.
    aside = folder.parent / "certified"
    aside.mkdir()
    place = workplace(aside, f"mujoco {mujoco.__version__}")
    shutil.copytree(place.run, folder / "chain")
    return folder


def _practised(folder: Path) -> None:
    """A run whose critic's curves tell something, and that practised."""
    make_run(folder, policy="iql")
    practised(folder)
    standing = read_standing(folder)
    assert standing is not None
    result = {"ended": "12 episodes", "kept": "last", "sound": True, "regret": -3, "dip": 1}
    write_standing(folder, dataclasses.replace(standing, result=result))
    lines = [
        {
            "step": s, "loss/critic": 1 / s, "critic/q_data": 0.5 + s / 99,
            "critic/td_error": 0.01, "practice/episodes": s,
            "critic/q_whole": 0.4 + s / 99, "critic/q_return": 0.8,
            "practice/explorer_success": s / 99, "practice/parent_success": 0.4,
            "practice/regret": 1.0, "practice/robot_seconds": 9.0 * s, "test/success": s / 99,
            "test/success_low": s / 120, "test/success_high": s / 90, "test/parent_success": 0.4,
        }
        for s in range(10, 90, 10)
    ]  # fmt: skip
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def computed_here() -> Callable[..., bytes]:
    """What the process beside the server does, in this one: it is imported here already."""
    lock = threading.Lock()

    def make(_: Apart, place: str, *args: object) -> bytes:
        with lock:
            found = resolve(place)(*args)
        return found if isinstance(found, bytes) else encode(found)

    return make
