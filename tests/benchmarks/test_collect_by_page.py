"""A collection that nobody attends, by a scripted person at the page."""

import pytest

from tests.benchmarks.collect_by_page import run, waits
from tests.hardware.teleop.page_operator import PageOperator


def test_the_person_waits_for_the_program_not_for_the_arm():
    person = PageOperator(lambda number: None, 20.0)
    person.pressed = [(0.0, "start"), (9.0, "keep"), (20.0, "discard")]
    person.phases = [(0.1, "running"), (8.0, "review"), (9.2, "resetting"), (12.2, "ready")]
    saving, moving = waits(person)
    assert saving == pytest.approx([0.2])
    assert moving == pytest.approx([3.0])


@pytest.mark.slow
def test_every_episode_is_kept(tmp_path):
    found = run(tmp_path / "store", 2, "pick_place_ur5e")
    assert (found["episodes kept"], found["episodes lost"], found["successes"]) == (2, 0, 2)
    assert found["save to next [s]"]["max"] < 5.0
