"""Lets a person record episodes: start, watch, keep or discard, again.

ready --start--> running --(end | keep | discard)--> [review] --keep--> saved --> ready
  |                                                     +------discard--> ready
  +--quit--> done
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from hardware.teleop.agent import TeleopAgent
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import Key, Phase, TeleopDevice, View
from hardware.teleop.seen import pictures_of, things_of, tool_of
from robolearn.agents.take_over import TakeOver
from robolearn.contracts import Agent, Env, Inference, Subscriber
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec
from robolearn.timing.clocks import Rate
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
    Tick,
)

# Keys that end an attempt, and decide what becomes of it.
_ENDING = ("keep", "discard", "redo", "quit")


@runtime_checkable
class Recorder(Subscriber, Protocol):
    """A recorder that asks before it saves."""

    def keep(self) -> str:
        """Commit the finished episode; its id."""
        ...

    def discard(self) -> None:
        """Forget the finished episode."""
        ...


class AttendedEnv:
    """An env that runs in real time and ends when the operator says so."""

    def __init__(self, inner: Env) -> None:
        self._inner = inner
        self._rate = Rate(inner.spec.rate_hz)
        self.stop = False
        self.measured_hz = 0.0
        self._last_ns = 0

    @property
    def spec(self) -> EmbodimentSpec:
        """Of the simulated env."""
        return self._inner.spec

    @property
    def capabilities(self) -> Capabilities:
        """Those of the simulated env; its clock is simulated time."""
        return self._inner.capabilities

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start an episode; the first tick begins now."""
        report = self._inner.reset(condition, rng)
        self.stop, self.measured_hz, self._last_ns = False, 0.0, 0
        self._rate.restart()
        return report

    def now_ns(self) -> int:
        """Simulated time [ns]."""
        return self._inner.now_ns()

    def observe(self) -> Observation:
        """Of the simulated env."""
        return self._inner.observe()

    def apply(self, command: Command) -> None:
        """To the simulated env."""
        self._inner.apply(command)

    def drain(self) -> SampleBatch:
        """Of the simulated env."""
        return self._inner.drain()

    def advance(self) -> None:
        """Step the physics, then wait for the clock (a real env waits by itself)."""
        self._inner.advance()
        if self._inner.capabilities.faster_than_real_time:
            self._rate.wait()
        now = time.monotonic_ns()
        if self._last_ns:
            hz = 1e9 / (now - self._last_ns)
            self.measured_hz = hz if self.measured_hz == 0 else 0.9 * self.measured_hz + 0.1 * hz
        self._last_ns = now

    def outcome(self) -> Outcome:
        """The task's outcome, or ``operator`` when the person stopped it."""
        outcome = self._inner.outcome()
        if not self.stop or outcome.terminal or outcome.truncated:
            return outcome
        return Outcome(
            success=outcome.success,
            progress=outcome.progress,
            reward=outcome.reward,
            truncated=True,
            reason="operator",
            metrics=outcome.metrics,
        )

    def close(self) -> None:
        """Of the simulated env."""
        self._inner.close()


@dataclass(frozen=True, slots=True)
class SessionConfig:
    """What to record. ``condition`` makes the start of an attempt from its seed."""

    episodes: int
    max_steps: int
    seed: int
    task: str
    env_name: str
    condition: Callable[[int], Condition]
    provenance: Mapping[str, Any] = field(default_factory=dict[str, Any])
    poll_s: float = 0.02
    mapping: MappingConfig = field(default_factory=MappingConfig)


@dataclass(frozen=True, slots=True)
class Corrected:
    """A policy that drives until the person touches the device, and what computes it."""

    policy: Agent
    inference: Inference


