"""Objects that turn before a still camera are fused in their own frame, and join the scene."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import yaml

from robolearn.capture.check import check_capture
from robolearn.capture.config import CaptureSet
from robolearn.capture.folder import Capture, read_capture
from robolearn.errors import ConfigError
from robolearn.geometry import inverse, pose, rot_x, rot_z
from sim.reconstruction.apart.align import Surface, align
from sim.reconstruction.apart.joining import joined_to_scan
from sim.reconstruction.apart.turned import turned_objects
from sim.reconstruction.objects import Scanned
from sim.reconstruction.pipeline import Reconstruction, reconstruct
from sim.reconstruction.verify import verify
from sim.reconstruction.write_scene import SceneChoice, write_reconstructed
from tests.sim.reconstruction.turning import begin, in_gripper, on_turntable
from tests.sim.reconstruction.worlds import T_TABLE_BASE, Thing, World, draw

TURNED, HELD, BARE = "turned", "held", "bare"
SETS = (
    CaptureSet(TURNED, "side", "object", object="concave_1"),
    CaptureSet(HELD, "side", "object", object="bar", object_on="flange"),
    CaptureSet(BARE, "side", "object", object_on="flange"),
)
# Longer one way than the other, with a foot: what is up and what is down can be told.
BAR = Thing(
    "bar",
    "concave",
    (
        ("box", (0.035, 0.012, 0.012), (0.0, 0.0, 0.012)),
        ("box", (0.010, 0.012, 0.014), (0.02, 0.0, 0.036)),
    ),
    (0.0, 0.0, 0.0),
    (0.8, 0.3, 0.2),
    0.2,
)


@pytest.fixture(scope="module")
def world() -> World:
    return draw(5, ("box", "concave"))


@pytest.fixture(scope="module")
def folder(world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turned") / "capture"
    writer = begin(folder, world, (BAR,), SETS)
    for shot in on_turntable(world.things[1], 14):
        writer.add(TURNED, shot.picture, shot.depth)
    for name, empty in ((HELD, False), (BARE, True)):
        for shot in in_gripper(BAR, 14, empty=empty):
            T = inverse(T_TABLE_BASE) @ shot.T_table_carrier
            mask = None if empty else shot.mask
            writer.add(name, shot.picture, shot.depth, mask=mask, T_base_tool=T)
    return folder


@pytest.fixture(scope="module")
def found(folder: Path) -> Reconstruction:
    return reconstruct(read_capture(folder))


def kept(capture: Capture, *sets: str, per_set: int = 99) -> Capture:
    """The capture with these sets besides the scan, and so many pictures of each."""
    names = ("scan", *sets)
    config = dataclasses.replace(
        capture.config, sets=tuple(s for s in capture.config.sets if s.name in names)
    )
    frames = tuple(f for f in capture.frames if f.set.name in names and f.row < per_set)
    return dataclasses.replace(capture, config=config, frames=frames)


def off_m(thing: Thing, vertices: np.ndarray) -> np.ndarray:
    """Distance of a surface in any frame from that of a thing, wherever that stands [m]."""
    seen = thing.surface(np.random.default_rng(0), 3000)
    T = inverse(align(Surface(seen), Surface(vertices), upright=False).T)
    return np.abs(thing.distance(vertices @ T[:3, :3].T + T[:3, 3]))


def test_an_object_on_a_turntable_stands_where_the_scan_shows_it(
    found: Reconstruction, world: World
) -> None:
    thing = world.things[1]
    body = next(b for b in found.bodies if b.name == thing.name)
    at = body.vertices @ body.T_table_body[:3, :3].T + body.T_table_body[:3, 3]
    assert np.abs(thing.distance(at)).mean() < 0.001
    assert body.volume_m3 == pytest.approx(thing.volume, rel=0.12)
    assert body.unseen_share < 0.02
    assert body.mass.source == "drawn"
    assert body.texture is not None
    assert body.texture.seen > 0.6
    note = next(n for n in found.notes if n.startswith(thing.name))
    assert "12 pictures of it on a turntable" in note
    assert "mm from what the scan saw" in note


def test_an_object_in_a_gripper_is_told_from_the_hand_and_placed_by_guess(
    found: Reconstruction, tmp_path: Path
) -> None:
    body = next(b for b in found.bodies if b.name == "bar")
    assert off_m(BAR, body.vertices).mean() < 0.001
    assert body.volume_m3 == pytest.approx(BAR.volume, rel=0.1)
    assumed = {a.what: a.value for a in found.assumed}
    assert assumed["how bar is turned"] == "as a gripper from above holds it"
    assert "where bar stands" in assumed
    assert any(s.startswith("bar: no picture of the table shows it") for s in found.said)
    others = [b for b in found.bodies if b.name != "bar"]
    for b in others:
        away = np.linalg.norm(b.T_table_body[:2, 3] - body.T_table_body[:2, 3])
        assert away > b.radius_m + 0.03
    scene = write_reconstructed(found, SceneChoice(), tmp_path / "cell")
    entry = scene.config.provenance.details["objects"]["bar"]
    assert entry["pictured"] is False
    verified = verify(scene, found.capture)
    by_name = {m.limit.name: m for m in verified.measures}
    pictured = by_name["objects that stand in pictures of the table"]
    assert (pictured.value, pictured.worst, pictured.verdict) == (0.0, "bar", "use with care")
    assert "bar: no picture shows it" in pictured.advice
    # What no picture shows is judged by none, but it must rest.
    assert set(verified.views[0].iou) == {b.name for b in others}
    assert by_name["silhouette of the worst object, IoU"].verdict == "use"
    assert {r.name for r in verified.rested} == {b.name for b in found.bodies}
    assert by_name["objects stay where they were found"].verdict != "refuse"


def test_masks_tell_the_hand_too_and_without_either_nothing_is_invented(folder: Path) -> None:
    capture = kept(read_capture(folder), HELD)
    assert not check_capture(capture).findings
    made, said = turned_objects(capture, capture.frames)
    assert not said
    assert off_m(BAR, made["bar"].scanned.vertices).mean() < 0.0015
    bare = tuple(dataclasses.replace(f, mask_file=None) for f in capture.frames)
    made, said = turned_objects(capture, bare)
    assert not made
    assert "nothing tells the gripper from what it holds" in said[0]


def test_poses_of_the_object_itself_count_first(folder: Path) -> None:
    """Of a turntable that tells its angle, say: no board is needed."""
    capture = kept(read_capture(folder), TURNED)
    made, _ = turned_objects(capture, capture.frames)
    # Seen from the board's middle.
    T = pose(rot_z(0.4), (-0.105, -0.075, 0.0))
    given = {f.name: T @ f.T_table_camera for f in made["concave_1"].frames}
    frames = tuple(
        dataclasses.replace(f, T_world_camera=given[f.name])
        for f in capture.frames
        if f.name in given
    )
    own = dataclasses.replace(
        capture, config=dataclasses.replace(capture.config, board=None), frames=frames
    )
    again, said = turned_objects(own, own.frames)
    assert not said
    first, second = made["concave_1"].scanned, again["concave_1"].scanned
    assert np.ptp(second.vertices[:, 2]) == pytest.approx(np.ptp(first.vertices[:, 2]), abs=0.001)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"board": None}, "only 0 of 14 pictures tell how the object was turned"),
        ({"units": 0.001}, "depth is in other units"),
        ({"few": 5}, r"5 usable picture\(s\) with depth, at least 6"),
        ({"mount": "hand"}, "is not fixed beside the arm"),
        ({"arm": None}, "where camera 'side' stands beside the arm is not known"),
    ],
)
def test_pictures_that_do_not_tell_are_named_and_the_table_is_kept(
    folder: Path, change: dict[str, object], message: str
) -> None:
    name = HELD if {"mount", "arm"} & set(change) else TURNED
    capture = kept(read_capture(folder), name, BARE, per_set=int(change.pop("few", 99)))
    camera = capture.config.cameras["side"]
    if "units" in change:
        depth = dataclasses.replace(camera.depth, scale_m=change.pop("units"))
        change = {"camera": dataclasses.replace(camera, depth=depth)}
    if "mount" in change:
        change = {"camera": dataclasses.replace(camera, mount="hand")}
    if "camera" in change:
        camera = change["camera"]
        change = {"cameras": {**capture.config.cameras, "side": camera}}
    if "arm" in change:
        change["board"] = None
    frames = tuple(
        dataclasses.replace(f, camera=camera) if f.set.camera == "side" else f
        for f in capture.frames
    )
    config = dataclasses.replace(capture.config, **change)
    capture = dataclasses.replace(capture, config=config, frames=frames)
    made, said = turned_objects(capture, capture.frames)
    assert not made
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(said[0])


def test_the_wrong_object_is_not_put_in_place_of_another(
    folder: Path, found: Reconstruction, world: World
) -> None:
    capture = kept(read_capture(folder), TURNED)
    made, _ = turned_objects(capture, capture.frames)
    body = next(b for b in found.bodies if b.name == world.things[0].name)
    T = body.T_table_body
    scanned = Scanned(
        body.name,
        body.vertices @ T[:3, :3].T + T[:3, 3],
        body.faces,
        np.zeros(len(body.vertices), bool),
        0.0,
        0.0015,
    )
    joined = joined_to_scan(made["concave_1"], scanned)
    assert joined.scanned is scanned
    assert not joined.frames
    assert "does not look like what stands on the table" in joined.said[0]


def test_sets_that_name_nothing_are_refused(folder: Path, tmp_path: Path) -> None:
    raw = yaml.safe_load((folder / "capture.yaml").read_text())
    for change, message in (
        ({"object": "barr"}, r"no object 'barr'\. Did you mean 'bar'"),
        ({"object": "", "object_on": "turntable"}, "which object do its pictures show"),
        ({"object_on": "plate"}, "object_on"),
    ):
        sets = [{**s, **change} if s["name"] == HELD else s for s in raw["sets"]]
        (tmp_path / "capture.yaml").write_text(yaml.safe_dump({**raw, "sets": sets}))
        with pytest.raises(ConfigError, match=message):
            read_capture(tmp_path)


def test_a_surface_is_found_again_in_a_part_of_itself() -> None:
    rng = np.random.default_rng(0)
    points = BAR.surface(rng, 4000)
    T = pose(rot_x(np.pi / 2) @ rot_z(1.1), (0.1, 0.2, 0.05))
    moved = points @ T[:3, :3].T + T[:3, 3]
    seen = moved[moved[:, 1] > np.quantile(moved[:, 1], 0.3)]
    found = align(Surface(points), Surface(seen), upright=False)
    at = points @ found.T[:3, :3].T + found.T[:3, 3]
    assert np.linalg.norm(at - moved, axis=1).mean() < 0.002
    # Turned about the vertical only, it cannot lie there.
    assert align(Surface(points), Surface(seen), upright=True).off_m > 0.004


def test_what_was_guessed_of_a_surface_tells_nothing() -> None:
    """A hand shows what a table hides, and hides what the table shows: both are of one thing."""
    rng = np.random.default_rng(0)
    points = BAR.surface(rng, 4000)
    T = pose(rot_z(0.7), (0.1, 0.2, 0.0))
    moved = points @ T[:3, :3].T + T[:3, 3]
    # Of the one its end was not seen, and closed 3 cm beyond; of the other the lower half.
    hidden = points[:, 0] < -0.02
    beyond = points[hidden] - [0.03, 0.0, 0.0]
    low = moved[:, 2] < 0.012
    below = moved[low] + [0.0, 0.02, 0.0]
    model, part = Surface(points[~hidden], beyond), Surface(moved[~low], below)
    found = align(model, part, upright=False)
    assert found.off_m < 0.003
    at = points @ found.T[:3, :3].T + found.T[:3, 3]
    assert np.linalg.norm(at - moved, axis=1).mean() < 0.004
    whole = Surface(np.concatenate([points[~hidden], beyond]))
    assert align(whole, Surface(np.concatenate([moved[~low], below])), upright=False).off_m > 0.0035


def test_the_surface_of_which_more_was_seen_is_kept(folder: Path) -> None:
    made, _ = turned_objects(kept(read_capture(folder), TURNED), read_capture(folder).frames)
    turned = made["concave_1"]
    whole = turned.scanned
    T = pose(rot_z(0.4), (0.1, 0.0, 0.0))
    at = whole.vertices @ T[:3, :3].T + T[:3, 3]
    for share, kept_scan in ((0.0, True), (0.2, False)):
        scanned = dataclasses.replace(whole, vertices=at, unseen_share=share)
        less = dataclasses.replace(turned, scanned=dataclasses.replace(whole, unseen_share=0.1))
        joined = joined_to_scan(less, scanned)
        assert (joined.scanned is scanned) == kept_scan
        assert ("its surface is kept" in joined.notes[0]) == kept_scan
        assert not joined.said
