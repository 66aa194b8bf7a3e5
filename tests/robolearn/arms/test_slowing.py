"""What slows an arm in numbers and in words."""

import numpy as np
import pytest

from robolearn.arms.models import PANDA, UR5E
from robolearn.arms.slowed_words import slowed_words
from robolearn.arms.slowing import Slowed, slowed_spans
from robolearn.arms.tool_kinematics import ToolKinematics
from robolearn.geometry import pose

UR = ToolKinematics(UR5E, np.eye(4), pose(None, (0.0, 0.0, 0.145)))
BENT = np.array([2.8717, -1.5681, 1.8072, -1.8099, 0.07, -1.8407])
UNBENT = np.array([1.0, 1.0, 1.0, 1.0, -1.0, 1.0])
STRETCHED = np.array([0.0, -1.5, 0.05, -1.2, -1.5708, 0.0])


@pytest.mark.parametrize(
    ("slowed", "q", "words"),
    [
        (Slowed.SINGULARITY, BENT, "near a singularity (wrist 2 at 4 deg)"),
        (Slowed.SINGULARITY, BENT * UNBENT, "near a singularity (wrist 2 at -4 deg)"),
        (Slowed.SINGULARITY, STRETCHED, "near a singularity (elbow at 3 deg)"),
        (
            Slowed.JOINT_LIMIT,
            np.array([*BENT[:5], UR5E.high[5] - 0.1]),
            "before a joint's limit (wrist 3 6 deg from its end)",
        ),
        (Slowed.JOINT_SPEED, BENT, "a joint has its full speed"),
    ],
)
def test_the_joint_that_it_is_about_is_named(slowed, q, words):
    assert slowed_words(slowed, UR, np.asarray(q, dtype=np.float64)) == words


def test_every_shape_of_every_arm_has_words():
    rng = np.random.default_rng(0)
    panda = ToolKinematics(PANDA, np.eye(4), np.eye(4))
    for kinematics in (UR, panda):
        low, high = kinematics.arm.bounds
        for q in (*rng.uniform(low, high, (20, len(low))), np.zeros(len(low)), low, high):
            for slowed in Slowed:
                assert slowed.words in slowed_words(slowed, kinematics, q)


def test_each_lasts_until_the_next_is_told():
    told = [(7, 0), (54, 10), (7, 12), (56, 20), (57, 30), (55, 40)]
    causes, times = zip(*told, strict=True)
    assert slowed_spans(causes, times, 50) == [
        (Slowed.SINGULARITY, 10, 20),
        (Slowed.JOINT_SPEED, 20, 30),
        (Slowed.JOINT_LIMIT, 40, 50),
    ]
    # What was told after the last tick lasted for nothing.
    assert slowed_spans((54,), (60,), 50) == [(Slowed.SINGULARITY, 60, 60)]
    assert slowed_spans((), (), 50) == []
