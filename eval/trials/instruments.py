"""Wraps an episode of an evaluation: divergence as an outcome, tallies, frames."""

from __future__ import annotations

import dataclasses
import logging
import math
from typing import Any, Protocol, runtime_checkable

import numpy as np

from robolearn.agents.replay import WrappedAgent
from robolearn.contracts import Agent, Env, Inference
from robolearn.errors import ConfigError, PhysicsDivergedError
from robolearn.region import Region
from robolearn.shapes import AnyArray, Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    EpisodeHeader,
    Observation,
    Outcome,
    PolicyInput,
    PolicyOutput,
    ResetReport,
    SampleBatch,
    SentBlock,
    Tick,
)

log = logging.getLogger(__name__)

PHYSICS_DIVERGED = "physics_diverged"
NOT_FINITE = "not_finite"
FORBIDDEN = "forbidden"
"""Figure of a trial: share of its ticks in the region that its suite forbids."""


@runtime_checkable
class RenderingEnv(Env, Protocol):
    """An env that can draw itself from above."""

    def render(self, width: int, height: int) -> Picture:
        """Picture ``[height, width, 3]``."""
        ...


class GuardedEnv:
    """Turns :class:`PhysicsDivergedError`, and signals and outcomes that are not finite, into a
    terminal outcome with a reason of its own; of a signal its name is the outcome's ``trouble``.

    Otherwise one unstable episode would take the whole batch with it, and could not be told from
    a failure of the policy.
    """

    def __init__(self, env: Env) -> None:
        self.env = env
        # Why the episode ends, and the signal that it ends for.
        self._trouble = self._signal = ""
        self._last = Outcome(False, 0.0, 0.0)

    @property
    def spec(self) -> EmbodimentSpec:
        """As the wrapped env."""
        return self.env.spec

    @property
    def capabilities(self) -> Capabilities:
        """As the wrapped env."""
        return self.env.capabilities

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start afresh; an earlier divergence is forgotten."""
        self._trouble = self._signal = ""
        self._last = Outcome(False, 0.0, 0.0)
        return self.env.reset(condition, rng)

    def now_ns(self) -> int:
        """The wrapped env's clock."""
        return self.env.now_ns()

    def observe(self) -> Observation:
        """As the wrapped env; where a signal is not finite the episode ends with this tick, whose
        request, in one batch with others, gets 0 for such numbers.
        """
        seen = self.env.observe()
        bad = next((name for name, s in seen.samples.items() if not _is_finite(s.value)), None)
        if bad is None:
            return seen
        if not self._trouble:
            log.warning(
                "world '%s': signal '%s' is not finite: %s; the episode ends here",
                self.spec.name,
                bad,
                np.array2string(seen.value(bad), threshold=8, precision=4),
            )
            self._trouble, self._signal = NOT_FINITE, bad
        samples = {
            name: s
            if _is_finite(s.value)
            else dataclasses.replace(s, value=np.nan_to_num(s.value, posinf=0.0, neginf=0.0))
            for name, s in seen.samples.items()
        }
        return dataclasses.replace(seen, samples=samples)

    def apply(self, command: Command) -> None:
        """As the wrapped env."""
        self.env.apply(command)

    def advance(self) -> None:
        """To the next tick; a divergence is kept for :meth:`outcome`."""
        try:
            self.env.advance()
        except PhysicsDivergedError as error:
            log.warning("physics diverged: %s", error)
            self._trouble = PHYSICS_DIVERGED

    def drain(self) -> SampleBatch:
        """As the wrapped env; nothing after a divergence."""
        if self._trouble:
            none = np.zeros(0, dtype=np.int64)
            return SampleBatch({}, SentBlock(none, none, {}))
        return self.env.drain()

    def outcome(self) -> Outcome:
        """As the wrapped env; after a divergence or a progress, reward or metric that is not
        finite the last good one, terminal, with the reason.
        """
        now = self._last if self._trouble else self.env.outcome()
        if not all(map(math.isfinite, (now.progress, now.reward, *now.metrics.values()))):
            bad = [k for k, v in now.metrics.items() if not math.isfinite(v)]
            log.warning("progress %s, reward %s, metrics %s", now.progress, now.reward, bad)
            self._trouble = NOT_FINITE
        if self._trouble:
            return Outcome(
                success=self._last.success,
                progress=self._last.progress,
                reward=0.0,
                terminal=True,
                reason=self._trouble,
                metrics=self._last.metrics,
                trouble=self._signal,
            )
        self._last = now
        return now

    def close(self) -> None:
        """Close the wrapped env."""
        self.env.close()


def _is_finite(value: AnyArray) -> bool:
    """Whether all its numbers are; one product is cheaper than a look at each."""
    if value.dtype.kind != "f":
        return True
    flat = value.ravel()
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())


class InstructedAgent(WrappedAgent):
    """An agent whose policy is told ``instruction`` with every request."""

    def __init__(self, inner: Agent, instruction: str) -> None:
        super().__init__(inner)
        self._instruction = instruction

    def request(self, observation: Observation) -> PolicyInput | None:
        """The wrapped agent's request, with the instruction."""
        request = super().request(observation)
        if request is None:
            return None
        return dataclasses.replace(request, task=(self._instruction,) * len(request.t_ns))


