"""How well simulated worlds reproduce what people did, and how fast they step.

References: the bounds that ``pusht_reference`` must keep on all 206 recordings, gym-pusht measured
in the same run (its replay error, its steps per second), and the naive scene for identification.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.assets.demonstrations import pusht_demonstrations_path
from robolearn.data.episode import Episode
from robolearn.data.importers.diffusion_policy import import_diffusion_policy
from robolearn.data.store.store import EpisodeStore
from robolearn.pusht import TABLE_SIZE_M
from robolearn.types import Command
from sim.contract import World
from sim.identification.replay import replay_episode, summarize_after, summarize_final
from sim.identification.search import IdentifyConfig, heldout_summary, identify
from sim.identification.write_scene import write_identified
from sim.scene.load import load_scene
from sim.worlds import make_world

# Control steps per second on one busy core that make hundreds of episodes cheap.
STEPS_PER_S = 2000.0
# The arm is replayed on a sample: its physics takes five times the steps.
ARM_EPISODES = 20


def rows(long: bool = False) -> list[dict[str, Any]]:
    """Every row of this area."""
    with tempfile.TemporaryDirectory() as folder:
        store = EpisodeStore.create(Path(folder) / "human")
        import_diffusion_policy(pusht_demonstrations_path(), store)
        episodes = [store.read(info.id) for info in store.list()]
        out = _agreement("pusht_reference", episodes)
        out += _source_world(episodes if long else episodes[::5])
        out += _arm(episodes if long else episodes[:: len(episodes) // ARM_EPISODES])
        out += _identification(episodes, Path(folder), seeds=5 if long else 1)
    return out + _speed()


def _agreement(scene: str, episodes: list[Episode]) -> list[dict[str, Any]]:
    env = make_world(scene)
    errors = [replay_episode(env, e) for e in episodes]
    env.close()
    final, five = summarize_final(errors), summarize_after(errors, 5.0)
    name = f"{scene}: {len(errors)} human episodes, open loop"
    return [
        _below(f"{name}, final position p50", "mm", final.position_p50_mm, 0.5),
        _below(f"{name}, final position p90", "mm", final.position_p90_mm, 2.0),
        _below(f"{name}, final rotation p50", "deg", final.rotation_p50_deg, 0.2),
        _below(f"{name}, final rotation p90", "deg", final.rotation_p90_deg, 1.0),
        _below(f"{name}, position after 5 s p50", "mm", five.position_p50_mm, 0.5),
    ]


def _source_world(episodes: list[Episode]) -> list[dict[str, Any]]:
    env = make_world("gym_pusht")
    final = summarize_final([replay_episode(env, e) for e in episodes])
    env.close()
    name = f"gym_pusht: {len(episodes)} human episodes, open loop, final position p90"
    # Float32 recordings: the start is known to 3e-5 mm.
    return [_below(name, "mm", final.position_p90_mm, 1e-2)]


def _arm(episodes: list[Episode]) -> list[dict[str, Any]]:
    name = "pusht_ur5e: human episodes, open loop, final position p50"
    try:
        env = make_world("pusht_ur5e")
        final = summarize_final([replay_episode(env, e) for e in episodes])
        env.close()
    except ValueError as error:
        return [_unmeasured(name, "mm", str(error))]
    row = _row(name, "mm", final.position_p50_mm, None, None, None)
    why = f"no bound: a real table and an arm are another physics; {final.episodes} episodes"
    return [{**row, "holds": True, "why": why}]


def _identification(episodes: list[Episode], folder: Path, seeds: int) -> list[dict[str, Any]]:
    template = load_scene("pusht_naive")
    out: list[dict[str, Any]] = []
    for seed in range(seeds):
        config = IdentifyConfig(seed=seed)
        start = time.process_time()
        result = identify(episodes, template, config)
        used_s = time.process_time() - start
        write_identified(result, template, config, folder / f"identified{seed}")
        before = heldout_summary(result.heldout_before, 5.0)
        after = heldout_summary(result.heldout_after, 5.0)
        name = f"identify, seed {seed}"
        why = f"naive: {before.position_p50_mm:.1f} mm, {before.rotation_p50_deg:.1f} deg"
        out += [
            {**_below(f"{name}: held-out 5 s p50", "mm", after.position_p50_mm, 0.5), "why": why},
            {**_below(f"{name}: held-out 5 s p50", "deg", after.rotation_p50_deg, 0.3), "why": why},
            _below(f"{name}: CPU time", "s", used_s, 60.0),
        ]
    return out


def _speed() -> list[dict[str, Any]]:
    worlds = [make_world("pusht_reference"), make_world("gym_pusht")]
    times: dict[str, list[float]] = {w.spec.name: [] for w in worlds}
    # Interleaved, so that a busy neighbour slows both.
    for seed in range(10):
        for world in worlds:
            times[world.spec.name].append(_steps_per_s(world, seed))
    ours, theirs = (float(np.median(times[w.spec.name])) for w in worlds)
    for world in worlds:
        world.close()
    name = "pusht_reference: control steps per CPU second, signals and coverage"
    return [
        _row(name, "1/s", ours, STEPS_PER_S, ours / STEPS_PER_S, 1.0),
        _row("the same against gym_pusht in the same run", "1/s", ours, theirs, ours / theirs, 1.0),
    ]


def _steps_per_s(world: World, seed: int, steps: int = 200) -> float:
    world.reset(world.sample_condition(seed), np.random.default_rng(seed))
    # CPU time: what one core does, whatever the neighbours do.
    start = time.process_time()
    for k in range(steps):
        world.observe()
        phase = 0.1 * k + seed
        xy = TABLE_SIZE_M * (0.5 + 0.3 * np.array([np.cos(phase), np.sin(1.3 * phase)]))
        world.apply(Command(k, {"tool/xy_table": xy}, world.now_ns(), "bench"))
        world.advance()
        world.drain()
        world.outcome()
    return steps / (time.process_time() - start)


def _below(name: str, unit: str, ours: float, bound: float) -> dict[str, Any]:
    """A figure that must not exceed its bound; the ratio is bound / ours."""
    return _row(name, unit, ours, bound, bound / ours if ours > 0 else 1e9, 1.0)


def _row(
    name: str,
    unit: str,
    ours: float,
    reference: float | None,
    ratio: float | None,
    floor: float | None,
) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "ours": ours,
        "reference": reference,
        "ratio": ratio,
        "floor": floor,
        "holds": None if ratio is None or floor is None else bool(ratio >= floor),
        "why": "",
    }


def _unmeasured(name: str, unit: str, why: str) -> dict[str, Any]:
    return {**_row(name, unit, float("nan"), None, None, None), "ours": None, "why": why}


if __name__ == "__main__":
    print(json.dumps(rows(), indent=2))
