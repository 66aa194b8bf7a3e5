"""A person's axes in the frame that is commanded, by a table, a tool or a picture."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hardware.teleop.axes import Eye, PersonAxes, axes_of, heading_of
from hardware.teleop.config import MappingConfig
from hardware.teleop.mapping import require_frame
from hardware.teleop.targets import find_target
from robolearn.errors import ConfigError
from robolearn.geometry import Rotation, pose, rot_x, rot_y, rot_z, rotvec_from_rotation
from tests.hardware.teleop.test_mapping import LEADER, POSE, TABLE, XYZ_YAW, Arm, rate
from tests.mocks import observation

AT = pose(rot_x(math.pi), (0.1, 0.0, 0.2))
NOW = observation(0)


def looking(azimuth: float, down: float, roll: float = 0.0) -> Rotation:
    """Axes of a camera that looks along ``azimuth``, so far ``down``, rolled to its right."""
    level = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    return rot_z(azimuth) @ rot_y(down) @ level @ rot_z(roll)


def axes(frame: Any, R: Rotation, spec: Any = POSE, **more: Any) -> PersonAxes:
    eye = Eye(lambda _: R, heading_of(R), rides=False)
    target, _ = find_target(spec)
    found = axes_of(MappingConfig(frame=frame, camera="side", **more), target, eye)
    assert found is not None
    found.see(NOW)
    return found


def test_in_a_picture_right_is_right_up_is_up_and_forward_is_into_it() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        R = looking(*rng.uniform(-math.pi, math.pi, 3))
        found = axes("camera", R)
        for change, seen in (((0, -1, 0), 0), ((0, 0, -1), 1), ((1, 0, 0), 2)):
            moved = found.moved(AT, np.array([*change, 0, 0, 0], dtype=np.float64))
            # Of the picture: right, down, and away.
            step = R.T @ (moved[:3, 3] - AT[:3, 3])
            assert step == pytest.approx(np.eye(3)[seen], abs=1e-12)
            turned = found.moved(AT, 0.1 * np.array([0, 0, 0, *change], dtype=np.float64))
            about = rotvec_from_rotation(turned[:3, :3] @ AT[:3, :3].T)
            assert R.T @ about == pytest.approx(0.1 * np.eye(3)[seen], abs=1e-9)


@pytest.mark.parametrize("down", [0.0, 0.7, math.pi / 2])
@pytest.mark.parametrize("azimuth", [-2.0, 0.3])
def test_a_picture_s_heading_is_level_and_its_right_is_right(azimuth: float, down: float) -> None:
    R = looking(azimuth, down)
    found = axes("camera_heading", R)
    step = found.moved(AT, np.array([0.0, -1.0, 0, 0, 0, 0]))[:3, 3] - AT[:3, 3]
    assert R.T @ step == pytest.approx([1.0, 0.0, 0.0], abs=1e-9)
    step = found.moved(AT, np.array([1.0, 0.0, 0, 0, 0, 0]))[:3, 3] - AT[:3, 3]
    assert step == pytest.approx([math.cos(azimuth), math.sin(azimuth), 0.0], abs=1e-9)
    # It is seen to go up in the picture, or away in it.
    _, below, away = R.T @ step
    assert below <= 1e-9 <= away - below
    up = found.moved(AT, np.array([0.0, 0.0, 1.0, 0, 0, 0]))[:3, 3] - AT[:3, 3]
    assert up == pytest.approx([0.0, 0.0, 1.0])


def test_a_camera_upside_down_has_a_heading_and_one_on_its_side_has_none() -> None:
    heading = heading_of(looking(0.4, 0.7, math.pi))
    assert heading is not None
    assert math.remainder(heading - 0.4 - math.pi, 2 * math.pi) == pytest.approx(0.0)
    assert heading_of(looking(0.4, 0.0, math.pi / 2)) is None
    with pytest.raises(ConfigError, match="'side' lies on its side"):
        axes("camera_heading", looking(0.4, 0.0, math.pi / 2))
    axes("camera", looking(0.4, 0.0, math.pi / 2))


def test_what_turns_about_the_vertical_alone_is_turned_whatever_the_picture() -> None:
    for frame in ("camera", "camera_heading"):
        found = axes(frame, looking(0.0, math.pi / 2), XYZ_YAW)
        turned = found.moved(AT, np.array([0.0, 0, 0, 0, 0, 0.1]))
        about = rotvec_from_rotation(turned[:3, :3] @ AT[:3, :3].T)
        assert about == pytest.approx([0.0, 0.0, 0.1])


def test_a_camera_that_rides_along_is_asked_at_every_tick() -> None:
    """Turned by a quarter between two ticks, the same key moves the tool another way."""
    turns = [0.0]
    eye = Eye(lambda _: looking(turns[0], 0.5), None, rides=True)
    arm = Arm(POSE, follows=False)
    from hardware.teleop.mapping import Mapping

    config = MappingConfig(frame="camera_heading", camera="wrist", ramp_s=0.05)
    arm.mapping = Mapping(config, POSE, 0.5, eye)
    arm.mapping.reset(arm.seen())
    arm.tick(rate())
    arm.tick(rate(1.0))
    first = arm.value[:3].copy()
    turns[0] = math.pi / 2
    arm.tick(rate(1.0))
    assert first == pytest.approx([0.0125, 0.0, 0.2])
    assert arm.value[:3] - first == pytest.approx([0.0, 0.0125, 0.0])
    # It turned onto its side on the way: the last heading that there was counts on.
    arm.mapping = Mapping(config, POSE, 0.5, Eye(lambda _: seen.pop(0), None, rides=True))
    seen = [looking(1.0, 0.5), *[looking(1.0, 0.0, math.pi / 2)] * 3]
    arm.mapping.reset(arm.seen())
    arm.tick(rate())
    arm.tick(rate(1.0))
    assert math.atan2(arm.value[1], arm.value[0]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"frame": "camera"}, "a camera and its frame go together"),
        ({"camera": "top"}, "got frame 'table' and camera 'top'"),
        ({"frame": "tool", "camera": "top"}, "go together"),
        ({"frame": "camera", "camera": "top", "heading_rad": 0.1}, "leave one out"),
    ],
)
def test_half_a_camera_is_refused(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        MappingConfig(**wrong)


def test_what_has_no_such_axes_is_refused() -> None:
    eye = Eye(lambda _: looking(0.0, 0.5), 0.0, rides=False)
    by_picture = MappingConfig(frame="camera", camera="top")
    with pytest.raises(ConfigError, match="nobody knows here where the camera 'top' is"):
        require_frame(by_picture, XYZ_YAW, None)
    with pytest.raises(ConfigError, match="names joints"):
        require_frame(by_picture, LEADER, eye)
    with pytest.raises(ConfigError, match="use frame: camera_heading"):
        require_frame(by_picture, TABLE, eye)
    require_frame(MappingConfig(frame="camera_heading", camera="top"), TABLE, eye)
    require_frame(MappingConfig(), LEADER, None)
