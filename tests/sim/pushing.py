"""Generated recordings: a pusher that goes round the block and pushes it from all sides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from robolearn.data.episode import Episode, EpisodeMeta, episode_from_arrays
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Command, Condition, Observation, Outcome
from sim.contract import World


def pushing_episode(env: World, seed: int, steps: int = 60) -> Episode:
    """Every 2 s a new push of 12 cm past a random point of the block, from a random side."""
    rng = np.random.default_rng(seed)
    poses = {TOOL: (0.05, 0.05), BLOCK: (*rng.uniform(0.2, 0.3, 2), rng.uniform(-3, 3))}
    condition = Condition(f"push-{seed}", seed, poses)
    start = _approach(rng, np.array(poses[BLOCK]))
    condition = Condition(f"push-{seed}", seed, {**poses, TOOL: tuple(start[0])})
    plan = start

    def target(k: int, observation: Observation) -> np.ndarray:
        nonlocal plan
        if k % 20 == 0 and k > 0:
            plan = _approach(rng, observation.value(BLOCK))
        # Back off, go round at a distance, then push through.
        away = (k % 20) / 20 < 0.35 and k >= 20
        return np.clip(plan[0] if away else plan[1], 0.02, 0.49)

    return record(env, condition, steps, target, rng)


def record(
    env: World,
    condition: Condition,
    steps: int,
    target: Callable[[int, Observation], np.ndarray],
    rng: np.random.Generator,
) -> Episode:
    """What the env shows while ``target(k, observation)`` is commanded."""
    env.reset(condition, rng)
    rows: dict[str, list[np.ndarray]] = {TOOL: [], BLOCK: []}
    actions: list[np.ndarray] = []
    for k in range(steps):
        observation = env.observe()
        for name, values in rows.items():
            values.append(observation.value(name))
        actions.append(target(k, observation))
        env.apply(Command(k, {TOOL: actions[-1]}, env.now_ns(), "test"))
        env.advance()
    meta = EpisodeMeta(
        kind="scripted",
        task="pusht",
        embodiment=env.spec,
        condition=condition,
        outcome=Outcome(False, 0.0, 0.0),
    )
    return episode_from_arrays(
        meta,
        {name: np.array(values) for name, values in rows.items()},
        {TOOL: np.array(actions)},
        progress=np.zeros(steps),
    )


def _approach(rng: np.random.Generator, block: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A point outside the block and one beyond its middle."""
    c, s = np.cos(block[2]), np.sin(block[2])
    aim = block[:2] + np.array([[c, -s], [s, c]]) @ np.array(
        [rng.uniform(-0.04, 0.04), rng.uniform(-0.09, -0.01)]
    )
    angle = rng.uniform(-np.pi, np.pi)
    away = np.array([np.cos(angle), np.sin(angle)])
    return np.clip(aim + 0.11 * away, 0.03, 0.48), aim - 0.02 * away
