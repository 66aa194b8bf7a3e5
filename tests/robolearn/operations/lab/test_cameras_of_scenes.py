"""Cameras of a lab whose workcell a scene draws: what is fixed, and what the flange carries."""

import contextlib
import dataclasses
from pathlib import Path

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.emulators.sensor import CameraEmulatorConfig
from robolearn.arms.models import UR5E
from robolearn.calibration.boards import Board, BoardFinder
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import inverse
from robolearn.operations.lab.cameras import LabCameraConfig, drawing
from robolearn.operations.lab.view import lab_view
from robolearn.operations.lab.workcell import LabConfig, build_plant, load_lab
from robolearn.spec import to_json
from sim.plants.bracket import Bracket
from sim.plants.person import Person
from sim.plants.printed import PrintedBoard

GRIPPER_LAB = Path(__file__).parents[4] / "configs/hardware/lab_ur5e_gripper.yaml"
CONFIG = load_lab(GRIPPER_LAB)
SIZE = CameraEmulatorConfig(width=96, height=72)


def camera(name):
    return LabCameraConfig(SIZE, of_scene=name)


@pytest.fixture(scope="module")
def workcell():
    plant, made = build_plant(CONFIG, 3)
    plant.close()
    return made


def red(picture):
    """How much of the cube is seen, and its mean column and row."""
    r, g, b = (picture[..., k].astype(int) for k in range(3))
    rows, columns = np.nonzero((r > 90) & (r > 2 * g) & (r > 2 * b))
    return len(rows), (columns.mean(), rows.mean()) if len(rows) else (np.nan, np.nan)


def at(x, y, z=0.02):
    return np.array([x, y, z, 1.0, 0.0, 0.0, 0.0])


def test_several_cameras_draw_the_cube_and_the_mounted_one_moves(workcell):
    q = np.array(workcell.home)
    turned = q + np.array([0.25, 0, 0, 0, 0, 0])
    goal = at(-0.1, -0.1, 0.0)
    seen = {}
    for name in ("top", "wrist"):
        with contextlib.closing(drawing(camera(name), workcell)) as view:
            poses = {"cube": at(0.05, 0.05), "goal": goal}
            seen[name] = [
                red(view.look(q, poses, 0.085).picture),
                red(view.look(turned, poses, 0.085).picture),
                red(view.look(q, poses | {"cube": at(0.05, -0.1, 0.1)}, 0.085).picture),
            ]
            wide, closed = (view.look(q, poses, w).picture.astype(int) for w in (0.085, 0.0))
            assert np.abs(wide - closed).max() > 50, "the fingers are drawn where they are"
    assert all(count > 5 for of_one in seen.values() for count, _ in of_one), seen
    # The arm's turn shifts the mounted camera's picture, and nothing but the arm in the other.
    shift = {n: np.linalg.norm(np.subtract(seen[n][0][1], seen[n][1][1])) for n in seen}
    assert shift["top"] < 1.0 < 5.0 < shift["wrist"]
    moved = np.subtract(seen["top"][2][1], seen["top"][0][1])
    assert np.linalg.norm(moved) > 5.0


def test_what_the_cell_says_of_its_lenses_is_what_the_lab_draws():
    file = GRIPPER_LAB.with_name("lab_ur5e_pick_place_camera.yaml")
    lab = load_lab(file)
    plant, made = build_plant(lab, 0)
    plant.close()
    told = {c.stream.name: c.lens for c in load_cell(file).cameras}
    assert set(told) == {"top", "wrist"}
    for config in lab.cameras:
        lens, device = told[config.device.name], config.device
        with contextlib.closing(drawing(config, made)) as view:
            truth = view.truth(device.width, device.height)
        assert truth.where == lens.frame
        np.testing.assert_allclose(lens.K, truth.K, atol=1e-3)
        np.testing.assert_allclose(lens.T_frame_camera, truth.T_where_camera, atol=1e-5)


def test_a_picture_that_is_drawn_at_half_its_size_shows_the_same_at_the_same_place(workcell):
    q, poses = np.array(workcell.home), {"cube": at(0.05, 0.05), "goal": at(-0.1, -0.1, 0.0)}
    seen = []
    for drawn in (1.0, 0.5):
        device = dataclasses.replace(SIZE, width=320, height=240)
        config = LabCameraConfig(device, of_scene="top", drawn=drawn)
        with contextlib.closing(drawing(config, workcell)) as view:
            look = view.look(q, poses, 0.085)
            assert look.picture.shape[:2] == (240 * drawn, 320 * drawn)
            seen.append(config.exposure(0, look).picture)
    whole, half = seen
    assert whole.shape == half.shape == (240, 320, 3)
    np.testing.assert_allclose(red(whole)[1], red(half)[1], atol=0.5)
    assert np.abs(whole.astype(float) - half).mean() < 5.0
    with pytest.raises(ConfigError, match=r"'top': drawn, .* in \[0.1, 1\], got 0.0"):
        dataclasses.replace(camera("top"), drawn=0.0)


