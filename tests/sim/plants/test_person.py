"""A person who carries a camera of the lab, or turns the board before it."""

import contextlib
import dataclasses
import itertools
import math

import numpy as np
import pytest

from hardware.emulators.sensor import CameraEmulatorConfig
from robolearn.calibration.boards import Board, BoardFinder, seen_pose
from robolearn.errors import ConfigError
from robolearn.geometry import inverse, pose, pose_error
from sim.plants.person import Carrying, Person, Walk, stops
from sim.plants.printed import OnFlange, PrintedBoard
from sim.plants.scene import ScenePlantConfig
from sim.plants.scene_look import SceneLook

CARRYING = Carrying((0.0, 0.02, 0.0), still_s=3.0, move_s=1.5)
PERIOD_S = CARRYING.still_s + CARRYING.move_s
BOARD = PrintedBoard(
    Board("charuco", (7, 5), 0.024, 0.018, "5x5_100"), "table", (-0.12, -0.07, 0.002)
)
LIES = np.array([0.06, 0.08, 0.02, 1.0, 0.0, 0.0, 0.0])
POSES = {"cube": LIES, "goal": np.array([0.2, 0.2, 0.0, 1.0, 0.0, 0.0, 0.0])}
AWAY = np.array([-0.2699, -1.5681, 1.8072, -1.8099, -1.5708, -1.8407])


def test_a_walk_stops_trembling_and_goes_on_without_a_jump():
    walk = Walk(CARRYING, 3)
    for k in range(0, 20, 3):
        begins = k * PERIOD_S
        still = [walk.T_table_camera(begins + t, "scan") for t in np.linspace(0.0, 3.0, 7)]
        moved = [pose_error(still[0], T) for T in still[1:]]
        # It trembles, by a millimetre and a tenth of a degree, and never stands quite still.
        assert all(0.0 < away < 0.003 and turned < 0.004 for away, turned in moved)
        T = still[0]
        ahead = np.array([0.0, 0.02, 0.0]) - T[:3, 3]
        aside = np.linalg.norm(np.cross(T[:3, 2], ahead))
        assert aside < 0.05, "it looks at the table's middle"
        assert 0.27 < np.linalg.norm(ahead) < 0.53
        assert T[2, 3] > 0.15
        assert abs(float(np.linalg.det(T[:3, :3])) - 1.0) < 1e-9
    steps = [walk.T_table_camera(2.9 + 0.02 * k, "scan") for k in range(90)]
    fastest = max(pose_error(a, b)[0] for a, b in itertools.pairwise(steps))
    assert 0.001 < fastest < 0.02, "no jump within 20 ms, and it does move"
    np.testing.assert_array_equal(steps[0], Walk(CARRYING, 3).T_table_camera(2.9, "scan"))
    assert pose_error(steps[0], Walk(CARRYING, 4).T_table_camera(2.9, "scan"))[0] > 0.01


def test_stops_follow_each_other():
    assert stops(0.0, CARRYING) == (0, 0.0)
    assert stops(2.9, CARRYING) == (0, 0.0)
    assert stops(3.75, CARRYING) == (0, 0.5)
    assert stops(PERIOD_S, CARRYING) == (1, 0.0)


def test_a_board_is_turned_with_what_stands_on_it():
    person = Person(CARRYING, BOARD, 3)
    person.begin("turntable", "cube", 10_000_000_000)
    at = [person.arranged(10_000_000_000 + round(s * 1e9), POSES) for s in (0.0, 1.0, 4.5, 9.0)]
    still, same, once, twice = at
    np.testing.assert_allclose(still.T_table_board, BOARD.T_where_board, atol=1e-9)
    np.testing.assert_allclose(same.T_table_board, still.T_table_board)
    # The camera lies still meanwhile, and what nobody holds stays where it is.
    np.testing.assert_array_equal(still.T_table_camera, twice.T_table_camera)
    np.testing.assert_array_equal(twice.poses["goal"], POSES["goal"])
    middle = np.array([7 * 0.012, 5 * 0.012, 0.0, 1.0])
    for before, after in ((still, once), (once, twice)):
        away, turned = pose_error(before.T_table_board, after.T_table_board)
        assert turned == pytest.approx(math.radians(27.0))
        assert away > 0.01, "about its middle, not its corner"
        np.testing.assert_allclose(
            before.T_table_board @ middle, after.T_table_board @ middle, atol=1e-9
        )
        q, p = (s.poses["cube"][3:] for s in (before, after))
        assert 2.0 * math.acos(abs(float(q @ p))) == pytest.approx(math.radians(27.0))
    np.testing.assert_allclose(
        still.poses["cube"][:3], [*(BOARD.T_where_board @ middle)[:2], 0.022]
    )
    nobody = Person(None, BOARD, 3).arranged(0, POSES)
    assert (nobody.T_table_camera, nobody.T_table_board) == (None, None)
    assert nobody.poses is POSES


