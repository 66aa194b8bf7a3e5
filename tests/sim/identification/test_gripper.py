"""A gripper's delay and speed are found from what was commanded and measured, or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from hardware.emulators.finger_servo import FingerServo
from robolearn.errors import DataError, SceneError
from robolearn.types import Command, Condition
from sim.control.gripper_drive import GripperDrive
from sim.env.scene_env import SceneEnv
from sim.identification.gripper_motion import FingerMotion, found_gripper, gripper_document
from sim.scene.load import SCENES, load_scene

RATE_HZ, STROKE_M = 20.0, 0.085
# As far as a Robotiq tells its position [m].
COUNT_M = STROKE_M / 225
LOOP_S = 0.002


class Springs:
    """Fingers of a plant that reach what pulls them, but not what is between them."""

    stroke_m = STROKE_M

    def __init__(self, object_m: float) -> None:
        self.object_m, self._at = object_m, STROKE_M

    def set_target(self, width_m: float, force_share: float) -> None:
        del force_share
        self._at = max(width_m, self.object_m)

    def width(self) -> float:
        return self._at

    def object_height(self, name: str) -> float:
        raise NotImplementedError(name)


def recorded(
    seed: int, delay_s: float, speed: float, object_m: float, *, plant: bool = False
) -> FingerMotion:
    """An emulated gripper that opens and closes at random, for 12 s."""
    rng = np.random.default_rng(seed)
    servo = FingerServo(Springs(object_m) if plant else None, STROKE_M)
    if not plant:
        servo.object_m = object_m
    t_s = np.arange(0, 12.0, 1 / RATE_HZ)
    told = np.full(len(t_s), STROKE_M)
    closed = False
    at = 10
    while at < len(t_s):
        closed = not closed
        told[at:] = rng.uniform(0.0, 0.03) if closed else rng.uniform(0.06, STROKE_M)
        at += int(rng.integers(18, 40))
    seen = np.zeros(len(t_s))
    for k in range(round(12.0 / LOOP_S)):
        now_s = k * LOOP_S
        if k % round(1 / RATE_HZ / LOOP_S) == 0:
            seen[round(now_s * RATE_HZ)] = COUNT_M * round(servo.width_m / COUNT_M)
        late = int(np.searchsorted(t_s, now_s - delay_s + 1e-9, side="right")) - 1
        servo.step(1 + round(now_s * 1e9), float(told[max(late, 0)]), speed, 1.0)
    return FingerMotion(f"m{seed}", t_s, told, t_s, seen)


@pytest.mark.parametrize("seed", range(4))
def test_what_was_drawn_is_found(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    delay_s, speed = float(rng.uniform(0.0, 0.25)), float(rng.uniform(0.03, 0.2))
    plant = seed % 2 == 1
    motions = [recorded(10 * seed + k, delay_s, speed, 0.04, plant=plant) for k in range(3)]
    found = found_gripper("gripper/width", motions)
    assert found.known, gripper_document(found)
    assert found.delay.value == pytest.approx(delay_s, abs=0.004)
    assert found.speed.value == pytest.approx(speed, rel=0.02)
    assert found.holds > 3
    # A plant's fingers are pulled on through what they hold.
    assert found.pulls_on == plant
    assert found.error_m < 0.002
    assert 0.0 < found.speed.high - found.speed.low < 0.3 * speed


def test_intervals_hold_what_was_drawn() -> None:
    inside = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        delay_s, speed = float(rng.uniform(0.02, 0.2)), float(rng.uniform(0.04, 0.2))
        motions = [recorded(50 + 10 * seed + k, delay_s, speed, 0.0) for k in range(2)]
        found = found_gripper("gripper/width", motions)
        for told, true in ((found.delay, delay_s), (found.speed, speed)):
            # The emulated servo takes a command a period of its loop later.
            slack = LOOP_S if told is found.delay else 0.01 * speed
            inside.append(told.low - slack <= true <= told.high + slack)
    assert np.mean(inside) > 0.85


def test_what_tells_nothing_is_assumed_and_says_why() -> None:
    one = recorded(0, 0.05, 0.1, 0.0)
    still = FingerMotion("still", one.told_t_s, np.full(len(one.told), 0.08), one.seen_t_s,
                         np.full(len(one.seen), 0.08))  # fmt: skip
    opens = FingerMotion("opens", one.told_t_s, np.full(len(one.told), 0.08), one.seen_t_s,
                         np.clip(0.1 * one.seen_t_s, 0, 0.08))  # fmt: skip
    for motions in ([], [still], [opens, opens, opens]):
        found = found_gripper("gripper/width", motions)
        assert not found.known
        assert "0 times closing" in found.delay.why
        assert gripper_document(found)["written"] is False
    # Told by hand to go slower than they can, fingers tell when, and not how fast.
    ramp = np.interp(one.told_t_s, [0, 2, 4, 6, 8, 10, 12],
                     [0.08, 0.02, 0.08, 0.02, 0.08, 0.02, 0.08])  # fmt: skip
    late = np.interp(one.told_t_s - 0.1, one.told_t_s, ramp)
    slow = [FingerMotion(f"s{k}", one.told_t_s, ramp, one.seen_t_s, late) for k in range(2)]
    found = found_gripper("gripper/width", slow)
    assert not found.known
    assert "never told to go faster" in found.speed.why
    # Widths of another gripper.
    other = FingerMotion("other", one.told_t_s, one.told, one.seen_t_s, one.seen[::-1].copy())
    found = found_gripper("gripper/width", [other])
    assert "no delay and speed explain" in found.speed.why


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda m: {"seen": np.where(np.arange(len(m.seen)) == 5, np.nan, m.seen)}, "not finite"),
        (lambda m: {"told_t_s": m.told_t_s[::-1].copy()}, "run backwards"),
        (lambda m: {"seen_t_s": np.zeros(len(m.seen))}, "run backwards"),
    ],
)
def test_broken_recordings_are_refused(spoil, said: str) -> None:
    good = recorded(0, 0.05, 0.1, 0.0)
    fields = {n: getattr(good, n) for n in ("told_t_s", "told", "seen_t_s", "seen")}
    bad = FingerMotion("bad", **{**fields, **spoil(good)})
    with pytest.raises(DataError, match=rf"bad: .*{said}"):
        found_gripper("gripper/width", [good, bad])


def scene_with(folder: Path, drive: dict[str, object] | None, **changes: object) -> SceneEnv:
    source = SCENES / "pick_place_ur5e"
    raw = yaml.safe_load((source / "scene.yaml").read_text())
    if drive is not None:
        raw["control"]["arms"][0]["gripper"]["drive"] = drive
    raw.update(changes)
    folder.mkdir()
    for file in source.glob("*.xml"):
        (folder / file.name).write_text(file.read_text())
    (folder / "scene.yaml").write_text(yaml.safe_dump(raw))
    return SceneEnv(load_scene(folder))


def widths(env: SceneEnv, told: np.ndarray) -> np.ndarray:
    env.reset(Condition("x", 0, {"cube/pose": (0.1, 0.2, 0.02, 1.0, 0.0, 0.0, 0.0)}),
              np.random.default_rng(0))  # fmt: skip
    at = env.observe().samples["tool/pose"].value
    seen = []
    for k, width in enumerate(told.tolist()):
        seen.append(float(env.observe().samples["gripper/width"].value[0]))
        arm = np.array([*at[:3], 0.0])
        action = {"tool/xyz_yaw": arm, "gripper/width": np.array([width])}
        env.apply(Command(k, action, env.now_ns(), "test"))
        env.advance()
    return np.array(seen)


@pytest.mark.parametrize("late_s", [0.0, 0.08])
def test_a_scene_does_what_was_found(tmp_path: Path, late_s: float) -> None:
    """What delays the arm does not delay the fingers again."""
    drive = {"delay_s": 0.034, "speed": 0.12}
    env = scene_with(tmp_path / "s", drive, control_delay_s=late_s)
    told = np.concatenate(
        [np.full(n, w) for n, w in ((5, 0.085), (30, 0.0), (30, 0.07), (25, 0.02))]
    )
    seen, t_s = widths(env, told), np.arange(len(told)) / 20.0
    found = found_gripper("gripper/width", [FingerMotion("scene", t_s, told, t_s, seen)])
    assert found.known
    assert found.delay.value == pytest.approx(0.034, abs=0.015)
    assert found.speed.value == pytest.approx(0.12, rel=0.03)
    env.close()


def test_a_drive_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for k, drive in enumerate(({"delay_s": -0.1, "speed": 0.1}, {"delay_s": 0.1, "speed": 0.0})):
        with pytest.raises(SceneError, match="a gripper's drive needs"):
            scene_with(tmp_path / str(k), drive)
    with pytest.raises(ValueError, match="needs delay_s"):
        GripperDrive(float("nan"), 0.1)
