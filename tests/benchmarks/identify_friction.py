"""Coulomb friction of ``pusht_ur5e`` with drawn parameters, from the scripted expert's pushes.

    python -m tests.benchmarks.identify_friction [--worlds 5] [--episodes 3] [--first 300]

In every world mass and friction of the block are drawn; what a cell would record is kept at 100 Hz:
the force at the tool (noise 0.3 N, an offset of 1 N), the tool and the tracked block (0.3 mm,
1.7 mrad). Prints one JSON document: found and true force of friction, world by world.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

import mujoco
import numpy as np

from robolearn.types import Condition
from sim.env.scene_env import SceneEnv
from sim.experts.registry import build_expert
from sim.identification.object_forces import Handling
from sim.identification.object_model import found_object, object_models, objects_document
from sim.plants.mount import find_mount
from sim.scene.config import Scene, world_pose
from sim.scene.load import load_scene

_FORCE_N, _OFFSET_N, _PLACE_M, _TURN_RAD = 0.3, 1.0, 3e-4, 1.7e-3
G = 9.81


def drawn(seed: int) -> tuple[Scene, float]:
    """The scene with another block, and the true force of friction [N]."""
    rng = np.random.default_rng(seed)
    scene = load_scene("pusht_ur5e")
    mass, both = rng.uniform(0.6, 2.0), rng.uniform(0.5, 2.0)
    bar, stem = both * rng.uniform(0.85, 1.15, 2)

    def edit(spec: mujoco.MjSpec) -> None:
        for geom in spec.body("block").geoms:
            geom.mass *= mass
        for pair in spec.pairs:
            by = bar if pair.geomname2 in ("foot_a", "foot_b") else stem
            pair.friction[:2] = [v * by for v in pair.friction[:2]]

    scene = dataclasses.replace(scene, edits=(*scene.edits, edit))
    model = scene.compile()
    # Every foot carries a quarter of the weight.
    weight = G * float(model.body("block").subtreemass[0])
    return scene, weight * float(model.pair_friction[:, 0].mean())


class FeelingEnv(SceneEnv):
    """Also keeps the force at the tool, the tool and the block, as often as physics is stepped."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self.rows: list[np.ndarray] = []
        self._mount = find_mount(scene.config, self.model)
        self._table = world_pose(self.model, scene.config.frames["table"])

    def _integrate(self) -> None:
        super()._integrate()
        model, data, R = self.model, self.data, self._table[:3, :3]
        force, wrench = np.zeros(3), np.zeros(6)
        for i in range(data.ncon):
            contact = data.contact[i]
            first, second = (bool(self._mount.behind[g]) for g in (contact.geom1, contact.geom2))
            if first != second:
                mujoco.mj_contactForce(model, data, i, wrench)
                acting = contact.frame.reshape(3, 3).T @ wrench[:3]
                force += acting if second else -acting
        tool, block = data.site("tool").xpos, data.body("block")
        turn = R.T @ block.xmat.reshape(3, 3)
        places = [R.T @ (at - self._table[:3, 3]) for at in (tool, block.xpos)]
        heading = np.arctan2(turn[1, 0], turn[0, 0])
        self.rows.append(np.concatenate([[data.time], R.T @ force, *places, [heading]]))


def pushed(env: FeelingEnv, condition: Condition, seed: int, radius_m: float) -> Handling:
    """What a cell would have recorded of the expert's episode."""
    rng = np.random.default_rng(seed)
    env.reset(condition, rng)
    env.rows.clear()
    agent = build_expert("pusht", env.spec)
    agent.reset(seed)
    for _ in range(250):
        env.apply(agent.decide(env.observe(), None))
        env.advance()
        if env.outcome().success:
            break
    rows = np.array(env.rows)
    t_s, n = rows[:, 0], len(rows)
    force = rows[:, 1:4] + _OFFSET_N * rng.normal(size=3) + _FORCE_N * rng.normal(size=(n, 3))
    place = rows[:, 7:11].copy()
    place[:, :2] += _PLACE_M * rng.normal(size=(n, 2))
    place[:, 3] = np.unwrap(place[:, 3]) + _TURN_RAD * rng.normal(size=n)
    place[:, 2] = 0.0
    tool = rows[:, 4:7].copy()
    tool[:, 2] = 0.0
    return Handling(radius_m, t_s, force, t_s, tool, t_s, place)


def one(seed: int, episodes: int) -> dict[str, Any]:
    """One world."""
    scene, true_n = drawn(seed)
    (template,) = object_models(load_scene("pusht_ur5e"))
    env = FeelingEnv(scene)
    handled = [
        pushed(env, env.sample_condition(seed + k), seed + k, template.radius_m)
        for k in range(episodes)
    ]
    env.close()
    found = found_object(template, handled)
    told = objects_document([found])[template.signal]
    return {"seed": seed, "true_n": true_n, "off": found.friction.value / true_n - 1.0, **told}


def main() -> None:
    """Say what is found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--first", type=int, default=300)
    args = parser.parse_args()
    rows = [one(args.first + k, args.episodes) for k in range(args.worlds)]
    worst = max(abs(r["off"]) for r in rows)
    print(json.dumps({"worst_off": worst, "worlds": rows}, indent=1))


if __name__ == "__main__":
    main()
