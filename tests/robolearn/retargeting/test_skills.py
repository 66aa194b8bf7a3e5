"""Skills are found where objects are taken and let go; what varies does not matter."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

from robolearn.errors import ConfigError, DataError
from robolearn.geometry import quat_from_rotation, quat_multiply, rot_x, rot_z
from robolearn.retargeting.skills import TABLE, Seen, SkillRule, find_skills, turning

NEAR_M = 0.05
DOWN = quat_from_rotation(rot_x(math.pi))


def rows(places: np.ndarray, yaw: float = 0.0, *, down: bool = False) -> np.ndarray:
    q = quat_from_rotation(rot_z(yaw))
    q = quat_multiply(q, DOWN) if down else q
    return np.concatenate([places, np.tile(q, (len(places), 1))], axis=1)


def carry(
    goal: tuple[float, float] = (0.3, 0.0), *, grip: float = 0.0, goal_yaw: float = 0.0
) -> Seen:
    """Down to the cube at the origin, up, over to the goal, down, let go, up."""
    corners = [
        (0, 0, 0.2),
        (0, 0, 0),
        (0, 0, 0),
        (0, 0, 0.2),
        (*goal, 0.2),
        (*goal, 0),
        (*goal, 0.2),
    ]
    legs = [np.linspace(a, b, 10, endpoint=False) for a, b in itertools.pairwise(corners)]
    tool = np.concatenate([*legs, [corners[-1]]])
    cube = tool.copy()
    cube[:20] = cube[20]
    cube[50:] = cube[50]
    fixed = np.tile([*goal, 0.0], (len(tool), 1))
    fingers = np.where((np.arange(len(tool)) > 12) & (np.arange(len(tool)) < 50), 0.02, 0.08)
    objects = {"cube/pose": rows(cube, grip), "goal/pose": rows(fixed, goal_yaw)}
    return Seen(rows(tool, grip, down=True), objects, fingers)


def test_a_carried_object_gives_two_skills() -> None:
    cube, goal = find_skills(carry(), NEAR_M)
    assert (cube.object, cube.held) == ("cube/pose", "")
    assert (goal.object, goal.held) == ("goal/pose", "cube/pose")
    assert abs(cube.event - 20) <= 1
    assert abs(goal.event - 50) <= 1
    # Near the cube and near the goal; the last skill takes the rest.
    assert 5 <= cube.start < 12 < 20 < cube.stop <= 25
    assert 45 <= goal.start < goal.stop == 61


def test_an_object_put_nowhere_is_put_on_the_table() -> None:
    seen = carry()
    far = {**seen.objects, "goal/pose": seen.objects["goal/pose"] + [1.0, *[0.0] * 6]}
    _, place = find_skills(dataclasses.replace(seen, objects=far), NEAR_M)
    assert (place.object, place.held) == (TABLE, "cube/pose")


def test_without_a_carry_fingers_count_and_without_fingers_it_is_one_skill() -> None:
    seen = carry()
    cabinet = {"cabinet/pose": seen.objects["goal/pose"]}
    (one,) = find_skills(dataclasses.replace(seen, objects=cabinet), NEAR_M)
    assert (one.object, one.held, one.stop) == ("cabinet/pose", "", 61)
    (whole,) = find_skills(dataclasses.replace(seen, objects=cabinet, fingers=None), NEAR_M)
    assert whole.event == 60
    with pytest.raises(DataError, match="no object's pose"):
        find_skills(dataclasses.replace(seen, objects={}), NEAR_M)


def test_a_person_says_what_belongs_to_what() -> None:
    rules = [SkillRule("cube/pose"), SkillRule("", "release"), SkillRule("goal/pose", "end")]
    found = find_skills(carry(), NEAR_M, rules)
    assert [(s.object, s.held) for s in found] == [
        ("cube/pose", ""),
        (TABLE, "cube/pose"),
        ("goal/pose", ""),
    ]
    with pytest.raises(DataError, match=r"\['mug/pose'\] are no objects here"):
        find_skills(carry(), NEAR_M, [SkillRule("mug/pose")])
    with pytest.raises(DataError, match="no grasp after tick 20"):
        find_skills(carry(), NEAR_M, [SkillRule("cube/pose"), SkillRule("cube/pose")])
    with pytest.raises(ConfigError, match="grasp, release or end, got 'touch'"):
        SkillRule("cube/pose", "touch")


def test_attitudes_that_vary_do_not_matter() -> None:
    turns = np.linspace(-0.7, 0.7, 6).tolist()
    varied = [carry(grip=turn) for turn in turns]
    found = turning([(seen, find_skills(seen, NEAR_M)) for seen in varied])
    assert found == {("cube/pose", ""): True, ("goal/pose", "cube/pose"): False}
    aligned = [
        carry(grip=turn, goal_yaw=turn + k % 2 * math.pi / 2) for k, turn in enumerate(turns)
    ]
    assert all(turning([(s, find_skills(s, NEAR_M)) for s in aligned]).values())
    # Too few to tell.
    assert all(turning([(s, find_skills(s, NEAR_M)) for s in varied[:3]]).values())
