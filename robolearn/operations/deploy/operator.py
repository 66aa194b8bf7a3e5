"""Describes the person who supervises a deployment, as far as a deployment must know."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from robolearn.errors import ConfigError
from robolearn.types import TrialRecord

log = logging.getLogger(__name__)


@runtime_checkable
class Verdicts(Protocol):
    """What an operator says about the trial that runs."""

    def forget(self) -> None:
        """A new trial begins."""
        ...

    def verdict(self) -> str:
        """``s`` success, ``f`` failure, ``q`` end the trial, "" for nothing, since then."""
        ...


@runtime_checkable
class Attendant(Verdicts, Protocol):
    """Somebody beside a cell, as far as opening it must know: who judges and places."""

    @property
    def judges(self) -> bool:
        """Whether verdicts can come."""
        ...

    @property
    def places(self) -> bool:
        """Whether objects can be placed on request."""
        ...

    def place(self, text: str) -> None:
        """Do what the text says and return when it is done; ConfigError when nobody can."""
        ...

    def told(self, what: str, text: str) -> None:
        """A check that was made, or how a trial went."""
        ...


@runtime_checkable
class Operator(Attendant, Protocol):
    """Somebody who agrees, places, judges and can stop the arm; or a program that stands for it."""

    def consent(self, what: str) -> None:
        """Agree to ``what`` happening; raises ConfigError otherwise."""
        ...

    def listen(self, stop: Callable[[], None]) -> str:
        """From now on ``stop`` may be called, from any thread; returns how, in words."""
        ...

    def ended(self, trial: TrialRecord) -> None:
        """A trial is scored and saved."""
        ...

    def close(self) -> None:
        """Stop listening; safe to call twice."""
        ...


class Unattended:
    """Nobody: a program that has ``agreed`` to an arm moving, a virtual lab's for example. Checks
    are logged.
    """

    judges = False
    places = False
    answers = False

    def __init__(self, *, agreed: bool) -> None:
        self._agreed = agreed

    def consent(self, what: str) -> None:
        """Agree, or raise ConfigError."""
        if not self._agreed:
            raise ConfigError(f"{what}, and nobody agreed to that: give Unattended(agreed=True)")

    def place(self, text: str) -> None:
        """Nobody can."""
        raise ConfigError(f"nobody is there to do this: {text}")

    def choose(self, question: str, answers: Sequence[str]) -> int:
        """Nobody can."""
        raise ConfigError(f"nobody is there to answer: {question} ({', '.join(answers)})")

    def remark(self, question: str) -> str:
        """Nobody says anything."""
        del question
        return ""

    def listen(self, stop: Callable[[], None]) -> str:
        """Nothing stops the arm but the supervisor."""
        del stop
        return "nobody watches: no emergency stop key, no score key"

    def forget(self) -> None:
        """Nothing."""

    def verdict(self) -> str:
        """None."""
        return ""

    def told(self, what: str, text: str) -> None:
        """Into the log."""
        log.info("%s: %s", what, text)

    def ended(self, trial: TrialRecord) -> None:
        """Into the log."""
        log.info("%s: score %.3f", trial.condition, trial.score)

    def close(self) -> None:
        """Nothing."""