class TeleopSession:
    """Runs attempts until ``episodes`` are saved or the person quits; with a policy that is
    ``corrected`` the person takes over from it and hands back.
    """

    def __init__(
        self,
        env: Env,
        device: TeleopDevice,
        recorder: Recorder,
        config: SessionConfig,
        corrected: Corrected | None = None,
    ) -> None:
        self._env = AttendedEnv(env)
        self._device, self._recorder, self._config = device, recorder, config
        self._agent = TeleopAgent(device, env.spec, config.mapping)
        self._driver: Agent = self._agent
        if corrected is not None:
            self._driver = TakeOver(corrected.policy, self._agent, env.spec)
        self._inference = None if corrected is None else corrected.inference
        self._saved: list[str] = []
        self._decided: Key | None = None
        self._outcome: Outcome | None = None
        self._best, self._steps = 0.0, 0
        self._note = ""

    def run(self) -> tuple[str, ...]:
        """Ids of the saved episodes."""
        attempt = 0
        while len(self._saved) < self._config.episodes:
            condition = self._config.condition(child_seed(self._config.seed, "attempt", attempt))
            attempt += 1
            if not self._attempt(condition):
                break
        count = len(self._saved)
        self._show("done", f"{count} episode{'s' if count != 1 else ''} saved.")
        return tuple(self._saved)

    def on_start(self, episode: EpisodeHeader) -> None:
        """The loop begins."""
        del episode

    def on_tick(self, tick: Tick) -> None:
        """Show the tick, and let keys stop the episode."""
        self._steps = tick.index + 1
        self._take(tick.outcome)
        for key in self._device.pressed():
            if key in _ENDING and not self._env.stop:
                self._decided, self._env.stop = key, True
            self._agent.press(key)
        self._show("running")

    def on_end(self, outcome: Outcome) -> None:
        """The attempt is over."""
        self._take(outcome)

    def on_abort(self, error: BaseException) -> None:
        """Say that nothing of this attempt was saved."""
        del error
        self._show("done", "Stopped; this attempt was not saved.")

    def _attempt(self, condition: Condition) -> bool:
        # The same reset happens again inside the loop; this one is for looking at the start.
        self._env.reset(condition, np.random.default_rng(condition.seed))
        self._decided, self._best, self._steps = None, 0.0, 0
        self._take(self._env.outcome())
        self._device.pressed()
        if self._wait("ready", ("start", "quit"), self._note) == "quit":
            return False
        run_episode(
            self._env,
            self._driver,
            self._inference,
            [self._recorder, self],
            condition,
            max_steps=self._config.max_steps,
            task=self._config.task,
            env_name=self._config.env_name,
            provenance=self._config.provenance,
        )
        verdict = self._decided or self._wait(
            "review", ("keep", "discard", "redo", "quit"), self._verdict()
        )
        if verdict == "keep":
            self._saved.append(self._recorder.keep())
            self._note = f"Saved as {self._saved[-1]}. Press space for the next one."
        else:
            self._recorder.discard()
            self._note = "Discarded. Press space to try the next one."
        return verdict != "quit"

    def _verdict(self) -> str:
        outcome = self._outcome
        solved = outcome is not None and outcome.success
        start = "Solved!" if solved else f"Best {int(100 * self._best)} %, time is up."
        return f"{start} Enter keeps this episode, X discards it."

    def _wait(self, phase: Phase, allowed: tuple[Key, ...], message: str = "") -> Key:
        self._show(phase, message)
        while True:
            for key in self._device.pressed():
                if key in allowed:
                    return key
            time.sleep(self._config.poll_s)

    def _take(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._best = max(self._best, outcome.progress)

    def _show(self, phase: Phase, message: str = "") -> None:
        observation = self._env.observe()
        running = phase == "running"
        self._device.show(
            View(
                phase=phase,
                tool=tool_of(observation),
                things=things_of(observation),
                engaged=self._agent.engaged and running,
                progress=self._outcome.progress if self._outcome else 0.0,
                best=self._best,
                step=self._steps,
                max_steps=self._config.max_steps,
                rate_hz=self._env.measured_hz,
                saved=len(self._saved),
                wanted=self._config.episodes,
                message=message,
                note=self._agent.note if running else "",
                gripper=self._agent.opening,
                pictures=pictures_of(observation),
            )
        )
