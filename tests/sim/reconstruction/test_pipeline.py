"""A table that is known is found again from pictures of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import mujoco
import numpy as np
import pytest
import yaml

from robolearn.capture.config import CaptureArm, CaptureObject, CaptureSet, CaptureWorkspace
from robolearn.capture.folder import Capture, read_capture
from robolearn.errors import DataError, RobolearnError, SceneError
from robolearn.geometry import pose, pose_error, rot_z, rotation_from_rotvec
from robolearn.types import Condition
from sim.env.scene_check import check_scene
from sim.env.scene_env import SceneEnv
from sim.reconstruction.bodies import make_body
from sim.reconstruction.meshes import is_closed
from sim.reconstruction.objects import (
    Cluster,
    Scanned,
    find_clusters,
    name_clusters,
    scan_object,
)
from sim.reconstruction.pipeline import Reconstruction, place_scan, reconstruct
from sim.reconstruction.refine import register
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from tests.sim.reconstruction.worlds import Thing, World, shoot


def in_table(body) -> np.ndarray:
    return body.vertices @ body.T_table_body[:3, :3].T + body.T_table_body[:3, 3]


def test_surfaces_lie_where_they_are(found: Reconstruction, world: World) -> None:
    by_name = {b.name: b for b in found.bodies}
    assert set(by_name) == {t.name for t in world.things}
    for thing in world.things:
        body = by_name[thing.name]
        off = np.abs(thing.distance(in_table(body)))
        assert off.mean() < 0.001, f"{thing.name}: {1e3 * off.mean():.2f} mm"
        assert is_closed(body.faces)
        assert body.volume_m3 == pytest.approx(thing.volume, rel=0.07)
        assert body.unseen_share < 0.05
        assert body.mass.kg == thing.mass_kg
        assert body.mass.source == "drawn"
        assert np.linalg.norm(np.array(body.rgb) - thing.rgb) < 0.35


def test_a_box_and_a_cylinder_are_what_they_are(found: Reconstruction, world: World) -> None:
    box, cylinder, concave = (
        next(b for b in found.bodies if b.name == t.name) for t in world.things
    )
    assert box.primitive is not None
    assert box.primitive.kind == "box"
    thing = world.things[0]
    np.testing.assert_allclose(np.sort(box.primitive.size), np.sort(thing.parts[0][1]), atol=1e-3)
    middle = thing.T.copy()
    middle[2, 3] = thing.parts[0][1][2]
    # A box is the same after a quarter or half turn, as its sides are.
    errors = [pose_error(box.T_table_body @ _turned(k * np.pi / 2), middle) for k in range(4)]
    off_m, off_rad = min(errors, key=lambda e: e[1])
    assert off_m < 0.001
    assert np.degrees(off_rad) < 1.0
    assert cylinder.primitive is not None
    assert cylinder.primitive.kind == "cylinder"
    np.testing.assert_allclose(cylinder.primitive.size, world.things[1].parts[0][1], atol=1e-3)
    assert concave.primitive is None
    assert 2 <= len(concave.parts) <= 8


def _turned(angle: float) -> np.ndarray:
    T = np.eye(4)
    T[:3, :3] = rot_z(angle)
    return T


def test_the_scene_loads_rests_and_says_what_it_is(
    found: Reconstruction, world: World, tmp_path: Path
) -> None:
    scene = write_reconstructed(found, SceneChoice(), tmp_path / "table")
    report = check_scene(scene)
    assert report.provenance == "reconstructed"
    assert set(report.moving_kg) == {t.name for t in world.things}
    details = scene.config.provenance.details
    moments = [f"inertia of {t.name}" for t in world.things]
    assert [a["what"] for a in details["assumed"]] == [*moments, "friction of every object"]
    for entry in details["objects"].values():
        low, high = entry["inertia_kg_m2_between"]
        assert (np.array(low) < entry["inertia_kg_m2"]).all()
        assert (np.array(high) > entry["inertia_kg_m2"]).all()
        assert "spread evenly" in entry["inertia_source"]
    assert details["missing"] == {}
    assert set(details["objects"]) == {t.name for t in world.things}
    assert len(details["pictures"]["held_out"]) == 2
    # Everything stays where it was found.
    model = scene.compile()
    data = mujoco.MjData(model)
    before = data.qpos.copy()
    for _ in range(500):
        mujoco.mj_step(model, data)
    for thing in world.things:
        at = int(model.joint(thing.name).qposadr[0])
        assert np.linalg.norm(data.qpos[at : at + 3] - before[at : at + 3]) < 0.002, thing.name
    # A second writing replaces it, another kind of scene is not touched.
    write_reconstructed(found, SceneChoice(), tmp_path / "table")
    raw = yaml.safe_load((tmp_path / "table" / "scene.yaml").read_text())
    raw["provenance"]["kind"] = "hand-made"
    (tmp_path / "table" / "scene.yaml").write_text(yaml.safe_dump(raw))
    with pytest.raises(SceneError, match="is a hand-made scene"):
        write_reconstructed(found, SceneChoice(), tmp_path / "table")


def test_an_arm_stands_at_the_table(found: Reconstruction, world: World, tmp_path: Path) -> None:
    scene = write_reconstructed(found, SceneChoice(arm="ur5e_table"), tmp_path / "cell")
    assumed = {a["what"] for a in scene.config.provenance.details["assumed"]}
    assert "where the arm stands" in assumed
    env = SceneEnv(scene, cameras=())
    env.reset(Condition("nominal", 0, {}), np.random.default_rng(0))
    seen = env.observe()
    for thing in world.things:
        assert np.linalg.norm(seen.value(f"{thing.name}/pose")[:2] - thing.xy_yaw[:2]) < 0.002
    assert {a.name for a in env.spec.actions} == {"tool/xyz_yaw", "gripper/width"}
    assert not any(s.name == "cube/pose" for s in env.spec.signals)
    env.close()
    with pytest.raises(SceneError, match="'free'"):
        write_reconstructed(found, SceneChoice("stacking", "ur5e_table"), tmp_path / "cell2")
    with pytest.raises(SceneError, match="no geom 'table'"):
        write_reconstructed(found, SceneChoice(arm="pusht_reference"), tmp_path / "cell3")
    assert not (tmp_path / "cell2").exists()


def test_an_arm_stands_where_the_capture_says(found: Reconstruction, tmp_path: Path) -> None:
    T = np.eye(4)
    T[:3, :3] = rot_z(0.3)
    T[:3, 3] = (-0.45, 0.1, 0.0)
    rows = tuple(tuple(float(v) for v in row) for row in T)
    config = dataclasses.replace(found.capture.config, arm=CaptureArm("ur5e", rows))
    moved = dataclasses.replace(found, capture=dataclasses.replace(found.capture, config=config))
    scene = write_reconstructed(moved, SceneChoice(), tmp_path / "cell")
    assert not any("arm" in a["what"] for a in scene.config.provenance.details["assumed"])
    data = mujoco.MjData(model := scene.compile())
    mujoco.mj_forward(model, data)
    site = data.site("table")
    T_base_table = np.eye(4)
    T_base_table[:3, :3], T_base_table[:3, 3] = site.xmat.reshape(3, 3), site.xpos
    np.testing.assert_allclose(T_base_table, np.linalg.inv(T), atol=1e-6)


def _edited(folder: Path, **changes: object) -> Capture:
    """The capture with another configuration."""
    capture = read_capture(folder)
    return dataclasses.replace(capture, config=dataclasses.replace(capture.config, **changes))


def test_what_was_not_weighed_or_placed_is_marked(
    found: Reconstruction, capture_folder: Path
) -> None:
    bodies = sorted(found.bodies, key=lambda b: -b.volume_m3)
    clusters = [
        Cluster(b.T_table_body[:3, 3] - b.half_size_m, b.T_table_body[:3, 3], b.volume_m3, False)
        for b in bodies
    ]
    named, said, assumed = name_clusters(clusters, (CaptureObject("a"), CaptureObject("b")))
    assert list(named) == ["a", "b", "object_1"]
    assert named["a"] is clusters[0]
    assert [a.what for a in assumed] == ["which object is which"]
    assert "object_1: something at" in said[0]
    four = tuple(CaptureObject(name) for name in "abcd")
    named, said, _ = name_clusters(clusters, four)
    assert "d: not found; 3 thing(s) stand on the table, capture.yaml names 4" in said[0]
    assert "Things that touch are seen as one" in said[0]
    far = (CaptureObject("a", at_m=(0.9, 0.9)),)
    assert "a" not in name_clusters(clusters, far)[0]
    guessed = np.zeros(len(bodies[0].vertices), bool)
    scanned = Scanned("a", bodies[0].vertices, bodies[0].faces, guessed, 0.3, 0.002)
    body, assumed, said = make_body(scanned, None)
    assert assumed[0].what == "mass of a"
    assert "not weighed" in assumed[0].why
    assert body.mass.low_kg < body.mass.kg < body.mass.high_kg
    assert body.mass.source == "assumed"
    assert "30% of its surface was never seen" in said[0]
    weighed = CaptureObject("a", mass_kg=350.0, mass_source="scales that show grams")
    assert "350 kg at" in make_body(scanned, weighed)[2][0]
    weighed = CaptureObject("a", mass_kg=body.mass.kg, mass_source="scales")
    assert not any("kg at" in text for text in make_body(scanned, weighed)[2])


def test_a_picture_with_a_wrong_pose_is_named_and_left_out(capture_folder: Path) -> None:
    capture = read_capture(capture_folder)
    off = np.eye(4)
    off[2, 3] = 0.03
    frames = [
        dataclasses.replace(f, T_world_camera=off @ f.T_world_camera) if k == 4 else f
        for k, f in enumerate(capture.frames)
    ]
    found = place_scan(dataclasses.replace(capture, frames=tuple(frames)))
    (name,) = found.left_out
    assert name == capture.frames[4].name
    assert "+30 mm off" in found.left_out[name]
    assert any("its pose is wrong" in text for text in found.said)


def test_poses_that_contradict_each_other_are_refused(capture_folder: Path) -> None:
    capture = read_capture(capture_folder)
    late = [f.T_world_camera for f in capture.frames[1:]] + [capture.frames[0].T_world_camera]
    frames = [
        dataclasses.replace(f, T_world_camera=T) for f, T in zip(capture.frames, late, strict=True)
    ]
    with pytest.raises(RobolearnError, match=r"out of\s+step"):
        place_scan(dataclasses.replace(capture, frames=tuple(frames)))


def test_an_empty_table_and_too_few_pictures_are_refused(capture_folder: Path) -> None:
    capture = read_capture(capture_folder)
    with pytest.raises(DataError, match="at least 6 are needed"):
        place_scan(dataclasses.replace(capture, frames=capture.frames[:4]))
    corner = CaptureWorkspace((0.15, 0.15, 0.0), (0.2, 0.2, 0.1))
    with pytest.raises(SceneError, match="nothing stands on the table"):
        reconstruct(_edited(capture_folder, workspace=corner))


def test_things_that_touch_are_cut_apart_where_their_places_are_known(tmp_path: Path) -> None:
    boxes = tuple(
        Thing(name, "box", (("box", (0.03, 0.025, up), (0.0, 0.0, up)),), (x, 0.0, 0.0), rgb, 0.1)
        for name, x, up, rgb in (
            ("a", -0.03, 0.02, (0.8, 0.2, 0.2)),
            ("b", 0.03, 0.035, (0.2, 0.2, 0.8)),
        )
    )
    capture = read_capture(shoot(tmp_path / "c", World(boxes, 4), views=10))
    scan = place_scan(capture)
    low, high = np.array([-0.22, -0.22, 0.0]), np.array([0.22, 0.22, 0.16])
    (one,) = find_clusters(scan.frames, low, high, 0.001)
    named, said, assumed = name_clusters([one], capture.config.objects)
    assert len(named) == 1
    assert "or give at_m of each" in said[0]
    seeds = [o.at_m for o in capture.config.objects]
    clusters = find_clusters(scan.frames, low, high, 0.001, seeds)
    named, said, assumed = name_clusters(clusters, capture.config.objects)
    assert set(named) == {"a", "b"}
    assert [a.what for a in assumed] == ["where one thing ends and the next begins"]
    assert "a, b touch other things" in said[0] or "b, a touch other things" in said[0]
    for thing in boxes:
        scanned = scan_object(thing.name, named[thing.name], scan.frames, 0.001)
        size = np.ptp(scanned.vertices, axis=0)
        half = np.array(thing.parts[0][1])
        np.testing.assert_allclose(size, 2 * half, atol=0.012)
        assert is_closed(scanned.faces)


def test_masks_part_things_that_touch(tmp_path: Path) -> None:
    boxes = tuple(
        Thing(
            name, "box", (("box", (0.03, 0.025, 0.03), (0.0, 0.0, 0.03)),), (x, 0.0, 0.0), rgb, 0.1
        )
        for name, x, rgb in (("a", 0.0, (0.8, 0.2, 0.2)), ("b", 0.06, (0.2, 0.2, 0.8)))
    )
    capture = read_capture(shoot(tmp_path / "c", World(boxes, 4), views=10, masks=True))
    scan = place_scan(capture)
    clusters = find_clusters(
        scan.frames, np.array([-0.22, -0.22, 0.0]), np.array([0.22, 0.22, 0.16]), 0.001
    )
    named, said, assumed = name_clusters(clusters, capture.config.objects)
    # Equal sides and no neck, and nothing is guessed.
    assert set(named) == {"a", "b"}
    assert not said
    assert not assumed
    for thing in boxes:
        scanned = scan_object(thing.name, named[thing.name], scan.frames, 0.001)
        size = np.ptp(scanned.vertices, axis=0)
        np.testing.assert_allclose(size, 2 * np.array(thing.parts[0][1]), atol=0.006)
        middle = 0.5 * (scanned.vertices.min(axis=0) + scanned.vertices.max(axis=0))
        assert np.linalg.norm(middle[:2] - thing.xy_yaw[:2]) < 0.003


def test_pictures_that_are_a_few_millimetres_off_are_brought_together(
    capture_folder: Path, world: World
) -> None:
    capture, rng = read_capture(capture_folder), np.random.default_rng(1)

    def off(T: np.ndarray) -> np.ndarray:
        turn, move = (v / np.linalg.norm(v) for v in rng.normal(size=(2, 3)))
        return T @ pose(rotation_from_rotvec(np.deg2rad(0.5) * turn), 0.003 * move)

    frames = tuple(
        dataclasses.replace(f, T_world_camera=off(f.T_world_camera)) for f in capture.frames
    )
    scan = place_scan(dataclasses.replace(capture, frames=frames))
    low, high = np.array([-0.22, -0.22, 0.0]), np.array([0.22, 0.22, 0.16])
    moved = register(scan.frames, scan.frames, low, high, scan.noise_m)
    truth = {f.name: f.T_world_camera for f in capture.frames}
    assert moved.changed, moved.note
    before, after = (
        np.stack([f.T_table_camera @ np.linalg.inv(truth[f.name]) for f in some])
        for some in (scan.frames, moved.frames)
    )
    # What they are off at the table, against each other: where all of it lies, nobody can know.
    before, after = ((T[:, :3, 3] - T[:, :3, 3].mean(axis=0)) for T in (before, after))
    assert np.median(np.linalg.norm(after, axis=1)) < 0.6 * np.median(
        np.linalg.norm(before, axis=1)
    )


def test_exact_poses_and_an_empty_table_stay_as_they_were_given(capture_folder: Path) -> None:
    capture = read_capture(capture_folder)
    scan = place_scan(capture)
    for low, high in (
        ((-0.22, -0.22, 0.0), (0.22, 0.22, 0.16)),
        ((0.15, 0.15, 0.0), (0.2, 0.2, 0.1)),
    ):
        some = scan.frames[:6]
        moved = register(some, some, np.array(low), np.array(high), scan.noise_m)
        assert not moved.changed
        assert moved.frames == some
        assert moved.note.startswith("poses as given")


def test_pictures_without_depth_are_refused_with_what_to_do(capture_folder: Path) -> None:
    capture = read_capture(capture_folder)
    frames = tuple(dataclasses.replace(f, depth_file=None) for f in capture.frames)
    with pytest.raises(DataError, match=r"none of 12 pictures.*has depth.*COLMAP"):
        place_scan(dataclasses.replace(capture, frames=frames))


def test_a_camera_that_stands_still_has_a_background_per_lighting(
    found: Reconstruction, tmp_path: Path
) -> None:
    capture = found.capture
    frame = capture.frames[0]
    rows = tuple(tuple(float(v) for v in row) for row in frame.T_world_camera)
    side = dataclasses.replace(frame.camera, mount="table", T_mount_camera=rows)
    sets = [
        CaptureSet(f"photo_{light}", "side", "background", lighting=light)
        for light in ("", "evening")
    ]
    frames = tuple(
        dataclasses.replace(frame, set=s, camera=side, T_world_camera=None) for s in sets
    )
    config = dataclasses.replace(capture.config, cameras={**capture.config.cameras, "side": side})
    lit = dataclasses.replace(capture, config=config, frames=(*capture.frames, *frames))
    scene = write_reconstructed(
        dataclasses.replace(found, capture=lit), SceneChoice(), tmp_path / "lit"
    )
    cameras = {c.name: c for c in scene.config.cameras}
    assert cameras["side"].background == "background_side.png"
    assert cameras["side_evening"].background == "background_side_evening.png"
    model = scene.compile()
    assert np.allclose(model.camera("side").pos, model.camera("side_evening").pos)
