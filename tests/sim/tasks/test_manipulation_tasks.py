"""Manipulation tasks judged on made-up signals, and the starts they draw."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shapely.geometry import Polygon

from robolearn.errors import DataError, SceneError
from sim.tasks.contract import Task
from sim.tasks.drawer import CABINET, OPENING, Drawer
from sim.tasks.insertion import BLOCK_HEIGHT_M, HOLE, PEG, PEG_LENGTH_M, Insertion
from sim.tasks.manipulation import GOAL, Footprint, heading, level_pose, overlap, tilt, within
from sim.tasks.pick_place import CUBE, PickPlace
from sim.tasks.play_table import SUBGOALS, WANTED, PlayTable, achieved
from sim.tasks.registry import TASKS, build_task, derived_signal
from sim.tasks.stacking import GREEN, RED, SIDE_M, Stacking

AREA, BOUNDS = ((-0.15, 0.15), (-0.22, 0.22)), ((-0.35, 0.35), (-0.45, 0.45))
TASKS_HERE: list[Task] = [
    PickPlace(AREA, BOUNDS),
    Stacking(AREA, BOUNDS),
    Drawer(((0.1, 0.18), (-0.15, 0.15)), (-0.4, 0.4)),
    Insertion(AREA, BOUNDS, 0.0005),
    PlayTable(AREA, BOUNDS),
]


def values(*, tool=(0.0, 0.0, 0.3), width=0.08, **objects):
    """Signals: ``cube=(x, y, z)`` or a whole pose, ``drawer=(opening,)``."""
    out = {"tool/pose": np.array([*tool, 0.0, 1.0, 0.0, 0.0]), "gripper/width": np.array([width])}
    for name, value in objects.items():
        signal = "drawer/opening" if name == "drawer" else f"{name}/pose"
        full = value if len(value) != 3 else (*value, 1.0, 0.0, 0.0, 0.0)
        out[signal] = np.array(full, dtype=np.float64)
    return out


angles = st.floats(-10.0, 10.0)


@given(angles)
def test_level_poses_keep_their_heading(yaw):
    pose = level_pose(0.1, 0.2, 0.3, yaw)
    assert pose[3] >= 0.0
    assert math.isclose(math.remainder(heading(pose) - yaw, 2 * math.pi), 0.0, abs_tol=1e-9)
    assert tilt(pose) < 1e-6
    point = within(np.array(pose), np.array([0.1 + math.cos(yaw), 0.2 + math.sin(yaw), 0.5]))
    assert np.allclose(point, [1.0, 0.0, 0.2])


sides = st.floats(0.01, 0.2)
places = st.tuples(st.floats(-0.2, 0.2), st.floats(-0.2, 0.2), angles)


@given(sides, sides, places, sides, sides, places)
def test_rectangles_overlap_when_their_polygons_do(ax, ay, a_at, bx, by, b_at):
    a = Footprint(ax, ay, 0.02, -0.01).corners(level_pose(a_at[0], a_at[1], 0.0, a_at[2]))
    b = Footprint(bx, by).corners(level_pose(b_at[0], b_at[1], 0.0, b_at[2]))
    area = Polygon(a).intersection(Polygon(b)).area
    if area > 1e-9:
        assert overlap(a, b)
    elif Polygon(a).distance(Polygon(b)) > 1e-9:
        assert not overlap(a, b)


@pytest.mark.parametrize("task", TASKS_HERE, ids=lambda t: t.name)
def test_starts_are_apart_and_functions_of_their_seed(task):
    seen = set()
    for seed in range(200):
        condition = task.sample_condition(seed)
        assert condition == task.sample_condition(seed)
        task.check({n: np.array(p) for n, p in condition.poses.items()})
        seen.add(tuple(condition.poses.items()))
        for name, pose in condition.poses.items():
            if len(pose) == 7:
                assert math.isclose(np.linalg.norm(pose[3:]), 1.0, abs_tol=1e-9), name
    assert len(seen) == 200


def test_registered_tasks_are_these():
    for task in TASKS_HERE:
        assert TASKS.find(task.name) is type(task)
        assert isinstance(task, Task)
        assert task.max_steps > 0


def test_unusable_parameters_are_explained():
    with pytest.raises(SceneError, match=r"task.params: area must be"):
        build_task("stacking", {"area": [[0.1, 0.1], [0.0, 1.0]], "bounds": BOUNDS})
    with pytest.raises(SceneError, match="bound"):
        build_task("stacking", {"area": AREA, "bound": BOUNDS})
    tiny = Stacking(((0.0, 0.01), (0.0, 0.01)), BOUNDS)
    with pytest.raises(DataError, match="no room for"):
        tiny.sample_condition(0)


def test_objects_in_each_other_are_refused():
    task = Stacking(AREA, BOUNDS)
    poses = {RED: level_pose(0.0, 0.0, 0.02, 0.3), GREEN: level_pose(0.03, 0.0, 0.02, 0.0)}
    with pytest.raises(DataError, match="overlaps"):
        task.check(poses)
    task.check(poses | {RED: level_pose(0.0, 0.0, 0.06, 0.3)})
    peg, hole = level_pose(0.0, 0.0, 0.05, 0.0), level_pose(0.03, 0.0, 0.0, 0.0)
    with pytest.raises(DataError, match="overlaps"):
        Insertion(AREA, BOUNDS, 0.002).check({PEG: peg, HOLE: hole})


def test_picking_and_placing():
    task = PickPlace(AREA, BOUNDS)
    goal = (0.1, 0.1, 0.0)
    start = task.judge(values(cube=(0, 0, 0.02), goal=goal))
    assert (start.success, start.progress, start.reason, start.trouble) == (False, 0.0, "", "")
    held = task.judge(values(tool=(0, 0, 0.1), width=0.04, cube=(0, 0, 0.1), goal=goal))
    assert held.progress == pytest.approx(0.5)
    there = (0.1, 0.1, 0.02)
    over = task.judge(values(tool=there, width=0.04, cube=there, goal=goal))
    assert held.progress < over.progress < 1.0
    moving = task.judge(values(cube=(0.102, 0.1, 0.02), goal=goal))
    assert not moving.success
    done = task.judge(values(cube=(0.102, 0.1, 0.02), goal=goal))
    assert (done.success, done.terminal, done.progress, done.reason) == (True, True, 1.0, "success")
    task.reset()
    assert not task.judge(values(cube=there, goal=goal)).success


def test_a_box_of_other_sides_is_judged_by_them():
    """A wide box held over its square is not let go where a cube's fingers would be open."""
    task = PickPlace(AREA, BOUNDS, sizes_m={CUBE: [0.09, 0.055, 0.044]})
    goal, there = (0.1, 0.1, 0.0), (0.1, 0.1, 0.022)
    held = values(tool=there, width=0.055, cube=there, goal=goal)
    assert not any(task.judge(held).success for _ in range(3))
    # Across its longer side: between fingers that open wider than ours.
    turned = values(tool=there, width=0.09, cube=level_pose(*there, math.pi / 2), goal=goal)
    assert not any(task.judge(turned).success for _ in range(3))
    for height, success in ((0.022, True), (0.03, False)):
        task.reset()
        lies = values(width=0.08, cube=(0.1, 0.1, height), goal=goal)
        assert [task.judge(lies).success for _ in range(2)] == [False, success]
    assert task.sample_condition(3).poses[CUBE][2] == 0.022
    sides = ([0.06, 0.05], [0.06, 0.0, 0.05], ["a", 1, 1], 0.05, [float("nan"), 1, 1])
    for wrong in (
        {},
        {"box/pose": [1, 1, 1]},
        [0.06, 0.05, 0.04],
        "big",
        *({CUBE: s} for s in sides),
    ):
        with pytest.raises(SceneError, match="expected the three sides"):
            build_task("pick_place", {"area": AREA, "bounds": BOUNDS, "sizes_m": wrong})


