"""Pictures without depth: places by structure from motion, metres by what is known, depth swept."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from robolearn.capture.config import (
    CaptureCamera,
    CaptureConfig,
    CaptureLens,
    CaptureObject,
    CaptureSet,
    CaptureWorkspace,
)
from robolearn.capture.folder import read_capture
from robolearn.capture.write import CaptureWriter
from robolearn.cli.main import main
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, pose, rotation_from_rotvec
from robolearn.operations.scenes.from_pictures import depth_from_pictures
from sim.reconstruction.colours.sfm import in_metres
from sim.reconstruction.colours.sweep import sweep
from sim.reconstruction.frames import PosedFrame
from sim.reconstruction.pipeline import reconstruct
from tests.robolearn.capture.foreign import looking, ring, write_foreign
from tests.sim.reconstruction.turning import FOCAL_PX, SIZE, K, Stage
from tests.sim.reconstruction.worlds import camera_poses

BOX = (0.04, 0.03, 0.035)
SPOTS = 'type="{}" builtin="flat" rgb1=".55 .5 .45" mark="random" markrgb="{}" random=".25"'
MOTTLED = f"""<mujoco><statistic center="0 0 0" extent="1"/>
  <visual><map znear=".02" zfar="5"/><headlight ambient=".6 .6 .6" diffuse=".3 .3 .3"/>
    <global offwidth="640" offheight="480"/><quality offsamples="4"/></visual>
  <asset><texture name="t" {SPOTS.format("2d", ".1 .15 .2")} width="400" height="400"/>
    <texture name="b" {SPOTS.format("cube", ".8 .1 .1")} width="24" height="144"/>
    <material name="t" texture="t" texrepeat="1 1"/><material name="b" texture="b"/></asset>
  <worldbody><geom type="box" size=".6 .6 .02" pos="0 0 -.02" material="t"/>
    <geom type="box" size="{" ".join(map(str, BOX))}" pos="0 0 {BOX[2]}" material="b"/>
    <camera name="eye" pos="0 0 1"/></worldbody></mujoco>"""
BARE = MOTTLED.replace('mark="random"', 'mark="none"')


def shoot(folder: Path, xml: str, poses: list[Pose], seed: int = 0) -> list[np.ndarray]:
    """A scan without depth by a camera whose places are known to a millimetre; returns the depth
    that it would have had.
    """
    lens = CaptureLens((FOCAL_PX, FOCAL_PX), (K[0, 2], K[1, 2]))
    config = CaptureConfig(
        schema=1,
        name="mottled",
        cameras={"eye": CaptureCamera("hand", SIZE, lens)},
        sets=(CaptureSet("scan", "eye", "scan"),),
        objects=(CaptureObject("brick", 0.1, "drawn", (0.0, 0.0)),),
        workspace=CaptureWorkspace((-0.12, -0.12, 0.0), (0.12, 0.12, 0.12)),
    )
    writer, rng, depths = CaptureWriter(folder, config), np.random.default_rng(seed), []
    with Stage(xml, rng) as stage:
        for T in poses:
            picture, depth, _ = stage.shoot(T)
            off = pose(rotation_from_rotvec(rng.normal(0, 0.002, 3)), rng.normal(0, 0.001, 3))
            writer.add("scan", picture, T_world_camera=T @ off)
            depths.append(depth)
    return depths


def beside(count: int) -> list[Pose]:
    """Poses on an arc over the table, a few degrees from one another."""
    turns = np.deg2rad(9.0) * (np.arange(count) - (count - 1) / 2)
    return [looking((0.4 * np.sin(a), -0.3 * np.cos(a), 0.3), (0.0, 0.0, 0.02)) for a in turns]


def test_depth_is_swept_where_there_is_texture(tmp_path: Path) -> None:
    poses = beside(4)
    true = shoot(tmp_path / "c", MOTTLED, poses)
    capture = read_capture(tmp_path / "c")
    frames = [PosedFrame(f, f.camera.lens, T) for f, T in zip(capture.frames, poses, strict=True)]
    points = np.random.default_rng(0).uniform((-0.15, -0.15, 0.0), (0.15, 0.15, 0.07), (200, 3))
    swept = sweep(frames, points)
    assert swept.share > 0.3
    measured, truth = swept.depths[2], true[2]
    seen = measured > 0
    off = np.abs(measured - truth)[seen]
    assert np.median(off) < 0.003
    assert np.quantile(off, 0.9) < 0.01
    assert swept.noise_m < 0.004


def test_nothing_is_invented_where_there_is_none(tmp_path: Path) -> None:
    poses = beside(3)
    shoot(tmp_path / "c", BARE, poses)
    capture = read_capture(tmp_path / "c")
    frames = [PosedFrame(f, f.camera.lens, T) for f, T in zip(capture.frames, poses, strict=True)]
    points = np.random.default_rng(0).uniform((-0.15, -0.15, 0.0), (0.15, 0.15, 0.07), (200, 3))
    assert sweep(frames, points).share < 0.05


def drawn(count: int, seed: int, off_m: float = 0.002) -> tuple[dict, dict, float]:
    """Places as structure from motion has them, in a world of its own, and as an arm has."""
    rng = np.random.default_rng(seed)
    known = {str(k): T for k, T in enumerate(camera_poses(count, rng))}
    scale = float(rng.uniform(0.2, 5.0))
    W = pose(rotation_from_rotvec(rng.normal(size=3)), rng.normal(size=3))
    found = {}
    for name, T in known.items():
        at = W @ T
        at[:3, 3] *= scale
        found[name] = at
        noisy = T.copy()
        noisy[:3, 3] += rng.normal(0, off_m, 3)
        known[name] = noisy
    return found, known, scale


def test_metres_follow_from_known_places_within_what_is_said() -> None:
    inside = []
    for seed in range(40):
        found, known, scale = drawn(12, seed)
        points = np.zeros((1, 3))
        made = in_metres(found, points, known)
        ratio = np.linalg.norm(made.poses["0"][:3, 3] - made.poses["5"][:3, 3]) / np.linalg.norm(
            found["0"][:3, 3] - found["5"][:3, 3]
        )
        inside.append(abs(ratio * scale - 1.0) < made.scale_half)
        assert made.scale_half < 0.01
    assert np.mean(inside) > 0.85


def test_a_wrong_place_is_not_believed_and_contradictions_are_refused() -> None:
    points = np.zeros((1, 3))
    found, known, _ = drawn(12, 3)
    known["4"] = pose(None, (0.2, 0.0, 0.1)) @ known["4"]
    assert in_metres(found, points, known).doubted == ("4",)
    with pytest.raises(DataError, match="known of 3 that structure from motion placed"):
        in_metres(found, points, {n: known[n] for n in "012"})
    late = dict(zip(known, [*[*known.values()][1:], known["0"]], strict=True))
    with pytest.raises(DataError, match="the known places contradict the pictures"):
        in_metres(found, points, late)
    near = {n: pose(T[:3, :3], 0.01 * T[:3, 3]) for n, T in known.items()}
    with pytest.raises(DataError, match="move the camera around the table"):
        in_metres(found, points, near)


def test_without_the_library_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pycolmap", None)
    write_foreign(tmp_path / "c", ring(8))
    words = ["reconstruct", str(tmp_path / "c"), "--out", str(tmp_path / "scene")]
    assert main([*words, "--from-colours", str(tmp_path / "depth")]) == 2
    said = capsys.readouterr().err
    assert "placed by pycolmap" in said
    assert "'robolearn[sfm]'" in said
    assert sorted(p.name for p in tmp_path.iterdir()) == ["c"]


def test_a_brick_from_colours_alone(tmp_path: Path) -> None:
    pytest.importorskip("pycolmap", reason="pycolmap is not installed (robolearn[sfm])")
    from robolearn.operations.scenes.from_pictures import depth_from_pictures

    shoot(tmp_path / "c", MOTTLED, camera_poses(20, np.random.default_rng(4)))
    made = depth_from_pictures(tmp_path / "c", tmp_path / "depth")
    assert made.scale_half < 0.01
    assert made.off_m < 0.004
    assert made.share > 0.1
    found = reconstruct(read_capture(tmp_path / "depth"))
    (body,) = found.bodies
    assert np.sort(body.half_size_m) == pytest.approx(np.sort(BOX), abs=0.008)
    assert body.volume_m3 == pytest.approx(8 * np.prod(BOX), rel=0.2)
    assert any(a.what == "depth of the scan" for a in found.assumed)


def test_a_folder_that_is_not_empty_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    with pytest.raises(ConfigError, match="is not empty"):
        depth_from_pictures(tmp_path / "nowhere", tmp_path)
