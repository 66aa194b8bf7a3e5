"""The robot of a scene is drawn at its joints into the pictures that judge it, and judged."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from robolearn.arms.models import UR5E
from robolearn.capture.config import CaptureArm, CaptureSet
from robolearn.capture.folder import Capture, read_capture
from robolearn.errors import DataError
from robolearn.geometry import inverse, pose, rot_x, rot_z
from robolearn.operations.scenes.page import verified_page
from sim.reconstruction.pipeline import Reconstruction
from sim.reconstruction.verify import Verified, verify
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from sim.scene.config import Scene
from tests.sim.reconstruction.worlds import T_TABLE_BASE, World, matrix_rows, shoot

VIEWS, NAME = 5, "silhouette of the robot at its joints, IoU"


@pytest.fixture(scope="module")
def pictured(world: World, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """The table again, with an arm over it that moves between the pictures."""
    return later(world, tmp_path_factory.mktemp("robot") / "later")


def later(world: World, folder: Path, hand: Mapping[str, float] | None = None) -> Capture:
    """The table, an arm over it that moves between the pictures, and how far its hand is open."""
    near = np.array([2.9, -1.6, 1.8, -1.8, -1.57, -1.8])
    joints = np.stack(
        [
            UR5E.ik(inverse(T_TABLE_BASE) @ pose(rot_z(y) @ rot_x(np.pi), (-0.2, y, 0.23)), near)
            for y in np.linspace(-0.1, 0.2, VIEWS)
        ]
    )
    return read_capture(shoot(folder, world, name="later", joints=joints, views=VIEWS, hand=hand))


def scene_with_arm(found: Reconstruction, T_table_base: np.ndarray, folder: Path) -> Scene:
    """What was reconstructed, with the arm there."""
    config = found.capture.config
    config = dataclasses.replace(config, arm=CaptureArm("", matrix_rows(T_table_base)))
    found = dataclasses.replace(found, capture=dataclasses.replace(found.capture, config=config))
    return write_reconstructed(found, SceneChoice(arm="ur5e_table"), folder)


@pytest.fixture(scope="module")
def scene(found: Reconstruction, tmp_path_factory: pytest.TempPathFactory) -> Scene:
    return scene_with_arm(found, T_TABLE_BASE, tmp_path_factory.mktemp("robot") / "cell")


def verdict(found: Verified) -> str:
    return next((m.verdict for m in found.measures if m.limit.name == NAME), "not judged")


def recorded(capture: Capture, folder: Path, text: str | None) -> Capture:
    """The capture with another ``robot.csv``, or none."""
    folder.mkdir()
    if text is not None:
        (folder / "robot.csv").write_text(text)
    return dataclasses.replace(capture, path=folder)


def test_a_robot_where_it_stood_is_used(scene: Scene, pictured: Capture) -> None:
    found = verify(scene, pictured)
    assert verdict(found) == "use"
    assert found.robot_iou >= 0.93
    assert np.isfinite([v.robot for v in found.views]).sum() >= 2
    # What it hides is not missing from the objects, and it is not a thing that the scene lacks.
    assert min(found.iou.values()) > 0.9
    assert max(v.unexplained for v in found.views) < 0.05
    assert "robot 0.9" in verified_page(found)


def test_an_open_hand_is_drawn_as_pictures_show_it(
    scene: Scene, world: World, tmp_path: Path
) -> None:
    # Each finger's way from closed.
    open_m = 0.034
    fingers = {"finger_left": open_m, "finger_right": open_m}
    pictures = later(world, tmp_path / "open", fingers)
    found = verify(scene, pictures)
    assert verdict(found) == "use"
    (text,) = [s for s in found.said if "how far the hand was open" in s]
    wide_mm = float(re.findall(r"drawn (\d+) mm apart", text)[0])
    assert wide_mm == pytest.approx(2e3 * open_m, abs=8.0)
    before = float(re.findall(r"as the model rests (0\.\d+)", text)[0])
    assert found.robot_iou > before + 0.005


def test_a_robot_that_stands_elsewhere_is_refused(
    found: Reconstruction, pictured: Capture, tmp_path: Path
) -> None:
    beside = pose(None, (0.0, 0.05, 0.0)) @ T_TABLE_BASE
    result = verify(scene_with_arm(found, beside, tmp_path / "beside"), pictured)
    assert verdict(result) == "refuse"
    assert result.verdict == "refuse"
    assert any("arm.T_table_base" in text for text in result.advice)


def test_joints_of_another_time_are_refused(
    scene: Scene, pictured: Capture, tmp_path: Path
) -> None:
    lines = (pictured.path / "robot.csv").read_text().splitlines()
    cells = [line.split(",") for line in lines[1:]]
    # The first joint half a radian on: a record of another run.
    rows = [",".join([c[0], str(float(c[1]) + 0.5), *c[2:]]) for c in cells]
    other = recorded(pictured, tmp_path / "other", "\n".join([lines[0], *rows]) + "\n")
    assert verdict(verify(scene, other)) == "refuse"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no robot.csv"),
        ("t_s,q1\n0,0\n9,0\n", "has 1 joints, the scene's arm 6"),
        ("t_s,q1,q2,q3,q4,q5,q6\n90,0,0,0,0,0,0\n99,0,0,0,0,0,0\n", "of no picture"),
        # It moved in a gap of the record, in which all pictures were taken: nobody knows how.
        ("t_s,q1,q2,q3,q4,q5,q6\n-1,0,0,0,0,0,0\n9,1,0,0,0,0,0\n", "of no picture"),
    ],
)
def test_unknown_joints_are_said_and_judge_nothing(
    scene: Scene, pictured: Capture, tmp_path: Path, text: str | None, why: str
) -> None:
    one = dataclasses.replace(pictured, frames=pictured.frames[:1])
    found = verify(scene, recorded(one, tmp_path / "without", text))
    assert verdict(found) == "not judged"
    assert not np.isfinite(found.robot_iou)
    assert any("robot's silhouette is not judged" in s and why in s for s in found.said)


def test_a_record_that_is_none_is_an_error(scene: Scene, pictured: Capture, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"robot\.csv"):
        verify(scene, recorded(pictured, tmp_path / "bad", "t_s,q1\n0,left\n"))


def test_a_camera_on_the_flange_does_not_judge_the_arm_that_carries_it(
    scene: Scene, pictured: Capture
) -> None:
    frames = tuple(
        dataclasses.replace(f, camera=dataclasses.replace(f.camera, mount="flange"))
        for f in pictured.frames[:1]
    )
    found = verify(scene, dataclasses.replace(pictured, frames=frames))
    assert verdict(found) == "not judged"


def beside(found: Reconstruction, pictured: Capture, entry: CaptureSet) -> Capture:
    """The scan by a camera on the flange, as an arm takes it, and the robot in a set beside it."""
    scan = tuple(
        dataclasses.replace(f, camera=dataclasses.replace(f.camera, mount="flange"))
        for f in found.capture.frames
    )
    shown = tuple(dataclasses.replace(f, set=entry) for f in pictured.frames)
    return dataclasses.replace(pictured, frames=(*scan, *shown))


@pytest.mark.parametrize(
    ("entry", "judged"),
    [
        (CaptureSet("held_nothing_eye", "eye", "object", object_on="flange"), True),
        (CaptureSet("background_eye", "eye", "background"), True),
        # What rides on the flange would be taken for the robot.
        (CaptureSet("held_cube_eye", "eye", "object", object="cube", object_on="flange"), False),
        (CaptureSet("handeye_eye", "eye", "handeye", board_on="flange"), False),
    ],
)
def test_cameras_beside_the_arm_judge_the_robot_of_a_scan_by_the_arm(
    scene: Scene, found: Reconstruction, pictured: Capture, entry: CaptureSet, judged: bool
) -> None:
    result = verify(scene, beside(found, pictured, entry))
    if not judged:
        assert verdict(result) == "not judged"
        assert any("its empty hand" in text for text in result.said)
        return
    assert verdict(result) == "use"
    assert result.robot_iou >= 0.93
    assert len(result.robots) == VIEWS
    # The pictures of the robot judge nothing else.
    assert all(not v.iou for v in result.robots)
    assert "robot 0.9" in verified_page(result)


def test_a_robot_that_the_scan_cannot_see_is_refused_by_its_other_pictures(
    found: Reconstruction, pictured: Capture, tmp_path: Path
) -> None:
    away = pose(None, (0.0, 0.05, 0.0)) @ T_TABLE_BASE
    entry = CaptureSet("held_nothing_eye", "eye", "object", object_on="flange")
    wrong = scene_with_arm(found, away, tmp_path / "away")
    assert verdict(verify(wrong, beside(found, pictured, entry))) == "refuse"
