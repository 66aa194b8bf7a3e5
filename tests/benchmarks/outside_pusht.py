"""Evaluates a policy in gym-pusht from outside: its own resets and reward, a loop written here.

    python -m tests.benchmarks.outside_pusht runs/demo/train/flow 200

Of this program only loading and sampling a policy are used, so that a mistake in its worlds, loop
or scores would show as a difference.
"""

from __future__ import annotations

import math
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np

from policies.registry import load_policy
from robolearn.types import PolicyInput

# Pixels of the 512 x 512 field, y down; metres of the table, y up. Steps at 10 Hz.
_PX_PER_M, _SIDE_M, _STEPS = 1000.0, 0.512, 300


def _observed(state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Tool ``[n, 2]`` and block ``[n, 3]`` of gym-pusht's states ``[n, 5]``, in SI units."""
    x, y = state[:, [0, 2]] / _PX_PER_M, _SIDE_M - state[:, [1, 3]] / _PX_PER_M
    yaw = (-state[:, 4] + np.pi) % (2 * np.pi) - np.pi
    return np.stack([x[:, 0], y[:, 0]], -1), np.stack([x[:, 1], y[:, 1], yaw], -1)


def evaluate(run: Path, n: int, seed: int = 910_000) -> tuple[np.ndarray, np.ndarray]:
    """Highest reward ``[n]`` and whether it was solved ``[n]``, from native resets."""
    policy = load_policy(run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import gym_pusht  # noqa: F401 - registers the world

        envs = [gymnasium.make("gym_pusht/PushT-v0", obs_type="state").unwrapped for _ in range(n)]
        state = np.stack([e.reset(seed=seed + i)[0] for i, e in enumerate(envs)]).astype(float)
    best, solved = np.zeros(n), np.zeros(n, dtype=bool)
    before = now = _observed(state)
    chunk = np.zeros((n, policy.spec.horizon, 2))
    for t in range(_STEPS):
        ahead = t % policy.spec.execute
        if ahead == 0:
            names = ("tool/xy_table", "block/pose")
            shown = {k: np.stack([a, b], 1) for k, a, b in zip(names, before, now, strict=True)}
            asked = PolicyInput(shown, np.full(n, t * 100_000_000), np.arange(n) * 1000 + t)
            chunk = np.asarray(policy.sample(asked, 1).actions)[:, 0]
        target = np.clip(chunk[:, ahead], 0.0, _SIDE_M)
        px = np.stack([target[:, 0], _SIDE_M - target[:, 1]], -1) * _PX_PER_M
        for i in np.flatnonzero(~solved):
            state[i], reward, solved[i], _, _ = envs[i].step(px[i])
            best[i] = max(best[i], reward)
        before, now = now, _observed(state)
    return best, solved


if __name__ == "__main__":
    rewards, done = evaluate(Path(sys.argv[1]), int(sys.argv[2]))
    spread = 1.96 * rewards.std(ddof=1) / math.sqrt(rewards.size)
    print(
        f"{done.size} native resets: highest reward {rewards.mean():.3f} +- {spread:.3f},"
        f" solved {done.sum()}/{done.size}"
    )
