"""Push-T against gym-pusht itself: coverage, reset distribution, replay of recordings."""

from __future__ import annotations

import numpy as np
import pytest

from robolearn.pusht import BLOCK, TOOL, coverage, pose_from_px, px_from_pose, px_from_table
from robolearn.types import Command, Condition
from sim.adapters.pusht.gym_pusht import GymPushTEnv
from sim.identification.replay import replay_episode
from sim.tasks.pusht import PushT
from tests.sim.human import human_episodes


def test_coverage_is_gym_pushts_on_random_poses() -> None:
    env = GymPushTEnv()
    rng = np.random.default_rng(4)
    compared = 0
    for _ in range(150):
        pose_px = np.array([*rng.normal(256, 40, 2), rng.uniform(0, 2 * np.pi)])
        pose = pose_from_px(pose_px)
        env.reset(Condition("a", 0, {BLOCK: tuple(pose), TOOL: (0.01, 0.01)}), rng)
        theirs = env.gym._get_coverage()
        assert coverage(pose) == pytest.approx(theirs, abs=1e-9)
        compared += theirs > 0.05
    assert compared > 50


@pytest.mark.parametrize("seed", [0, 1, 2, 17, 100_003])
def test_starts_are_those_that_gym_pusht_draws(seed: int) -> None:
    condition = PushT().sample_condition(seed)
    env = GymPushTEnv()
    state, _ = env.gym.reset(seed=seed)
    # gym-pusht then steps once, which moves nothing: every velocity is zero.
    assert np.allclose(px_from_table(np.array(condition.poses[TOOL])), state[:2], atol=1e-9)
    block = px_from_pose(np.array(condition.poses[BLOCK]))
    assert np.allclose(block[:2], state[2:4], atol=1e-9)
    assert np.isclose(np.cos(block[2] - state[4]), 1.0)


def test_conditions_are_functions_of_their_seed() -> None:
    task = PushT()
    assert task.sample_condition(7) == PushT().sample_condition(7)
    assert task.sample_condition(7) != task.sample_condition(8)


def test_recordings_replay_exactly_in_their_own_world() -> None:
    env = GymPushTEnv()
    for episode in human_episodes(12)[:4]:
        error = replay_episode(env, episode)
        # The recorded start is rounded to float32 pixels (3e-8 m); pushing amplifies that a little.
        assert error.position_m.max() < 1e-6
        assert error.rotation_rad.max() < 1e-5


def test_pictures_of_gym_pusht_show_the_agent() -> None:
    env = GymPushTEnv()
    poses = {TOOL: (0.128, 0.384), BLOCK: (0.4, 0.2, 0.0)}
    env.reset(Condition("a", 0, poses), np.random.default_rng(0))
    image = env.render(256, 128)
    assert image.shape == (128, 256, 3)
    r, g, b = (int(v) for v in image[32, 64])
    assert b > 150 > r + g // 3
    env.close()


def test_nothing_is_drawn_unless_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    env = GymPushTEnv()

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("drawn")

    monkeypatch.setattr(env.gym, "_render", refuse)
    monkeypatch.setattr(env.gym, "_draw", refuse)
    env.reset(PushT().sample_condition(0), np.random.default_rng(0))
    env.apply(Command(0, {TOOL: np.array([0.2, 0.2])}, 0, "test"))
    env.advance()
    assert env.drain().sent.seq.tolist() == [0]
