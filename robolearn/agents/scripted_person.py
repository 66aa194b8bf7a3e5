"""Stands in for a person who corrects a policy: an expert behind a rule for when to touch.

    policy drives, no progress for a while  --reaction-->  touches: the expert drives
    expert drives, far enough again         --reaction-->  lets go: the policy drives

It sees what an operator beside the cell sees, how the task goes, and so must be among the
subscribers of the episodes that it is to watch. Everything is drawn from the episode's seed.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

from robolearn.agents.take_over import Touch
from robolearn.contracts import Agent
from robolearn.errors import ConfigError
from robolearn.seeding import child_seed
from robolearn.types import (
    Command,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyInput,
    PolicyOutput,
    Signals,
    Tick,
)

SOURCE = "operator:scripted"


@dataclass(frozen=True, slots=True)
class PatienceConfig:
    """When a scripted person takes over and hands back."""

    # The policy is lost if its progress has no new best for so long [s].
    patience_s: float = 3.0
    # What counts as a new best.
    gain: float = 0.02
    # So much more progress than the policy had made is enough to hand back.
    enough: float = 0.3
    # Mean time from seeing to doing; each one is drawn from half to one and a half of it [s].
    reaction_s: float = 0.4

    def __post_init__(self) -> None:
        for name in ("patience_s", "gain", "enough", "reaction_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ConfigError(f"scripted person: {name} must be at least 0, got {value}")


class ScriptedPerson:
    """``expert`` corrects; a :class:`~robolearn.agents.take_over.Person`, and a subscriber."""

    def __init__(self, expert: Agent, config: PatienceConfig = PatienceConfig()) -> None:
        self._expert, self._config = expert, config
        self.reset(0)

    @property
    def name(self) -> str:
        """``operator:<expert>``."""
        return f"operator:{self._expert.name}"

    def reset(self, seed: int) -> None:
        """Nothing has been seen; the next episode is drawn from ``seed``."""
        self._seed, self._corrections = seed, 0
        self._rng = np.random.default_rng(child_seed(seed, "person"))
        self._holds = False
        self._progress = self._best = 0.0
        self._best_ns: int | None = None
        self._wanted = math.inf
        self._due_ns: int | None = None

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def touched(self, observation: Observation) -> Touch:
        """Takes the device in hand when the policy is lost, lets go when it is no more."""
        now_ns = observation.t_ns
        if self._best_ns is None:
            self._best_ns = now_ns
        if self._progress > self._best + self._config.gain:
            self._best, self._best_ns = self._progress, now_ns
        if self._done() if self._holds else self._lost(now_ns):
            if self._due_ns is None:
                self._due_ns = now_ns + self._reaction_ns()
            if now_ns >= self._due_ns:
                self._change(now_ns)
                return Touch(1.0) if self._holds else Touch(wish="hand_back")
        else:
            self._due_ns = None
        return Touch(1.0 if self._holds else 0.0)

    def latch(self, observation: Observation, sent: Signals) -> None:
        """The expert looks at how things stand, and begins."""
        del observation, sent
        self._corrections += 1
        self._expert.reset(child_seed(self._seed, "correction", self._corrections))

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """What the expert does."""
        del reply
        command = self._expert.decide(observation, None)
        # Who still thinks corrects nothing.
        source = SOURCE if command.source != "hold" else "hold"
        return dataclasses.replace(command, source=source)

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing to see yet."""

    def on_tick(self, tick: Tick) -> None:
        """How the task goes."""
        self._progress = tick.outcome.progress

    def on_end(self, outcome: Outcome) -> None:
        """Nothing more to see."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing more to see."""

    def _lost(self, now_ns: int) -> bool:
        since = now_ns if self._best_ns is None else self._best_ns
        return now_ns - since >= round(1e9 * self._config.patience_s)

    def _done(self) -> bool:
        return self._progress >= self._wanted

    def _reaction_ns(self) -> int:
        return round(1e9 * self._config.reaction_s * float(self._rng.uniform(0.5, 1.5)))

    def _change(self, now_ns: int) -> None:
        self._holds = not self._holds
        self._due_ns = None
        # More than this the task may not have to give before it is solved.
        self._wanted = min(self._best + self._config.enough, 0.95)
        # Who drives now gets as much patience as the one before.
        self._best, self._best_ns = self._progress, now_ns