class CountingInference:
    """Counts, per env, the replies and how many of them a critic changed (``extras["changed"]``).

    ``extras["changed"] [batch]`` is nonzero where a re-ranked policy did not take its first sample.
    """

    def __init__(self, inner: Inference) -> None:
        self._inner = inner
        self.chunks: dict[int, int] = {}
        self.changed: dict[int, int] = {}

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """As the wrapped inference."""
        self._inner.submit(env_id, request)

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """As the wrapped inference."""
        reply = self._inner.poll(env_id, now_ns)
        if reply is not None:
            self.chunks[env_id] = self.chunks.get(env_id, 0) + 1
            if "changed" in reply.extras:
                changed = int(np.count_nonzero(reply.extras["changed"]))
                self.changed[env_id] = self.changed.get(env_id, 0) + changed
        return reply

    def figures(self, env_id: int) -> dict[str, float]:
        """What a trial says of them."""
        found = {"chunks": float(self.chunks.get(env_id, 0))}
        changed = self.changed.get(env_id)
        return found if changed is None else found | {"changed": float(changed)}

    def close(self) -> None:
        """Close the wrapped inference."""
        self._inner.close()


class MaximumMetrics:
    """Remembers the largest value of every metric of the outcome over the episode, and how much of
    it was spent in the region ``forbidden``.
    """

    def __init__(self, forbidden: Region | None = None) -> None:
        self.values: dict[str, float] = {}
        self._place = None if forbidden is None else RegionCounter(forbidden)

    def figures(self) -> dict[str, float]:
        """What a trial says of it."""
        largest = {f"max_{k}": v for k, v in self.values.items()}
        return largest if self._place is None else largest | {FORBIDDEN: self._place.share}

    def on_start(self, episode: EpisodeHeader) -> None:
        """Forget the last episode."""
        self.values = {}
        if self._place is not None:
            self._place.on_start(episode)

    def on_tick(self, tick: Tick) -> None:
        """Compare."""
        for name, value in tick.outcome.metrics.items():
            self.values[name] = max(float(value), self.values.get(name, -np.inf))
        if self._place is not None:
            self._place.on_tick(tick)

    def on_end(self, outcome: Outcome) -> None:
        """Nothing to do."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing to do."""


class RegionCounter:
    """Counts the ticks at which a signal is seen in a region."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._ticks = self._inside = 0

    @property
    def share(self) -> float:
        """Of the episode's ticks."""
        return self._inside / max(1, self._ticks)

    def on_start(self, episode: EpisodeHeader) -> None:
        """Forget the last episode."""
        del episode
        self._ticks = self._inside = 0

    def on_tick(self, tick: Tick) -> None:
        """Look where it is."""
        shown = tick.observation
        if self._region.signal not in shown.samples:
            raise ConfigError(
                f"the suite forbids a region of '{self._region.signal}', which the world does not"
                f" show; it shows {sorted(shown.samples)}"
            )
        self._ticks += 1
        value = np.asarray(shown.value(self._region.signal))
        self._inside += int(self._region.holds(value[None])[0])

    def on_end(self, outcome: Outcome) -> None:
        """Nothing to do."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing to do."""


class LastPicture:
    """Keeps the newest picture of a signal of the observation."""

    def __init__(self, signal: str) -> None:
        self._signal = signal
        self.picture: Picture = np.zeros((1, 1, 3), dtype=np.uint8)

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing to do."""

    def on_tick(self, tick: Tick) -> None:
        """Look again."""
        if self._signal not in tick.observation.samples:
            raise ConfigError(
                f"success is to be judged by '{self._signal}', which the world does not show; it"
                f" shows {sorted(tick.observation.samples)}: name its camera (WORLD,camera=top)"
            )
        self.picture = np.array(tick.observation.value(self._signal), dtype=np.uint8)

    def on_end(self, outcome: Outcome) -> None:
        """Nothing to do."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing to do."""


class FrameCollector:
    """Draws the env after every ``every``-th tick; ``frames`` hold ``[height, width, 3]`` each."""

    def __init__(self, env: RenderingEnv, size: int, every: int) -> None:
        self._env, self._size, self._every = env, size, every
        self.frames: list[Picture] = []

    def on_start(self, episode: EpisodeHeader) -> None:
        """The first picture shows the start."""
        del episode
        self.frames = [self._draw()]

    def on_tick(self, tick: Tick) -> None:
        """One more picture."""
        if (tick.index + 1) % self._every == 0:
            self.frames.append(self._draw())

    def on_end(self, outcome: Outcome) -> None:
        """The last picture shows the end."""
        del outcome
        self.frames.append(self._draw())

    def on_abort(self, error: BaseException) -> None:
        """Nothing to do."""

    def _draw(self) -> Picture:
        picture: Any = self._env.render(self._size, self._size)
        return np.array(picture, dtype=np.uint8)
