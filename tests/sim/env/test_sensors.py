"""Noise and delay of sensors, delay of control, identified gains: what scene.yaml may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from robolearn.contracts import Env
from robolearn.errors import DataError, SceneError
from robolearn.geometry import rotation_from_quat, rotvec_from_rotation
from robolearn.types import Command, Condition
from sim.control.delay import CriticalFilter
from sim.env.scene_env import SceneEnv
from sim.scene.load import SCENES, load_scene
from tests.contracts import EnvContract

START = {"cube/pose": (0.1, 0.05, 0.02, 1.0, 0.0, 0.0, 0.0)}


def panda(folder: Path, signals: dict[str, dict[str, Any]] | None = None, **top: Any) -> SceneEnv:
    """The packaged Panda with changed signals and top-level keys."""
    source = SCENES / "panda_table"
    raw = yaml.safe_load((source / "scene.yaml").read_text())
    for signal in raw["signals"]:
        signal.update((signals or {}).get(signal["name"], {}))
    gains = top.pop("gains", None)
    if gains:
        raw["control"]["arms"][0]["gains"] = gains
    raw.update(top)
    folder.mkdir(exist_ok=True)
    for name in ("scene.xml", "panda.xml"):
        (folder / name).write_text((source / name).read_text())
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw))
    return SceneEnv(load_scene(folder))


def run(env: SceneEnv, seed: int = 0, ticks: int = 20) -> list[dict[str, np.ndarray]]:
    """Observed values while the tool moves sideways."""
    env.reset(Condition("a", seed, START), np.random.default_rng(seed))
    out = []
    for k in range(ticks):
        seen = env.observe()
        out.append({n: s.value for n, s in seen.samples.items()} | {"t": seen.t_ns})
        action = {"tool/xyz_yaw": np.array([0.0, 0.01 * min(k, 10), 0.25, 0.0])}
        env.apply(Command(k, action | {"gripper/width": np.array([0.04])}, 0, "test"))
        env.advance()
    return out


def test_noise_has_the_stated_size_is_seeded_and_never_judged(tmp_path: Path) -> None:
    noise = {"cube/pose": {"noise": [0.002, 0.01]}, "gripper/width": {"noise": [0.001]}}
    env = panda(tmp_path, noise)
    rows = run(env, ticks=150)
    poses = np.array([r["cube/pose"] for r in rows])
    assert 0.0016 < poses[:, :3].std(axis=0).mean() < 0.0024
    turns = [rotvec_from_rotation(rotation_from_quat(q)) for q in poses[:, 3:]]
    assert 0.008 < np.std(turns, axis=0).mean() < 0.012
    np.testing.assert_allclose(np.linalg.norm(poses[:, 3:], axis=1), 1.0, atol=1e-12)
    assert (poses[:, 3] >= 0).all()
    again = run(env, ticks=150)
    assert all(
        np.array_equal(a["cube/pose"], b["cube/pose"]) for a, b in zip(rows, again, strict=True)
    )
    other = run(env, seed=1)
    assert not np.array_equal(other[1]["cube/pose"], rows[1]["cube/pose"])
    report = env.reset(Condition("a", 0, START), np.random.default_rng(0))
    np.testing.assert_allclose(report.achieved["cube/pose"], START["cube/pose"], atol=1e-12)


def test_a_delayed_sample_is_old_and_says_so(tmp_path: Path) -> None:
    ideal = run(panda(tmp_path / "a"))
    env = panda(tmp_path / "b", {"tool/pose": {"delay_s": 0.12}})
    late = run(env)
    # 120 ms are two full ticks and a part: what is seen was captured three ticks ago.
    for k in range(3, 20):
        assert np.array_equal(late[k]["tool/pose"], ideal[k - 3]["tool/pose"])
        assert np.array_equal(late[k]["cube/pose"], ideal[k]["cube/pose"])
    seen = env.observe()
    assert seen.samples["tool/pose"].t_ns == seen.t_ns - 3 * 50_000_000


def test_control_delay_shifts_the_motion_by_whole_physics_steps(tmp_path: Path) -> None:
    ideal = [r["arm/joint_position"] for r in run(panda(tmp_path / "a"))]
    tick = [r["arm/joint_position"] for r in run(panda(tmp_path / "b", control_delay_s=0.05))]
    # While nothing arrives the arm rests; then it does what it did without delay.
    np.testing.assert_allclose(tick[1:], ideal[:-1], atol=2e-5)
    some = [r["arm/joint_position"] for r in run(panda(tmp_path / "c", control_delay_s=0.014))]
    moved = [np.abs(np.array(q)[8, 0]) for q in (ideal, some, tick)]
    assert moved[0] > moved[1] > moved[2]


def test_smoothing_lags_the_motion_and_ends_where_it_would(tmp_path: Path) -> None:
    ideal = [r["arm/joint_position"] for r in run(panda(tmp_path / "a"))]
    soft = [r["arm/joint_position"] for r in run(panda(tmp_path / "b", control_smoothing_s=0.03))]
    assert np.abs(np.array(ideal)[8, 0]) > np.abs(np.array(soft)[8, 0]) > 0.0
    filtered = CriticalFilter(15.0)
    filtered.reset(np.zeros(1))
    ramp = [float(filtered.step(np.array([k * 0.002]))[0]) for k in range(400)]
    # 15 periods of 2 ms behind, but for the period in which the input holds.
    assert 399 * 0.002 - ramp[-1] == pytest.approx(0.030, abs=0.0021)


def test_identified_gains_replace_those_of_the_mjcf(tmp_path: Path) -> None:
    gains = {"kp": [400.0] * 7, "kv": [40.0] * 7}
    env = panda(tmp_path / "a", gains=gains)
    np.testing.assert_array_equal(env.model.actuator_gainprm[:7, 0], 400.0)
    np.testing.assert_array_equal(env.model.actuator_biasprm[:7, 1], -400.0)
    np.testing.assert_array_equal(env.model.actuator_biasprm[:7, 2], -40.0)
    with pytest.raises(SceneError, match="kp > 0"):
        panda(tmp_path / "b", gains={"kp": [0.0] * 7, "kv": [1.0] * 7})
    with pytest.raises(SceneError, match="6 values for 7 servos"):
        panda(tmp_path / "c", gains={"kp": [1.0] * 6, "kv": [1.0] * 6})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"signals": {"cube/pose": {"noise": [0.1]}}}, "position m, rotation rad"),
        ({"signals": {"gripper/width": {"noise": [0.1, 0.1]}}}, "noise needs 1"),
        ({"signals": {"gripper/width": {"noise": [-0.1]}}}, "not negative"),
        ({"signals": {"gripper/width": {"delay_s": -0.1}}}, "must not be negative"),
        ({"control_delay_s": 0.003}, "whole number of 0.002 s steps"),
        ({"control_smoothing_s": -0.1}, "control_smoothing_s must be in"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SceneError, match=message):
        panda(tmp_path, **changes)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([np.nan, 0, 0.2, 0], "is not within"),
        ([9.0, 0, 0.2, 0], "is not within"),
        ([0, 0, 0.2], r"expected shape \(4,\)"),
        ([[0, 0, 0.2, 0]], r"expected shape \(4,\)"),
    ],
)
def test_bad_actions_are_refused_and_nothing_moves(
    table: SceneEnv, value: list[float], message: str
) -> None:
    command = Command(0, {"tool/xyz_yaw": np.array(value), "gripper/width": np.zeros(1)}, 0, "test")
    with pytest.raises(DataError, match=message):
        table.apply(command)
    with pytest.raises(DataError, match="lacks 'gripper/width'"):
        table.apply(Command(0, {"tool/xyz_yaw": np.array([0, 0, 0.2, 0])}, 0, "test"))
    assert len(table.drain().sent.seq) == 0


@pytest.fixture(scope="module")
def table() -> SceneEnv:
    env = SceneEnv(load_scene("panda_table"))
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    return env


class TestNoisyAndLate(EnvContract):
    """The contract holds for a world with noise and delays everywhere."""

    @pytest.fixture(autouse=True)
    def folder(self, tmp_path: Path) -> None:
        self.path = tmp_path

    def make(self) -> Env:
        late = {"noise": [0.001, 0.01], "delay_s": 0.06}
        return panda(self.path, {"cube/pose": late, "tool/pose": late}, control_delay_s=0.016)

    def condition(self, seed: int) -> Condition:
        return Condition(f"c{seed}", seed, START)


class TestTwoArms(EnvContract):
    """The contract holds for two arms."""

    exact = 1e-9

    def make(self) -> Env:
        return SceneEnv(load_scene("panda_bimanual"))

    def condition(self, seed: int) -> Condition:
        return SceneEnv(load_scene("panda_bimanual")).sample_condition(seed)