def test_troubles_are_named_and_mended():
    task = PickPlace(AREA, BOUNDS)
    goal = (0.1, 0.1, 0.0)
    closed = values(tool=(0.02, 0, 0.02), width=0.001, cube=(0, 0, 0.02), goal=goal)
    assert task.judge(closed).trouble == "missed_grasp"
    lifted = values(tool=(0, 0, 0.1), width=0.04, cube=(0, 0, 0.1), goal=goal)
    assert task.judge(lifted).trouble == ""
    opened = values(tool=(0, 0, 0.1), width=0.08, cube=(0, 0, 0.05), goal=goal)
    assert task.judge(opened).trouble == "dropped"
    assert task.judge(lifted).trouble == ""
    gone = task.judge(values(cube=(0.5, 0, 0.02), goal=goal))
    assert (gone.terminal, gone.success, gone.reason) == (True, False, "out_of_reach")
    assert {"missed_grasp", "dropped", "out_of_reach"} == set(task.failures)


def test_stacking():
    task = Stacking(AREA, BOUNDS)
    green = (0.1, 0.0, 0.02)
    on = (0.105, 0.0, 0.02 + SIDE_M)
    assert task.judge(values(red=(0, 0, 0.02), green=green)).progress == 0.0
    holding = task.judge(values(tool=on, width=0.04, red=on, green=green))
    assert not holding.success
    assert 0.9 < holding.progress < 1.0
    assert task.judge(values(red=on, green=green)).success
    task.reset()
    task.judge(values(red=(0.13, 0.0, 0.06), green=green))
    assert not task.judge(values(red=(0.13, 0.0, 0.06), green=green)).success


