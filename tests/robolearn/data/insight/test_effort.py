"""What an episode cost the arm and the person, from what was recorded."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from robolearn.data.episode import Episode, EpisodeKind
from robolearn.data.insight.effort import Effort, effort_of, telling, together
from robolearn.data.insight.episode_measures import EVENT
from robolearn.types import SampleBlock
from tests.episodes import small_episode

JOINTS, WRENCH, POSE = "arm/joint_position", "tool/wrench", "tool/pose"


def worn(steps: int = 12) -> Episode:
    """Two joints that go there and back by 1 rad, a tool that goes 2 m along x, a force at 100 Hz
    that rises beyond 50 N twice; a person takes over at tick 4 and again at tick 9.
    """
    episode = small_episode(0, steps)
    swing = np.linspace(0, 1, 7)
    joints = np.stack([np.concatenate([swing, swing[-2:0:-1]]), np.zeros(12)], axis=1)
    pose = np.zeros((steps, 7))
    pose[:, 0] = np.linspace(0, 2, steps)
    pose[:, 3] = 1.0
    force = np.zeros((120, 6))
    force[20:30, 2], force[50, 0], force[60, 3] = 80.0, -60.0, 900.0
    rows = np.arange(steps, dtype=np.int64)

    def block(value: np.ndarray) -> SampleBlock:
        times = np.arange(len(value), dtype=np.int64)
        return SampleBlock(times, value, np.ones(len(value), dtype=np.bool_))

    # It began; a command was clipped, and later it was late.
    events = np.zeros((3, 4))
    events[1:, 0] = 5, 1
    streams = {JOINTS: block(joints), POSE: block(pose), WRENCH: block(force), EVENT: block(events)}
    policy, person = ("policy:p",), ("operator:scripted",)
    return dataclasses.replace(
        episode,
        streams={**episode.streams, **streams},
        view={**episode.view, JOINTS: rows, POSE: rows, WRENCH: rows},
        source=policy * 4 + person * 3 + policy * 2 + person * 3,
    )


def test_ways_forces_and_help_are_counted() -> None:
    found = effort_of(worn())
    assert found.seconds == pytest.approx(1.2)
    assert found.travel_rad == pytest.approx(1.0 + 5 / 6)
    assert found.travel_m == pytest.approx(2.0)
    # A torque is no force.
    assert (found.force_peaks, found.largest_force_n) == (2, 80.0)
    assert (found.take_overs, found.person_steps) == (2, 6)
    assert found.interventions == 2
    assert set(telling([*worn().streams, "top/image"])) >= {JOINTS, WRENCH, POSE, EVENT}
    assert "top/image" not in telling(["top/image"])


def test_of_many_episodes_it_is_the_sum_and_the_largest_force() -> None:
    every = together([effort_of(worn()), Effort(force_peaks=1, largest_force_n=70.0), Effort()])
    assert (every.take_overs, every.force_peaks, every.largest_force_n) == (2, 3, 80.0)
    assert every.interventions == 2
    assert every.travel_rad == pytest.approx(1.0 + 5 / 6)
    assert together([]) == Effort()


@pytest.mark.parametrize(
    ("kind", "taken"), [("online", (1, 8)), ("corrected", (1, 8)), ("demonstration", (0, 0))]
)
def test_who_takes_over_before_the_policy_has_answered_has_taken_over(
    kind: EpisodeKind, taken: tuple[int, int]
) -> None:
    episode = small_episode(steps=12)
    meta = dataclasses.replace(episode.meta, kind=kind)
    source = ("hold",) * 4 + ("human:keyboard",) * 8
    effort = effort_of(dataclasses.replace(episode, meta=meta, source=source))
    assert (effort.take_overs, effort.person_steps) == taken
