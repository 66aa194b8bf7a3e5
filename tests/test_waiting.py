"""How the tests themselves wait."""

import time

import pytest

from tests import waiting
from tests.waiting import paced, pass_time, wait_for_error, wait_until


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock of the test: sleeping is all that takes time."""
    now = [1_000_000_000]
    monkeypatch.setattr(time, "sleep", lambda seconds: now.append(now[-1] + round(1e9 * seconds)))
    monkeypatch.setattr(time, "monotonic", lambda: 1e-9 * now[-1])
    monkeypatch.setattr(time, "monotonic_ns", lambda: now[-1])
    return now


def test_the_first_truthy_value_is_the_answer():
    values = iter([0, "", None, 7])
    assert wait_until(lambda: next(values)) == 7


def test_what_does_not_come_is_named_after_the_timeout(clock):
    with pytest.raises(AssertionError, match=r"not within 0\.5 s: the arm at rest; last: 0"):
        wait_until(lambda: 0, 0.5, what="the arm at rest")
    assert clock[-1] >= 1_500_000_000


def test_a_condition_is_asked_once_more_after_a_pause_of_the_machine(clock):
    asked = []

    def slow():
        asked.append(1)
        clock.append(clock[-1] + 300_000_000)
        return len(asked) > 1

    assert wait_until(slow, 0.4)


def test_an_error_is_waited_for_by_kind_and_words():
    problems = [None, KeyError("early"), KeyError("late"), ValueError("other")]

    def call():
        problem = problems.pop(0)
        if problem:
            raise problem

    assert str(wait_for_error(call, KeyError, "late")) == "'late'"
    with pytest.raises(ValueError, match="other"):
        wait_for_error(call, KeyError)
    with pytest.raises(AssertionError, match=r"KeyError.*passed over: \[\]"):
        wait_for_error(lambda: None, KeyError)


def test_a_stream_has_absolute_deadlines_and_skips_what_was_missed(clock):
    times = []
    for k in paced(100.0, 5):
        times.append(round(1e-6 * (clock[-1] - 1_000_000_000)))
        if k == 1:
            clock.append(clock[-1] + 25_000_000)
    assert times == [0, 10, 35, 40, 50]
    assert round(1e-6 * (clock[-1] - 1_000_000_000)) == 60
    assert next(iter(paced(50.0))) == 0


def test_time_passes_for_a_reason_only(clock):
    with pytest.raises(AssertionError, match="say why"):
        pass_time(1.0, "")
    pass_time(-1.0, "it is over")
    pass_time(2.0, "nothing may happen")
    assert clock[-1] == 3_000_000_000
    assert waiting.TIMEOUT_S >= 5.0
