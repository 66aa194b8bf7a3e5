"""What ``deploy`` adds to a cell: who places the objects, who scores, the hold at the end."""

from __future__ import annotations

import logging
import sys
import time
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from hardware.emulators.admin import LabClient
from hardware.real_env import Scorer
from robolearn.cli.deploy_keys import Keys
from robolearn.errors import ConfigError, RobotError
from robolearn.pusht import BLOCK
from robolearn.types import Condition, EpisodeHeader, Outcome, Signals, Tick
from sim.tasks.pusht import PushT

log = logging.getLogger(__name__)


@runtime_checkable
class Holding(Protocol):
    """An env that can brake and stand still."""

    def hold(self) -> None:
        """Brake and hold."""
        ...


class KeyScorer:
    """The operator's verdict (keys s, f, q) over that of ``scorer``; without one, the only one."""

    def __init__(self, scorer: Scorer | None, keys: Keys) -> None:
        self._scorer, self._keys = scorer, keys

    def reset(self) -> None:
        """Forget the last episode and its keys."""
        self._keys.forget()
        if self._scorer is not None:
            self._scorer.reset()

    def judge(self, values: Signals) -> Outcome:
        """The key if one was pressed, else the scorer's verdict."""
        now = Outcome(success=False, progress=0.0, reward=0.0)
        if self._scorer is not None:
            now = self._scorer.judge(values)
        key = self._keys.verdict()
        if key == "s":
            return Outcome(True, 1.0, 1.0, terminal=True, reason="success", metrics=now.metrics)
        if key in ("f", "q"):
            return Outcome(
                success=now.success if key == "q" else False,
                progress=now.progress,
                reward=now.reward,
                truncated=True,
                reason="operator" if key == "q" else "failure",
                metrics=now.metrics,
            )
        return now


class LabScorer:
    """Scores by the lab's true pose of the block; the policy never sees it."""

    def __init__(self, lab: LabClient, name: str) -> None:
        self._lab, self._name, self._task = lab, name, PushT()

    def reset(self) -> None:
        """Forget the last episode."""
        self._task.reset()

    def judge(self, values: Signals) -> Outcome:
        """Judge the true pose instead of the tracked one."""
        del values
        return self._task.judge({BLOCK: self._lab.truth().poses[self._name]})


@dataclass(frozen=True, slots=True)
class LabPlacement:
    """Places the block through the lab's side door, as a person's hand would."""

    lab: LabClient
    name: str

    def __call__(self, condition: Condition) -> str:
        """Put the block where the condition wants it."""
        x, y, yaw = condition.poses[BLOCK]
        deadline = time.monotonic() + 5.0
        while True:
            try:
                self.lab.place(self.name, (x, y, yaw))
            except RobotError:
                # The lab refuses a hand in the cell until the arm has come to rest.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
            else:
                return "placed by the lab"


@dataclass(frozen=True, slots=True)
class PromptPlacement:
    """Asks the operator to place the block."""

    ask: bool
    keys: Keys | None = None

    def __call__(self, condition: Condition) -> str:
        """Wait for the operator."""
        x, y, yaw = condition.poses[BLOCK]
        text = f"place the block at x {x:.3f} m, y {y:.3f} m, {np.degrees(yaw):.0f} deg"
        if not self.ask:
            return "taken as it lies (--yes)"
        print(f"{text}, step back, then press Enter: ", end="", file=sys.stderr, flush=True)
        entered = sys.stdin.readline() if self.keys is None else self.keys.wait_enter()
        if not entered:
            raise ConfigError("there is no terminal to answer from; pass --yes")
        return "placed by the operator"


class HoldAtEnd:
    """A subscriber that lets the arm rest before anything slow (saving, plotting) happens."""

    def __init__(self, env: Holding) -> None:
        self._env = env

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing."""

    def on_tick(self, tick: Tick) -> None:
        """Nothing."""

    def on_end(self, outcome: Outcome) -> None:
        """Brake and hold."""
        del outcome
        self._env.hold()

    def on_abort(self, error: BaseException) -> None:
        """Brake and hold, unless a stop is latched already."""
        try:
            self._env.hold()
        except RobotError as second:
            log.info("no hold after '%s': %s", error, second)
