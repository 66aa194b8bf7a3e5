"""A collection that nobody attends, by a scripted person at the page."""

import signal

import pytest

from tests.benchmarks.collect_by_page import cut_short, figures, run, waited, waits
from tests.hardware.teleop.page_operator import PageOperator
from tests.waiting import pass_time


def test_the_person_waits_for_the_program_not_for_the_arm():
    person = PageOperator(lambda number: None, 20.0)
    person.pressed = [(0.0, "start"), (9.0, "keep"), (20.0, "discard")]
    person.phases = [(0.1, "running"), (8.0, "review"), (9.2, "resetting"), (12.2, "ready")]
    saving, moving = waits(person)
    assert saving == pytest.approx([0.2])
    assert moving == pytest.approx([3.0])
    person.saved = [9.6]
    found = waited(person)
    assert [found[f"{what} [s]"]["max"] for what in ("save to next", "save to disk")] == [0.2, 0.6]


def test_a_run_that_is_cut_short_tells_what_there_is_until_then(tmp_path):
    """By SIGTERM, as a time limit does, in the middle of an attempt; the handlers are as before."""
    before = signal.getsignal(signal.SIGTERM)
    person = PageOperator(lambda number: None, 20.0)
    person.pressed = [(9.0, "keep"), (30.0, "keep")]
    person.phases = [(8.0, "review"), (9.2, "resetting"), (12.2, "ready"), (29.0, "review")]
    person.last = {"lost_frames": 0}
    with cut_short(0.0), pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)
    with cut_short(0.001), pytest.raises(KeyboardInterrupt):
        pass_time(10.0, "until the limit ends it")
    assert signal.getsignal(signal.SIGTERM) is before
    found = figures(tmp_path, [], person, cut=True)
    # The second key's episode was about to be saved, the first one's is missing.
    assert (found["episodes lost"], found["cut short"], found["floor holds"]) == (1, True, False)
    assert found["save to next [s]"]["max"] == pytest.approx(0.2)
    assert found["way to the start [s]"]["max"] == pytest.approx(3.0)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "film"), [("pick_place_ur5e", 0), ("", 30)], ids=["sim", "lab"])
def test_every_episode_is_kept(tmp_path, world, film):
    found = run(tmp_path / "store", 2, world, film=film)
    assert (found["episodes kept"], found["episodes lost"], found["successes"]) == (2, 0, 2)
    assert found["save to next [s]"]["max"] < 5.0
