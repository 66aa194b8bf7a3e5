"""What manipulation experts are made of: noise, headings, motion."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.geometry import quat_from_rotation, rot_x, rot_y, rot_z
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import Observation, Sample
from sim.experts.insertion import lower
from sim.experts.noise import Noise, NoiseScale
from sim.experts.pick_place import expert
from sim.experts.registry import EXPERTS, PLAYERS, build_expert, build_player
from sim.experts.script import XYZ_YAW, Hand, Target
from sim.experts.skills import level_heading, nearest_turn

RATE = 20.0
LOW, HIGH = (-0.3, -0.4, 0.0, -3.2), (0.3, 0.4, 0.5, 3.2)


def embodiment(*names: str, actions: tuple[ActionSpec, ...] | None = None) -> EmbodimentSpec:
    sizes = {"gripper/width": 1}
    return EmbodimentSpec(
        "hand",
        tuple(SignalSpec(n, (sizes.get(n, 7),)) for n in names),
        actions
        or (
            ActionSpec(XYZ_YAW, (4,), low=LOW, high=HIGH),
            ActionSpec("gripper/width", (1,), low=(0.0,), high=(0.08,)),
        ),
        RATE,
    )


SPEC = embodiment("tool/pose", "gripper/width", "cube/pose", "goal/pose")


class Floating:
    """A hand that is where it was told to be, and takes a cube along that it closes on."""

    def __init__(self) -> None:
        self.tool = np.array([0.0, 0.0, 0.25, 0.0, 1.0, 0.0, 0.0])
        self.cube = np.array([0.1, 0.05, 0.02, 1.0, 0.0, 0.0, 0.0])
        self.width, self.t_ns = 0.08, 0

    def observe(self) -> Observation:
        goal = np.array([-0.1, -0.1, 0.0, 1.0, 0.0, 0.0, 0.0])
        now = {
            "tool/pose": self.tool,
            "gripper/width": np.array([self.width]),
            "cube/pose": self.cube,
            "goal/pose": goal,
        }
        return Observation(self.t_ns, {n: Sample(self.t_ns, v.copy()) for n, v in now.items()})

    def step(self, action) -> None:
        near = np.linalg.norm(self.tool[:3] - self.cube[:3]) < 0.02
        held = bool(near and self.width <= 0.04)
        move = action[XYZ_YAW][:3] - self.tool[:3]
        self.tool[:3] += move
        least = 0.04 if near else 0.0
        self.width = max(
            least, self.width + float(np.clip(action["gripper/width"][0] - self.width, -0.01, 0.01))
        )
        if held:
            self.cube[:3] += move
        self.t_ns += round(1e9 / RATE)


def test_the_script_of_pick_and_place_in_an_ideal_world():
    world, agent = Floating(), expert(SPEC)
    agent.reset(0)
    commands = []
    for _ in range(160):
        command = agent.decide(world.observe(), None)
        commands.append(command.action[XYZ_YAW])
        world.step(command.action)
    assert world.cube[:2] == pytest.approx([-0.1, -0.1], abs=1e-3)
    assert world.cube[2] == pytest.approx(0.02, abs=0.005)
    assert world.width > 0.06
    steps = np.linalg.norm(np.diff(np.array(commands)[:, :3], axis=0), axis=1)
    # Motion starts and ends softly: at most 1.5 times the mean speed of 0.3 m/s.
    assert steps.max() <= 1.5 * 0.30 / RATE + 1e-9
    assert np.abs(np.diff(steps)).max() < 0.009


def noise(dial: float, seed: int = 0) -> Noise:
    return Noise(dial, np.random.default_rng(seed), RATE, NoiseScale())


def test_dial_zero_disturbs_nothing():
    calm = noise(0.0)
    for _ in range(200):
        assert not calm.wander().any()
        assert not calm.hesitates()
        assert not calm.miss().any()
        assert not calm.lets_go()


@pytest.mark.parametrize("dial", [0.3, 1.0])
def test_the_noise_is_correlated_and_as_large_as_the_dial_says(dial):
    wild, scale = noise(dial), NoiseScale()
    walk = np.array([wild.wander() for _ in range(20_000)])
    wanted = dial * np.array([scale.position_m] * 3 + [scale.yaw, scale.width_m])
    assert walk.std(axis=0) == pytest.approx(wanted, rel=0.12)
    lag = round(scale.time_constant_s * RATE)
    for column in walk.T:
        correlation = float(np.corrcoef(column[:-lag], column[lag:])[0, 1])
        assert correlation == pytest.approx(math.exp(-1.0), abs=0.08)
    misses = np.array([wild.miss() for _ in range(2000)])
    missed = np.abs(misses).sum(axis=1) > 0
    assert missed.mean() == pytest.approx(dial, abs=0.04)
    sideways = np.linalg.norm(misses[missed][:, :2], axis=1)
    assert sideways.min() >= scale.miss_m[0] - 1e-12
    assert sideways.max() <= scale.miss_m[1] + 1e-12
    paused = np.mean([wild.hesitates() for _ in range(20_000)])
    rate, mean_s = dial * scale.hesitation_hz, sum(scale.hesitation_s) / 2
    assert paused == pytest.approx(rate * mean_s / (1.0 + rate * mean_s), rel=0.2)


angles = st.floats(-20.0, 20.0)


@given(angles, angles, st.sampled_from([math.pi / 2, math.pi, 2 * math.pi]))
def test_turns_are_near_and_equivalent(angle, reference, symmetry):
    turn = nearest_turn(angle, reference, symmetry)
    assert abs(turn - reference) <= symmetry / 2 + 1e-9
    assert math.isclose(math.remainder(turn - angle, symmetry), 0.0, abs_tol=1e-9)


@given(st.floats(-3.0, 3.0), st.integers(0, 3), st.integers(0, 3))
def test_a_cube_has_a_heading_on_every_side(yaw, quarter_x, quarter_y):
    turn = rot_x(quarter_x * math.pi / 2) @ rot_y(quarter_y * math.pi / 2)
    pose = np.concatenate([np.zeros(3), quat_from_rotation(rot_z(yaw) @ turn)])
    difference = math.remainder(level_heading(pose) - yaw, math.pi / 2)
    assert math.isclose(difference, 0.0, abs_tol=1e-6)


def test_a_peg_is_lowered_through_a_funnel() -> None:
    """Over the hole the command follows from what is seen: sideways all of the error, downwards
    only as far as the error allows; in the hole always.
    """

    def commanded(tip_m: float, off_m: float, turn: float = 0.0) -> Target:
        q = quat_from_rotation(rot_z(turn))
        now = {
            "tool/pose": np.array([off_m, 0.0, 0.05 + 0.05 + tip_m + 0.032, 0.0, 1.0, 0.0, 0.0]),
            "gripper/width": np.array([0.03]),
            "peg/pose": np.array([off_m, 0.0, 0.05 + 0.05 + tip_m, *q]),
            "hole/pose": np.array([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0]),
        }
        view = Observation(0, {n: Sample(0, v) for n, v in now.items()})
        rng = np.random.default_rng(0)
        return next(lower(Hand(view, rng, Noise(0.0, rng, RATE, NoiseScale()), RATE)))

    def down(tip_m: float, off_m: float, turn: float = 0.0) -> float:
        return 0.05 + 0.05 + tip_m + 0.032 - commanded(tip_m, off_m, turn).xyz[2]

    assert commanded(0.02, 0.005).xyz[0] == pytest.approx(0.0, abs=1e-12)
    assert commanded(0.02, 0.05).xyz[0] == pytest.approx(0.042)
    assert commanded(0.02, 0.0, 0.03).yaw == pytest.approx(-0.03)
    assert down(0.0, 0.0) == pytest.approx(0.0065)
    assert down(0.0, 0.003) == down(0.0, 0.0, 0.15) == 0.0
    assert 0.0 < down(0.0, 0.001) < 0.0065
    assert down(0.02, 0.003) == pytest.approx(0.0065)
    assert down(-0.01, 0.003) == pytest.approx(0.0065)


def test_experts_say_what_they_need():
    with pytest.raises(SpecMismatchError, match="no signal 'goal/pose'"):
        expert(embodiment("tool/pose", "gripper/width", "cube/pose"))
    pose = (ActionSpec("tool/pose", (7,)), ActionSpec("gripper/width", (1,)))
    with pytest.raises(SpecMismatchError, match="cannot be commanded by 'tool/xyz_yaw'"):
        expert(embodiment(*[s.name for s in SPEC.signals], actions=pose))
    more = (*SPEC.actions, ActionSpec("light/on", (1,)))
    with pytest.raises(SpecMismatchError, match="also wants"):
        expert(embodiment(*[s.name for s in SPEC.signals], actions=more))
    with pytest.raises(ConfigError, match="0 to 1"):
        build_expert("pick_place", SPEC, 1.5)
    with pytest.raises(ConfigError, match=r"no play generator for task 'drawer'"):
        build_player("drawer", SPEC)
    assert {"pick_place", "stacking", "drawer", "insertion", "play_table"} <= set(EXPERTS)
    assert "play_table" in PLAYERS