def test_a_person_moves_the_board_to_the_flange_and_puts_a_box_between_the_fingers():
    at = OnFlange((0.0, 0.1, 0.14), (0.0, 1.0, 0.0, 0.0))
    board = dataclasses.replace(BOARD, on_flange=at)
    person = Person(None, board, 3, tool_m=0.15)
    flange = pose(np.diag([1.0, -1.0, -1.0]), (0.1, 0.2, 0.4))
    told = {}
    for doing in ("board_on_table", "board_on_flange", "in_hand", "cleared"):
        person.begin(doing, "cube" if doing == "in_hand" else "", 0)
        told[doing] = person.arranged(0, POSES, flange)
        assert told[doing].T_table_camera is None
    np.testing.assert_allclose(told["board_on_table"].T_table_board, board.T_where_board)
    assert told["board_on_table"].poses is POSES
    fixed = told["board_on_flange"].T_table_board
    np.testing.assert_allclose(fixed, flange @ at.T_flange_board)
    np.testing.assert_allclose(told["in_hand"].poses["cube"][:3], [0.1, 0.2, 0.25], atol=1e-9)
    np.testing.assert_array_equal(told["in_hand"].poses["goal"], POSES["goal"])
    assert told["in_hand"].T_table_board[2, 3] < -10.0
    assert all(p[2] < -10.0 for p in told["cleared"].poses.values() if len(p) == 7)
    person.begin("in_hand", "", 0)
    assert person.arranged(0, POSES, flange).poses is POSES
    with pytest.raises(ConfigError, match="where: table"):
        dataclasses.replace(board, where="flange")
    with pytest.raises(ConfigError, match="quaternion"):
        OnFlange((0.0, 0.0, 0.0), (1.0, 1.0, 0.0, 0.0))


def test_pictures_show_what_the_person_holds():
    """Boards found in pictures against where camera and board are said to be."""
    device = CameraEmulatorConfig(width=320, height=240)
    look = SceneLook(
        ScenePlantConfig("pick_place_ur5e"), "phone", 320, 240, board=BOARD, carried=CARRYING
    )
    person, finder = Person(CARRYING, BOARD, 3), BoardFinder(BOARD.board)
    with contextlib.closing(look) as view:
        truth = view.truth(device.width, device.height)
        assert truth.where == "hand"
        K = truth.K
        for doing, t_s in (("scan", 1.0), ("scan", 6.0), ("lens", 15.0), ("turntable", 5.0)):
            person.begin(doing, "", 0)
            held = person.arranged(round(t_s * 1e9), POSES)
            view.arrange(held.T_table_camera, held.T_table_board)
            seen = finder.find(view.look(AWAY, held.poses, 0.085).picture)
            assert seen is not None, (doing, t_s)
            found = seen_pose(seen, (K[0, 0], K[1, 1]), (K[0, 2], K[1, 2]), ())
            lies = BOARD.T_where_board if held.T_table_board is None else held.T_table_board
            away, turned = pose_error(found, inverse(held.T_table_camera) @ lies)
            assert away < 0.004, (doing, t_s)
            assert turned < 0.03


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"away_m": (0.5, 0.3)}, "away_m"),
        ({"above_deg": (0.0, 40.0)}, "above_deg"),
        ({"tremble_m": math.nan}, "tremble_m"),
        ({"still_s": 0.0}, "above 0 s"),
        ({"fovy_deg": 179.0}, "fovy_deg"),
    ],
)
def test_how_nobody_carries_a_camera(wrong, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(CARRYING, **wrong)


def test_a_camera_that_the_scene_has_is_not_carried():
    with pytest.raises(ConfigError, match="has a camera 'top' already"):
        SceneLook(ScenePlantConfig("pick_place_ur5e"), "top", 32, 24, carried=CARRYING)
