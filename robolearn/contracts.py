"""Defines the contracts between packages (numpy only); those that speak torch: ``learning.py``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np

from robolearn.spec import EmbodimentSpec, TaskSpace, refuse_depth
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
    Signals,
    Tick,
)

Normalization = Literal["minmax", "quantile", "meanstd", "none"]


@runtime_checkable
class Env(Protocol):
    """Something that can be observed and commanded at a fixed rate: simulated or real."""

    @property
    def spec(self) -> EmbodimentSpec:
        """Signals, action semantics, control rate."""
        ...

    @property
    def capabilities(self) -> Capabilities:
        """Settable poses, true state, faster than real time."""
        ...

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start an episode; report the requested and the achieved start."""
        ...

    def now_ns(self) -> int:
        """The env's clock: simulated or monotonic [ns]."""
        ...

    def observe(self) -> Observation:
        """Newest aligned view; every signal with its capture time."""
        ...

    def apply(self, command: Command) -> None:
        """Accept a command; it may be limited, what was sent comes back through ``drain``."""
        ...

    def drain(self) -> SampleBatch:
        """All samples since the last call at their own rates, and what was sent, by ``seq``.

        The samples that ``observe`` showed at this tick are among them.
        """
        ...

    def advance(self) -> None:
        """To the next control tick: step physics, or wait for the clock."""
        ...

    def outcome(self) -> Outcome:
        """How the task stands now."""
        ...

    def close(self) -> None:
        """Release everything; safe to call twice."""
        ...


@runtime_checkable
class ArrivesLate(Protocol):
    """An env whose samples may be under way for a while, as a camera's are."""

    def late(self, until_ns: int) -> SampleBatch | None:
        """After the last ``drain`` of an episode: what was taken until ``until_ns``, for which a
        real env waits a moment; None where nothing is missing.
        """
        ...


@runtime_checkable
class Agent(Protocol):
    """Decides the next command at every tick: a device, an expert, a replay, or a policy."""

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        ...

    def reset(self, seed: int) -> None:
        """Forget the last episode; all randomness of the next one comes from ``seed``."""
        ...

    def request(self, observation: Observation) -> PolicyInput | None:
        """What should be inferred now, if anything (devices, experts: None)."""
        ...

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The command for this tick, with whatever reply has arrived."""
        ...


@runtime_checkable
class Interruptible(Protocol):
    """What an agent may have beside: it plans ahead, and may be interrupted in that."""

    def interrupt(self, sent: Signals) -> None:
        """Somebody else drove, whose last action was ``sent``: what was planned, asked or averaged
        is void; what was seen, and the episode, go on.
        """
        ...


@runtime_checkable
class Inference(Protocol):
    """Runs a policy: in process, one batch over many envs, in a worker process, or remotely."""

    def submit(self, env_id: int, request: PolicyInput) -> None:
        """Queue a request of one env (a newer one replaces an unanswered older one)."""
        ...

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        """The finished reply, once; None when there is none (yet)."""
        ...

    def close(self) -> None:
        """Release workers; safe to call twice."""
        ...


@dataclass(frozen=True, slots=True)
class PolicySpec:
    """What a policy reads and writes, and how.

    ``n_obs`` observations at the control rate, oldest first; ``horizon`` actions out, of which an
    execution wrapper usually executes ``execute``.
    """

    task_space: TaskSpace
    n_obs: int
    horizon: int
    execute: int
    normalization: Normalization = "minmax"

    def __post_init__(self) -> None:
        refuse_depth(self.task_space)


@runtime_checkable
class Policy(Protocol):
    """A trained network: torch inside, numpy outside. Knows nothing of time or robots."""

    @property
    def spec(self) -> PolicySpec:
        """Task space, horizons, normalisation."""
        ...

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` action chunks per row, best first. Pure function of the request's seeds."""
        ...


@runtime_checkable
class Subscriber(Protocol):
    """Told about every episode: recorder, video, progress, display."""

    def on_start(self, episode: EpisodeHeader) -> None:
        """An episode begins (after the reset)."""
        ...

    def on_tick(self, tick: Tick) -> None:
        """One turn of the loop is done."""
        ...

    def on_end(self, outcome: Outcome) -> None:
        """The episode is over."""
        ...

    def on_abort(self, error: BaseException) -> None:
        """The episode was cut short by an error; nothing follows."""
        ...