def test_what_no_scene_draws_is_refused(workcell):
    with pytest.raises(ConfigError, match=r"no camera 'wirst'\. Did you mean 'wrist'"):
        workcell.require_drawn(camera("wirst"))
    with pytest.raises(ConfigError, match=r"Push-T's table.*name a camera of its scene"):
        workcell.require_drawn(LabCameraConfig(SIZE))
    bare = dataclasses.replace(workcell, scene=None)
    with pytest.raises(ConfigError, match="no scene draws this workcell"):
        bare.require_drawn(camera("top"))


def test_a_board_needs_other_tags_than_the_block_of_push_t():
    board = Board("charuco", (5, 4), 0.03, 0.022)
    raw = {"world": "kinematic", "board": {"board": to_json(board), "where": "flange"}}
    config = from_dict(LabConfig, raw)
    plant, table = build_plant(config, 0)
    plant.close()
    assert table.board == PrintedBoard(board, "flange")
    with pytest.raises(ConfigError, match="give the board another dictionary"):
        table.require_drawn(LabCameraConfig(SIZE))
    other = PrintedBoard(dataclasses.replace(board, dictionary="5x5_100"))
    dataclasses.replace(table, board=other).require_drawn(LabCameraConfig(SIZE))


BOARD = Board("charuco", (5, 4), 0.03, 0.022, "5x5_100")
WHERE = {
    "table": PrintedBoard(
        dataclasses.replace(BOARD, square_m=0.05, marker_m=0.037), "table", (-0.12, -0.1, 0.002)
    ),
    # The fingers point along the flange's z: the board stands beside them and looks down, at the
    # camera of nobody, and from the table at the one above.
    "flange": PrintedBoard(BOARD, "flange", (0.12, -0.06, 0.0), (0.0, 1.0, 0.0, 0.0)),
}


@pytest.mark.parametrize("where", ["table", "flange"])
def test_cameras_of_a_scene_see_a_board_where_it_is(workcell, where):
    """Corners found in the picture against those that the true lens and places project."""
    printed = WHERE[where]
    held = dataclasses.replace(workcell, board=printed)
    device = dataclasses.replace(SIZE, width=640, height=480)
    config = LabCameraConfig(device, of_scene="top", intrinsics="drawn", pose="drawn")
    poses = {"cube": at(0.2, 0.2), "goal": at(0.2, -0.2, 0.0)}
    q = np.array(workcell.home)
    with contextlib.closing(drawing(config, held, 5)) as view:
        truth = view.truth(640, 480)
        found = BoardFinder(printed.board).find(view.look(q, poses, 0.085).picture)
    assert truth.where == "table"
    T_table_board = printed.T_where_board
    if where == "flange":
        T_table_board = inverse(workcell.T_base_table) @ UR5E.fk(q) @ T_table_board
    T_camera_board = inverse(truth.T_where_camera) @ T_table_board
    points = found.points @ T_camera_board[:3, :3].T + T_camera_board[:3, 3]
    pixels = (points / points[:, 2:]) @ truth.K.T
    off = found.pixels - pixels[:, :2]
    assert len(off) >= 8
    assert np.abs(off).max() < 0.5, off.round(2)


def test_a_bracket_carries_a_camera_that_the_scene_does_not_have(workcell):
    """It sees a board on the table where its place on the flange says, from two poses."""
    bracket = Bracket((0.1, 0.0, 0.0), (0.5**0.5, 0.0, 0.0, 0.5**0.5), 50.0)
    device = dataclasses.replace(SIZE, name="eye", width=640, height=480)
    config = LabCameraConfig(device, bracket=bracket, intrinsics="drawn")
    printed = PrintedBoard(BOARD, "table", (0.04, -0.06, 0.002))
    held = dataclasses.replace(workcell, board=printed)
    held.require_drawn(config)
    poses = {"cube": at(0.2, 0.2), "goal": at(0.2, -0.2, 0.0)}
    with contextlib.closing(drawing(config, held, 5)) as view:
        truth = view.truth(640, 480)
        assert truth.where == "flange"
        np.testing.assert_allclose(truth.T_where_camera, bracket.T_where_camera, atol=1e-6)
        for turned in (0.0, 0.15):
            q = np.array(workcell.home) + np.array([turned, 0, 0, 0, 0, 0])
            found = BoardFinder(printed.board).find(view.look(q, poses, 0.085).picture)
            T = inverse(UR5E.fk(q) @ truth.T_where_camera) @ workcell.T_base_table
            T_camera_board = T @ printed.T_where_board
            points = found.points @ T_camera_board[:3, :3].T + T_camera_board[:3, 3]
            pixels = (points / points[:, 2:]) @ truth.K.T
            assert len(found.pixels) >= 8
            assert np.abs(found.pixels - pixels[:, :2]).max() < 0.5
    with pytest.raises(ConfigError, match="'of_scene' or 'bracket'"):
        dataclasses.replace(config, of_scene="top")
    bare = dataclasses.replace(workcell, scene=None)
    with pytest.raises(ConfigError, match="nothing carries a bracket"):
        bare.require_drawn(config)
    top = dataclasses.replace(config, device=dataclasses.replace(device, name="top"))
    with pytest.raises(ConfigError, match="has a camera 'top' already"):
        drawing(top, workcell)
    for wrong in ({"quaternion": (1.0, 1.0, 0.0, 0.0)}, {"fovy_deg": 0.0}):
        with pytest.raises(ConfigError):
            Bracket(**wrong)


