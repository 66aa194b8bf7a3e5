"""Learning beside an arm: nobody waits, what went wrong is told, an end comes at once."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from robolearn.errors import TrainingError
from robolearn.operations.practice.actors import Flown
from robolearn.operations.practice.beside import LearningBeside


def flown(number: int) -> Flown:
    return Flown(number, "parent", None, 0, False, 0.0, 8, 2, "time_limit", None)


class Slow:
    """Learns for as long as it is held."""

    def __init__(self, error: Exception | None = None) -> None:
        self.go_on, self.began = threading.Event(), threading.Event()
        self.learned: list[list[int]] = []
        self.error = error

    def learn(self, flown: Sequence[Flown]) -> None:
        self.began.set()
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error
        self.learned.append([f.number for f in flown])


def test_what_comes_while_it_is_busy_is_learned_from_together() -> None:
    session = Slow()
    learning = LearningBeside(session, threading.Event())
    learning.add([flown(0)])
    assert session.began.wait(30)
    # Returns although nothing was learned yet.
    learning.add([flown(1)])
    learning.add([flown(2)])
    assert session.learned == []
    session.go_on.set()
    learning.finish()
    assert session.learned == [[0], [1, 2]]


def test_its_error_is_raised_where_it_can_be_answered() -> None:
    session = Slow(TrainingError("not finite"))
    learning = LearningBeside(session, threading.Event())
    learning.add([flown(0)])
    session.go_on.set()
    with pytest.raises(TrainingError, match="not finite"):
        learning.finish()
    learning.stop()


def test_a_stop_leaves_what_waits() -> None:
    session, hurry = Slow(), threading.Event()
    learning = LearningBeside(session, hurry)
    learning.add([flown(0)])
    assert session.began.wait(30)
    learning.add([flown(1)])
    session.go_on.set()
    hurry.set()
    learning.stop()
    assert session.learned == [[0]]
