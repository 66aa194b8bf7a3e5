"""Whoever looks at the picture of a camera drives in its axes: judged in the picture itself."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.teleop.agent import TeleopAgent
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import DeviceReading, Rate
from hardware.teleop.mapping import Mapping
from robolearn.arms.models import UR5E
from robolearn.calibration.lens import LensConfig
from robolearn.cli.main import main
from robolearn.config import find_config
from robolearn.errors import ConfigError
from robolearn.geometry import Pose, inverse, quat_from_rotation
from robolearn.operations.deploy import take_over
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.deploy.options import TakeOverOptions
from robolearn.operations.deploy.take_over import DeviceOperator, device_operator, settings_of
from robolearn.operations.pictures.eyes import cell_eye, world_eye
from sim.worlds import make_world
from tests.hardware.env.test_real_env_tool import cell
from tests.hardware.lab import HOME
from tests.hardware.teleop.test_axes import looking
from tests.hardware.teleop.test_teleop import Hand
from tests.mocks import observation

LAB = Path("configs/hardware/lab_ur5e_pick_place_camera.yaml")
# What the hand does, and what is seen of it: right, down and away in the picture.
SEEN = {(0, -1, 0): (1, 0, 0), (0, 0, 1): (0, -1, 0), (1, 0, 0): (0, 0, 1)}


class Pushed(Hand):
    """A device that is at rest once, then deflected."""

    def __init__(self, *push: float) -> None:
        super().__init__()
        self._push, self._looks = push, 0

    def poll(self) -> DeviceReading:
        self._looks += 1
        twist = np.zeros(6)
        twist[:3] = self._push if self._looks > 1 else 0.0
        return DeviceReading(time.monotonic_ns(), True, True, Rate(twist))


@pytest.mark.parametrize("camera", ["top", "agent", "wrist"])
@pytest.mark.parametrize("push", SEEN)
def test_the_tool_of_a_scene_moves_in_the_picture_as_the_hand_does(camera: str, push: Any) -> None:
    with contextlib.closing(make_world("pick_place")) as env:
        env.reset(env.sample_condition(0), np.random.default_rng(0))
        T = env.camera_pose(camera, "table")
        eye = world_eye(env, camera)
        agent = TeleopAgent(
            Pushed(*push), env.spec, MappingConfig(frame="camera", camera=camera), eye
        )
        places = [env.observe().value("tool/pose")[:3]]
        for _ in range(12):
            env.apply(agent.decide(env.observe(), None))
            env.advance()
        places.append(env.observe().value("tool/pose")[:3])
        assert agent.engaged
    moved = (places[1] - places[0]) @ T[:3, :3]
    assert np.linalg.norm(moved) > 0.04
    # Gravity and the servos bend the way by a little.
    assert moved / np.linalg.norm(moved) == pytest.approx(SEEN[push], abs=0.1)


def test_a_camera_of_a_scene_that_was_moved_is_followed() -> None:
    with contextlib.closing(make_world("pick_place")) as env:
        eye = world_eye(env, "agent")
        before = eye.look(observation(0))
        # It turns after what it looks at: seen from the other side, right is left.
        env.model.cam_pos[env.model.camera("agent").id][1] *= -1.0
        after = eye.look(observation(0))
        assert before[0, 0] > 0.9
        assert after[0, 0] < -0.9


@pytest.mark.parametrize(
    ("world", "camera", "told"),
    [
        ("pick_place", "tob", "no camera 'tob'. Did you mean 'top'"),
        ("so101_reach", "top", "in which frame its tool is told"),
        ("pusht_pybullet", "top", "not known of another engine"),
    ],
)
def test_a_camera_that_a_world_does_not_know_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], world: str, camera: str, told: str
) -> None:
    raw = {"world": world, "mapping": {"frame": "camera_heading", "camera": camera}}
    config, out = tmp_path / "by_picture.yaml", tmp_path / "store"
    config.write_text(yaml.safe_dump(raw))
    words = ["--config", str(config), "--agent", "keyboard"]
    for argv in (["collect", *words, "--out", str(out)], ["teleoperate", *words]):
        assert main(argv) == 2
        assert told in capsys.readouterr().err
    assert not out.exists()


def with_lens(where: CellConfig, lens: LensConfig | None, name: str = "side") -> CellConfig:
    """``where`` with one camera more, calibrated so."""
    camera = load_cell(find_config(LAB)).cameras[0]
    camera = dataclasses.replace(
        camera, stream=dataclasses.replace(camera.stream, name=name), lens=lens
    )
    return dataclasses.replace(where, cameras=(camera,))


def lens_at(T: Pose, frame: Any) -> LensConfig:
    x, y, z = T[:3, 3]
    quat = tuple(map(float, quat_from_rotation(T[:3, :3])))
    return LensConfig(
        (600.0, 600.0), (320.0, 240.0), (float(x), float(y), float(z)), quat, (), frame
    )


@pytest.mark.parametrize("push", SEEN)
@pytest.mark.parametrize("frame", ["table", "flange"])
def test_the_tool_of_a_cell_moves_in_the_picture_as_the_hand_does(frame: Any, push: Any) -> None:
    """By pixels of the calibrated lens, at postures in which the flange points elsewhere."""
    T = np.eye(4)
    T[:3, :3], T[:3, 3] = looking(0.8, 0.6, 0.2), (-0.3, 0.2, 0.5)
    where = with_lens(cell(), lens_at(T, frame))
    base = where.T_base_table
    assert base is not None
    rng = np.random.default_rng(1)
    for _ in range(4):
        q = np.array(HOME) + rng.uniform(-0.4, 0.4, 6)
        T_table_flange = inverse(base) @ UR5E.fk(q)
        # Where the camera is, by another way than the one that is tested.
        T_table_camera = T if frame == "table" else T_table_flange @ T
        spec = cell_spec(where)
        config = MappingConfig(frame="camera", camera="side", ramp_s=1e-3)
        mapping = Mapping(config, spec, 0.5, cell_eye(where, "side"))
        tool = np.array([0.0, 0.05, 0.25, 0.0, 1.0, 0.0, 0.0])
        seen = observation(0, tool__pose=tool, arm__joint_position=q)
        mapping.reset(seen)
        device = Pushed(*push)
        commands = [
            mapping.command(device.poll(), seen, 1.0 / spec.rate_hz).action for _ in range(2)
        ]
        a, b = (c[spec.actions[0].name][:3] for c in commands)
        step = (b - a) @ T_table_camera[:3, :3]
        assert np.linalg.norm(step) > 1e-3
        assert step / np.linalg.norm(step) == pytest.approx(SEEN[push], abs=1e-9)


def test_a_camera_of_a_cell_that_is_not_there_or_was_not_measured_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError, match=r"no camera 'sid'\. Did you mean 'side'"):
        cell_eye(with_lens(cell(), None), "sid")
    with pytest.raises(ConfigError, match=r"has no 'lens'.*calibrate camera"):
        cell_eye(with_lens(cell(), None), "side")
    config, out = tmp_path / "by_picture.yaml", tmp_path / "store"
    robot = tmp_path / "cell.yaml"
    raw = yaml.safe_load(find_config(LAB).read_text())
    for camera in raw["robot"]["cameras"]:
        del camera["lens"]
    robot.write_text(yaml.safe_dump(raw))
    mapping = {"frame": "camera", "camera": "top"}
    config.write_text(yaml.safe_dump({"robot": str(robot), "mapping": mapping}))
    words = ["--config", str(config), "--agent", "keyboard", "--yes"]
    # Before anything is connected: no lab runs here.
    for argv in (["collect", *words, "--out", str(out)], ["teleoperate", *words]):
        assert main(argv) == 2
        assert "has no 'lens'" in capsys.readouterr().err
    assert not out.exists()


def test_who_takes_over_on_a_cell_drives_by_the_picture_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    T = np.eye(4)
    T[:3, :3] = looking(0.8, 0.6)
    config = tmp_path / "by_picture.yaml"
    config.write_text(yaml.safe_dump({"mapping": {"frame": "camera", "camera": "side"}}))

    def seat(where: CellConfig) -> DeviceOperator:
        options = TakeOverOptions(by="spacemouse", config=config)
        return device_operator(
            options, settings_of(options), Unattended(agreed=True), where, "pick_place",
            trials=1, max_steps=10, write=lambda _: None,
        )  # fmt: skip

    with pytest.raises(ConfigError, match="has no 'lens'"):
        seat(with_lens(cell(), None))
    monkeypatch.setattr(take_over, "device_of", lambda *_: Pushed(1, 0, 0))
    seated = seat(with_lens(cell(), lens_at(T, "table")))
    seated.listen(lambda: None)
    tool = np.array([0.0, 0.05, 0.25, 0.0, 1.0, 0.0, 0.0])
    steps = [
        seated.person.decide(observation(50_000_000 * k, tool__pose=tool), None) for k in range(4)
    ]
    seated.close()
    a, b = (np.asarray(c.action["tool/xyz_yaw"])[:3] for c in (steps[0], steps[-1]))
    # Pushed forward: into the picture.
    assert (b - a) / np.linalg.norm(b - a) == pytest.approx(T[:3, 2], abs=1e-6)


def test_a_camera_on_the_flange_looks_where_that_of_the_scene_does() -> None:
    """MuJoCo's wrist camera, in the frame of the flange, against the cell's kinematics."""
    on_flange = LensConfig(
        focal_px=(166.813, 166.813),
        centre_px=(127.5, 127.5),
        position_m=(0.085, 0.0, 0.04),
        quaternion=(0.6963068, -0.123113, -0.123113, 0.6963068),
        frame="flange",
    )
    eye = cell_eye(with_lens(load_cell(find_config(LAB)), on_flange, "wrist"), "wrist")
    with contextlib.closing(make_world("pick_place_ur5e")) as env:
        for start in range(3):
            env.reset(env.sample_condition(start), np.random.default_rng(0))
            env.advance()
            q = env.observe().value("arm/joint_position")
            found = eye.look(observation(0, arm__joint_position=q))
            wanted = env.camera_pose("wrist", "table")[:3, :3]
            assert found == pytest.approx(wanted, abs=1e-3)