def test_the_shipped_lab_shows_its_stand_the_board_on_the_flange_and_the_box_in_the_hand():
    """By the file itself: a person moves the board before a camera that stands beside the table."""
    robot = GRIPPER_LAB.with_name("lab_ur5e_in_hand.yaml")
    lab = load_lab(robot)
    config = next(c for c in lab.cameras if c.device.name == "side")
    plant, held = build_plant(lab, 0)
    plant.close()
    board = held.board
    for doing in ("board_on_table", "board_on_flange", "in_hand", "cleared"):
        held.require_doable(config, doing)
    table = dataclasses.replace(held, board=dataclasses.replace(board, on_flange=None))
    with pytest.raises(DataError, match="nobody can fix a board"):
        table.require_doable(config, "board_on_flange")
    person = Person(config.carried, board, 0, held.tool_length_m)
    poses = {name: np.array(pose) for name, pose in held.objects}
    q = np.array(held.home)
    finder, row = BoardFinder(board.board), {}
    with contextlib.closing(drawing(config, held, 5)) as view:
        assert view.truth(640, 480).where == "table"
        for doing, thing in (("board_on_flange", ""), ("in_hand", ""), ("in_hand", "cube")):
            person.begin(doing, thing, 0)
            there = person.arranged(0, poses, held.T_table_flange(q))
            view.arrange(there.T_table_camera, there.T_table_board)
            picture = view.look(q, there.poses, 0.085).picture
            assert (finder.find(picture) is not None) == (doing == "board_on_flange")
            count, (_, row[thing]) = red(picture)
            assert count > 50
    # The box is higher in the picture between the fingers than on the table.
    assert row["cube"] < row[""] - 60.0


def test_lens_and_place_are_drawn_from_the_seed_and_only_when_asked(workcell):
    def truth(seed, **asked):
        config = dataclasses.replace(camera("wrist"), **asked)
        with contextlib.closing(drawing(config, workcell, seed)) as view:
            return view.truth(96, 72)

    given, lens = truth(1), truth(1, intrinsics="drawn")
    assert given.where == lens.where == "flange"
    np.testing.assert_array_equal(given.T_where_camera, lens.T_where_camera)
    share = lens.K[0, 0] / given.K[0, 0] - 1.0
    assert 1e-4 < abs(share) <= 0.05
    place = truth(1, pose="drawn")
    np.testing.assert_array_equal(given.K, place.K)
    shift = np.abs(place.T_where_camera[:3, 3] - given.T_where_camera[:3, 3])
    assert 1e-4 < shift.max() < 0.018
    other = truth(2, intrinsics="drawn", pose="drawn")
    assert abs(other.K[0, 0] - lens.K[0, 0]) > 1e-3
    np.testing.assert_array_equal(truth(1, intrinsics="drawn").K, lens.K)


def test_the_picture_on_demand_shows_the_cube(workcell):
    with contextlib.closing(lab_view(CONFIG)) as view:
        q = np.array(workcell.home)
        picture = view.draw("perspective", 96, 96, q, {"cube": at(0.0, 0.05)}, 0.085)
    assert red(picture)[0] > 5


def test_what_nobody_can_do_by_hand_is_refused(workcell):
    """And what the shipped lab's person can."""
    shipped = load_lab(GRIPPER_LAB.with_name("lab_ur5e_by_hand.yaml"))
    plant, made = build_plant(shipped, 0)
    plant.close()
    (phone,) = shipped.cameras
    made.require_drawn(phone)
    for doing in ("scan", "lens", "turntable"):
        made.require_doable(phone, doing)
    with pytest.raises(DataError, match=r"'turntabel'\. Did you mean 'turntable'"):
        made.require_doable(phone, "turntabel")
    with pytest.raises(DataError, match=r"'top'.* is fixed: nobody carries it"):
        made.require_doable(camera("top"), "scan")
    with pytest.raises(DataError, match="turns a board that lies on the table"):
        workcell.require_doable(camera("top"), "turntable")
    with pytest.raises(ConfigError, match="carried by a person, so nothing else holds it"):
        dataclasses.replace(phone, of_scene="top")
    bare = dataclasses.replace(workcell, scene=None)
    with pytest.raises(ConfigError, match="nobody a camera"):
        bare.require_drawn(phone)
