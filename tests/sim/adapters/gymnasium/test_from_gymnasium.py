"""Gymnasium's environments as worlds: the contract, ends, names; MetaWorld by the same door."""

from __future__ import annotations

import importlib.util

import gymnasium
import numpy as np
import pytest

from robolearn.contracts import Env
from robolearn.errors import ConfigError, SceneError
from robolearn.types import Command, Condition
from sim.worlds import make_world
from tests.contracts import EnvContract


def plain(seed: int) -> Condition:
    return Condition(id=f"start-{seed}", seed=seed, poses={})


class TestPendulum(EnvContract):
    def make(self) -> Env:
        return make_world("gymnasium/Pendulum-v1")

    def condition(self, seed: int) -> Condition:
        return plain(seed)


def test_it_is_the_same_environment() -> None:
    world = make_world("gymnasium/Pendulum-v1,g=5")
    reference = gymnasium.make("Pendulum-v1", g=5.0)
    expected, _ = reference.reset(seed=4)
    world.reset(plain(4), np.random.default_rng(0))
    assert np.array_equal(world.observe().value("obs/state"), expected)
    for seq in range(3):
        action = np.array([1.5])
        world.apply(Command(seq, {"obs/action": action}, world.now_ns(), "test"))
        world.advance()
        expected, reward, *_ = reference.step(action.astype(np.float32))
        assert np.array_equal(world.observe().value("obs/state"), expected)
        assert world.outcome().reward == pytest.approx(float(reward))
    assert world.max_steps == 200
    world.close()
    reference.close()


def test_the_end_of_time_is_a_truncation() -> None:
    world = make_world("gymnasium/Pendulum-v1,max_episode_steps=2")
    world.reset(plain(0), np.random.default_rng(0))
    for seq in range(4):
        world.apply(Command(seq, {"obs/action": np.zeros(1)}, world.now_ns(), "test"))
        world.advance()
    outcome = world.outcome()
    assert outcome.truncated
    assert not outcome.terminal
    assert outcome.reason == "time_limit"
    world.close()


def test_what_cannot_be_adapted_is_explained() -> None:
    with pytest.raises(SceneError, match="Pendulumm"):
        make_world("gymnasium/Pendulumm-v1")
    with pytest.raises(ConfigError, match="bounded Box"):
        make_world("gymnasium/CartPole-v1")
    with pytest.raises(SceneError, match="unexpected keyword"):
        make_world("gymnasium/Pendulum-v1,colour=red")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("metaworld") is None, reason="metaworld is not installed (an extra)"
)
def test_metaworld_keeps_the_contract() -> None:
    class OfWorld(EnvContract):
        def make(self) -> Env:
            return make_world("metaworld/reach-v3")

        def condition(self, seed: int) -> Condition:
            return plain(seed)

    contract = OfWorld()
    for name in dir(contract):
        if name.startswith("test_"):
            getattr(contract, name)()