def test_drawer():
    task = Drawer(((0.1, 0.18), (-0.15, 0.15)), (-0.4, 0.4), target_m=0.12)
    cabinet = level_pose(0.15, 0.0, 0.0, 0.3)
    half = task.judge(values(cabinet=cabinet, drawer=(0.06,)))
    assert half.progress == pytest.approx(0.5)
    assert not half.terminal
    miss = task.judge(values(tool=(0.1, 0, 0.07), width=0.0, cabinet=cabinet, drawer=(0.0,)))
    assert miss.trouble == "missed_grasp"
    done = task.judge(values(cabinet=cabinet, drawer=(0.121,)))
    assert (done.success, done.progress, done.terminal) == (True, 1.0, True)
    assert task.judge(values(cabinet=cabinet, drawer=(0.0,))).success
    poses = task.sample_condition(1).poses
    assert set(poses) == {CABINET, OPENING}


def test_insertion():
    task = Insertion(AREA, BOUNDS, clearance_m=0.0005)
    yaw = 0.4
    hole = level_pose(0.1, 0.0, 0.0, yaw)
    stand, full = PEG_LENGTH_M / 2, PEG_LENGTH_M / 2 + BLOCK_HEIGHT_M

    def peg(z, dx=0.0):
        return level_pose(0.1 + dx, 0.0, z, yaw)

    assert task.judge(values(peg=(-0.1, 0, stand), hole=hole)).progress == 0.0
    above = task.judge(
        values(tool=(0.1, 0, full + 0.04), width=0.03, peg=peg(full + 0.01), hole=hole)
    )
    assert 0.4 < above.progress <= 0.5
    half = task.judge(values(peg=peg(full - 0.02), hole=hole))
    assert half.progress == pytest.approx(0.5 + 0.49 * 0.5)
    assert half.metrics["depth_m"] == pytest.approx(0.02)
    beside = task.judge(values(peg=peg(full - 0.02, dx=0.01), hole=hole))
    assert beside.metrics["depth_m"] == 0.0
    for _ in range(45):
        stuck = task.judge(values(peg=peg(full - 0.02), hole=hole))
    assert stuck.trouble == "jammed"
    done = task.judge(values(peg=peg(full - 0.041), hole=hole))
    assert (done.success, done.reason, done.trouble) == (True, "success", "")
    task.reset()
    fallen = (0.0, 0.0, 0.015, math.cos(0.8), math.sin(0.8), 0.0, 0.0)
    assert task.judge(values(peg=fallen, hole=hole)).trouble == "dropped"


