"""Our worlds in Gymnasium: its own checker without a warning, spaces, seeds, vectors, pictures."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import sim.adapters.gymnasium.register
from robolearn.errors import ConfigError, DataError
from robolearn.pusht import BLOCK, TOOL
from sim.adapters.gymnasium.outward import WorldGym
from sim.scene.load import packaged_scenes
from sim.worlds import make_world

PUSHT = "robolearn/PushT-v0"


@pytest.fixture(scope="module")
def pusht() -> Any:
    env = gymnasium.make(PUSHT, render_mode="rgb_array", disable_env_checker=True).unwrapped
    yield env
    env.close()


@pytest.mark.parametrize("flat", [False, True])
def test_gymnasium_checks_it_without_a_warning(flat: bool) -> None:
    # Warnings are errors here.
    env = gymnasium.make(PUSHT, flat=flat, render_mode="rgb_array")
    check_env(env.unwrapped)


def test_every_registered_scene_exists() -> None:
    assert set(sim.adapters.gymnasium.register.SCENES.values()) <= set(packaged_scenes())
    sim.adapters.gymnasium.register.register()
    names = [n for n in gymnasium.registry if n.startswith("robolearn/")]
    assert len(names) == len(sim.adapters.gymnasium.register.SCENES) + 1


@pytest.mark.parametrize("name", sorted(sim.adapters.gymnasium.register.SCENES))
def test_every_scene_steps(name: str) -> None:
    env = gymnasium.make(f"robolearn/{name}")
    env.reset(seed=1)
    observed, reward, terminated, truncated, info = env.step(
        np.zeros_like(env.action_space.sample())
    )
    assert env.observation_space.contains(observed)
    assert np.isfinite(float(reward))
    assert not terminated
    assert not truncated
    assert 0.0 <= info["progress"] <= 1.0
    env.close()


def test_steps_are_those_of_the_world(pusht: Any) -> None:
    world = make_world("pusht_reference")
    condition = world.sample_condition(5)
    world.reset(condition, np.random.default_rng(0))
    pusht.reset(options={"condition": condition})
    from robolearn.types import Command

    for seq in range(3):
        target = np.array([0.1 + 0.1 * seq, 0.3])
        world.apply(Command(seq, {TOOL: target}, world.now_ns(), "test"))
        world.advance()
        world.drain()
        low, high = np.array(world.spec.actions[0].low), np.array(world.spec.actions[0].high)
        observed, reward, *_ = pusht.step(2 * (target - low) / (high - low) - 1)
        np.testing.assert_allclose(observed[BLOCK], world.observe().value(BLOCK), atol=1e-9)
        np.testing.assert_allclose(observed[TOOL], world.observe().value(TOOL), atol=1e-9)
        assert reward == pytest.approx(world.outcome().reward, abs=1e-6)
    world.close()


def test_seeds_and_conditions(pusht: Any) -> None:
    first, _ = pusht.reset(seed=3)
    other, _ = pusht.reset()
    again, _ = pusht.reset(seed=3)
    assert np.array_equal(first[BLOCK], again[BLOCK])
    assert not np.array_equal(first[BLOCK], other[BLOCK])
    observed, info = pusht.reset(seed=3, options={"condition": {BLOCK: (0.2, 0.3, 1.0)}})
    np.testing.assert_allclose(observed[BLOCK], (0.2, 0.3, 1.0), atol=1e-9)
    np.testing.assert_allclose(observed[TOOL], first[TOOL], atol=1e-9)
    assert info["condition"].endswith("-set")
    with pytest.raises(ConfigError, match="mapping of signal names"):
        pusht.reset(options={"condition": 7})
    with pytest.raises(DataError, match="moon"):
        pusht.reset(options={"condition": {"moon/pose": (0.0,)}})
    with pytest.raises(ConfigError, match="render_mode"):
        WorldGym("pusht_reference", render_mode="human")


def test_actions_are_checked_and_clipped(pusht: Any) -> None:
    pusht.reset(seed=0)
    pusht.step(np.array([5.0, -5.0]))
    with pytest.raises(DataError):
        pusht.step(np.array([np.nan, 0.0]))
    with pytest.raises(DataError):
        pusht.step(np.zeros(3))


def test_time_limits_truncate() -> None:
    env = gymnasium.make(PUSHT, max_steps=2)
    env.reset(seed=0)
    assert env.step(np.zeros(2))[3] is False
    assert env.step(np.zeros(2))[3] is True
    env.close()


def test_vectors_of_envs() -> None:
    envs = gymnasium.make_vec(PUSHT, num_envs=2, vectorization_mode="sync", flat=True)
    observed, _ = envs.reset(seed=1)
    single = gymnasium.make(PUSHT, flat=True)
    alone, _ = single.reset(seed=2)
    assert np.array_equal(observed[1], alone)
    observed, reward, *_ = envs.step(np.zeros((2, 2), dtype=np.float32))
    assert observed.shape == (2, 5)
    assert reward.shape == (2,)
    envs.close()
    single.close()


def test_pictures(pusht: Any) -> None:
    pusht.reset(seed=0)
    image = pusht.render()
    assert image.shape == (96, 96, 3)
    assert len(np.unique(image.reshape(-1, 3), axis=0)) > 3


def test_no_import_is_needed_with_the_modules_name() -> None:
    world = "sim.adapters.gymnasium.register:robolearn/PushT-v0"
    code = f"import gymnasium; gymnasium.make('{world}').reset(seed=0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
