"""How often scripted experts succeed, and how the dial of their noise lowers that.

One world by hand, with all figures of ``docs/results.md``:

    python -m tests.benchmarks.bench_experts WORLD EPISODES [NOISE ...]
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass

import numpy as np

from eval.statistics.intervals import clopper_pearson
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from sim.experts.registry import build_expert
from sim.worlds import make_world

WORLDS = ("pick_place", "stacking", "drawer", "insertion_loose", "insertion_tight", "play_table")
FLOOR = 0.95


@dataclass(frozen=True)
class Measured:
    """Success of one expert at one dial over random conditions, with its exact 95 % interval."""

    world: str
    noise: float
    episodes: int
    success: int
    low: float
    high: float
    score: float
    steps: float
    reasons: dict[str, int]
    seconds: float


def measure(world: str, noise: float, episodes: int) -> Measured:
    """Run the expert from conditions of its own seeds (not those of any collection or suite)."""
    start = time.process_time()
    env = make_world(world)
    agent = build_expert(env.task, env.spec, noise)
    results = [
        run_episode(
            env,
            agent,
            None,
            [],
            env.sample_condition(child_seed(2026, "experts", k)),
            max_steps=env.max_steps,
        )
        for k in range(episodes)
    ]
    env.close()
    success = sum(r.outcome.success for r in results)
    interval = clopper_pearson(success, episodes)
    return Measured(
        world=world,
        noise=noise,
        episodes=episodes,
        success=success,
        low=round(float(interval.low or 0.0), 4),
        high=round(float(interval.high or 0.0), 4),
        score=round(float(np.mean([r.score for r in results])), 4),
        steps=round(float(np.mean([r.steps for r in results])), 1),
        reasons=dict(Counter(r.outcome.reason for r in results)),
        seconds=round(time.process_time() - start, 1),
    )


def rows(long: bool = False) -> list[dict[str, object]]:
    """Success without noise against the floor (10 conditions a world; with ``long`` 50)."""
    out: list[dict[str, object]] = []
    for world in WORLDS:
        m = measure(world, 0.0, 50 if long else 10)
        rate = m.success / m.episodes
        out.append(
            {
                "name": f"expert of {world}",
                "unit": "success rate",
                "ours": rate,
                "reference": 1.0,
                "ratio": rate,
                "floor": FLOOR,
                "holds": rate >= FLOOR,
                "why": f"{m.success}/{m.episodes} [{m.low}, {m.high}], {m.steps} steps",
            }
        )
    return out


if __name__ == "__main__":
    for dial in [float(v) for v in sys.argv[3:]] or [0.0]:
        print(json.dumps(asdict(measure(sys.argv[1], dial, int(sys.argv[2])))), flush=True)