def test_goal_signal_has_the_conventional_name():
    assert (GOAL, CUBE) == ("goal/pose", "cube/pose")


def play(wanted=(1.0,) * 5, **changed):
    now = {"drawer": 0.0, "slider": 0.0, "button": 0.0, "red": (0.0, 0.0, 0.02)} | changed
    out = values(
        red=now["red"],
        green=now.get("green", (0.1, 0, 0.02)),
        blue=(-0.1, 0, 0.02),
        tray=(0, 0.3, 0),
    )
    out["drawer/opening"] = np.array([now["drawer"]])
    out["slider/opening"] = np.array([now["slider"]])
    out["button/depth"] = np.array([now["button"]])
    out["goal/wanted"] = np.array(wanted)
    out["goal/achieved"] = achieved(out)
    return out


def test_sub_goals_are_read_from_signals():
    assert play()["goal/achieved"].tolist() == [0, 0, 0, 0, 0]
    assert play(drawer=0.13)["goal/achieved"].tolist() == [1, 0, 0, 0, 0]
    assert play(slider=0.13)["goal/achieved"].tolist() == [0, 1, 0, 0, 0]
    assert play(button=0.007)["goal/achieved"].tolist() == [0, 0, 1, 0, 0]
    assert play(red=(0.02, 0.31, 0.02))["goal/achieved"].tolist() == [0, 0, 0, 1, 0]
    assert play(red=(0.02, 0.31, 0.05))["goal/achieved"].tolist() == [0, 0, 0, 0, 0]
    assert play(green=(-0.1, 0.01, 0.06))["goal/achieved"].tolist() == [0, 0, 0, 0, 1]


def test_wanted_sub_goals_count_once_and_stay_reached():
    task = PlayTable(AREA, BOUNDS)
    wanted = (1.0, 0.0, 1.0, 0.0, 0.0)
    assert task.judge(play(wanted, slider=0.13)).progress == 0.0
    pressed = task.judge(play(wanted, slider=0.13, button=0.008))
    assert (pressed.progress, pressed.reward, pressed.success) == (0.5, 1.0, False)
    # The slider stood there from the start, and nobody asked for it.
    assert pressed.metrics["reached_slider_right"] == 0.0
    sprung = task.judge(play(wanted, slider=0.13))
    assert (sprung.progress, sprung.reward) == (0.5, 0.0)
    done = task.judge(play(wanted, slider=0.13, drawer=0.13))
    assert (done.progress, done.success, done.terminal, done.reason) == (1.0, True, True, "success")
    assert done.metrics["reached"] == 2.0


def test_play_has_no_end():
    task = PlayTable(AREA, BOUNDS)
    nothing = (0.0,) * 5
    task.judge(play(nothing))
    outcome = task.judge(
        play(
            nothing,
            drawer=0.13,
            slider=0.13,
            button=0.008,
            red=(0, 0.3, 0.02),
            green=(-0.1, 0, 0.06),
        )
    )
    assert outcome.progress == 1.0
    assert not outcome.success
    assert not outcome.terminal


def test_goals_are_ones_and_zeros():
    task = PlayTable(AREA, BOUNDS)
    condition = task.sample_condition(3)
    assert condition.poses[WANTED] == (1.0,) * len(SUBGOALS)
    task.check(condition.poses)
    with pytest.raises(DataError, match="goal/wanted has a 1"):
        task.check({**condition.poses, WANTED: (0.5, 0.0, 0.0, 0.0, 0.0)})


def test_derived_signals_belong_to_a_task():
    assert derived_signal("play_table", "goal/achieved", "here") is achieved
    with pytest.raises(SceneError, match=r"derives no signal 'goal/achieves'\. Did you mean"):
        derived_signal("play_table", "goal/achieves", "here")
    with pytest.raises(SceneError, match=r"'pusht' derives no signal .* It derives: \[\]"):
        derived_signal("pusht", "goal/achieved", "here")
