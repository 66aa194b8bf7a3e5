"""Defines the two contracts that speak torch, and the batch types they share."""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Float32, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor, nn

from robolearn.contracts import Policy
from robolearn.errors import ConfigError
from robolearn.types import RequestNumbers

# Of any type and shape, and those by name: what a module keeps.
AnyTensor = Shaped[Tensor, "..."]
Weights = Mapping[str, AnyTensor]
# By signal, ``[b, n_obs, *shape]``: of a batch b rows.
RowTensor = Shaped[Tensor, "b ..."]
Observed = Mapping[str, RowTensor]
NoiseRows = Float32[NDArray[np.float32], "b ..."]

BatchPart = Literal[
    "transition",
    "step_rewards",
    "step_observations",
    "next_actions",
    "candidates",
    "next_candidates",
    "returns",
    "cost",
    "origin",
]
Schedule = Literal["cosine", "linear", "constant"]


@dataclass(frozen=True, slots=True)
class FutureSpec:
    """Which row of the recordings is shown beside a window: a mixture of five kinds by their
    shares, which count relative to each other (``robolearn/data/reading/goals.py``).
    """

    # Share of rows so many ticks ahead as ``ahead`` says, least and most, all alike likely.
    uniform: float = 0.0
    ahead: tuple[int, int] = (1, 1)
    # Share of rows that come the less often the later they are: by ``discount`` per tick.
    geometric: float = 0.0
    discount: float = 0.99
    # Share of the windows' own newest rows.
    current: float = 0.0
    # Share of rows of any episode.
    random: float = 0.0
    # Share of the later rows of the episode, all alike likely.
    rest: float = 0.0
    # A signal of marks (0 or 1): where one of them newly holds before the tick that was drawn, the
    # first such tick is shown instead. Marks that hold for a moment are met so, the sooner they
    # hold the likelier.
    events: str = ""
    # Pairs (goal signal, observed signal): the goal is what is observed in that row, and rewards
    # and ends of the task are those of the goal.
    goals: tuple[tuple[str, str], ...] = ()
    # The goal's signal holds marks (0 or 1), and a goal is one of them alone, at the row where it
    # next newly holds. Share of ``rest``: the mark that comes next in the recording; of ``random``:
    # any mark, whether it comes or not.
    marks: bool = False

    def __post_init__(self) -> None:
        if self.marks and (len(self.goals) != 1 or self.events or self.drawn_otherwise):
            raise ConfigError(
                "marks: expected one pair of goals, and shares of 'rest' and 'random' alone (no"
                f" events), got {self}"
            )
        shares = (self.uniform, self.geometric, self.current, self.random, self.rest)
        if not all(share >= 0 for share in shares) or not sum(shares) > 0:
            raise ConfigError(f"shares of a future must be at least 0, one above it, got {shares}")
        if not 0.0 <= self.discount < 1.0:
            raise ConfigError(f"discount of a future must be in [0, 1), got {self.discount}")
        if not 0 <= self.ahead[0] <= self.ahead[1]:
            raise ConfigError(f"ahead must be two rising numbers of ticks, got {self.ahead}")
        if self.events and (self.random or self.current):
            raise ConfigError("events come after a tick: leave random and current at 0")
        mirrored = [goal for goal, source in self.goals if goal == source]
        if mirrored:
            raise ConfigError(
                f"goals: {mirrored} would be put over what is observed itself; name a goal signal"
                " and the observed signal that it is of, such as [goal/state, obs/state]"
            )

    @property
    def drawn_otherwise(self) -> bool:
        """Some rows are drawn by their distance."""
        return bool(self.uniform or self.geometric or self.current)


@dataclass(frozen=True, slots=True)
class DecisionSpec:
    """Learns from decisions that it made itself, which are played again (:class:`Replaying`): from
    those of the last round, until the next one is there.
    """

    # Of generalised advantages: the larger, the more what happened counts, instead of values.
    trace: float = 0.95
    # Versions that what is learned from may be behind the newest one; rounds that are flown in
    # other processes are a version or two behind.
    behind: int = 4

    def __post_init__(self) -> None:
        if not 0.0 <= self.trace <= 1.0 or self.behind < 1:
            raise ConfigError(
                f"trace must be in [0, 1] and behind at least 1, got {self.trace}, {self.behind}"
            )


@dataclass(frozen=True, slots=True)
class BatchSpec:
    """What an algorithm is fed with: windows (observation history, action chunk, padding mask),
    and the ``parts`` it asks for besides.

    ``transition``: reward over ``stride`` steps, next observation history, bootstrap mask;
    ``step_rewards``: the reward of each of those steps; ``step_observations``: what each of them
    leads to; ``next_actions``: the chunk that follows
    them in the same recording; ``next_candidates``: what the algorithm proposes there
    (:class:`Proposing`), drawn once before training; ``candidates``: the same at the window itself;
    ``returns``: the sum of rewards to the end; ``cost``: like the reward, and the worst of them;
    ``origin``: which data a window is of.
    Every part but ``returns``, ``candidates`` and ``origin`` needs what comes after the chunk, so
    windows at the cut-off end of a recording are left out; with ``stride`` 1 that is its last row,
    however long the chunks are.
    """

    n_obs: int
    horizon: int
    batch_size: int
    parts: tuple[BatchPart, ...] = ()
    discount: float = 1.0
    stride: int = 1
    # Windows begin at every so many steps of an episode, the first of them included.
    every: int = 1
    # A later observation that is shown as well, or becomes the goal.
    future: FutureSpec | None = None
    # A second draw of the same goals: those that an actor pursues, while rewards and ends are those
    # of the first.
    actor_future: FutureSpec | None = None
    # What is observed so many ticks ahead is shown as well, on the way to the actor's goal; 0: not.
    waypoint: int = 0
    # Whether the algorithm makes the rewards itself: those of the recording then tell nothing.
    makes_rewards: bool = False
    # Decisions of its own, once there are some: of nothing else batches consist then.
    decisions: DecisionSpec | None = None

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ConfigError(f"windows begin at every step or every few, got every {self.every}")
        if self.decisions is not None and ("transition" not in self.parts or self.proposed):
            raise ConfigError(
                "decisions are learned from with what follows them, and without chunks of others:"
                f" ask for the part 'transition' and none that is proposed, got {self.parts}"
            )
        if self.aims and "returns" in self.parts:
            raise ConfigError("returns to the end are those of the recording, not of another goal")
        if self.aims and "next_candidates" in self.parts:
            raise ConfigError(
                "next_candidates are drawn once for every row, before its goal is known; an"
                " algorithm that asks for them cannot have goals"
            )
        if self.actor_future is not None and (not self.aims or self.actor_future.goals):
            raise ConfigError(
                "actor_future: its goals are those of 'future', which has to name them"
            )
        if self.waypoint < 0 or (self.waypoint and self.actor_future is None):
            raise ConfigError(
                f"waypoint: at least 0, and on the way to a goal; got {self.waypoint}"
            )

    @property
    def aims(self) -> bool:
        """Goals are put in the recordings, with rewards of their own."""
        return self.future is not None and bool(self.future.goals)

    @property
    def plain(self) -> BatchSpec:
        """The windows alone."""
        return dataclasses.replace(self, parts=(), future=None, actor_future=None, waypoint=0)

    @property
    def looks_ahead(self) -> bool:
        """Something that comes after the chunk is asked for."""
        return any(part not in ("returns", "candidates", "origin") for part in self.parts)

    @property
    def proposed(self) -> bool:
        """Chunks are asked for that the algorithm proposes."""
        return "candidates" in self.parts or "next_candidates" in self.parts

    @property
    def learns_from_rewards(self) -> bool:
        """Rewards of the recording are asked for."""
        return not (self.aims or self.makes_rewards) and any(
            part in ("transition", "step_rewards", "returns") for part in self.parts
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Raw SI values as float32 tensors, pictures as uint8 ``[b, n_obs, h, w, 3]``.

    ``observations[name] [b, n_obs, *shape]``; ``actions [b, horizon, action]``; ``action_mask
    [b, horizon]`` (False: past the end of the episode, repeated); ``intervention [b, horizon]``: at
    that action a person had taken over from a policy. Only where asked for:

    * ``transition``: ``reward [b]`` (discounted sum over ``stride`` steps, or fewer up to the end
      of the task), ``next_observations``, ``bootstrap [b]`` (discount ** steps, 0 after the end);
    * ``step_rewards [b, stride]``: 0 behind the end of the task;
    * ``step_observations[name] [b, stride, n_obs, *shape]``: after each of those steps, with
      ``step_bootstrap [b, stride]``, as ``next_observations`` and ``bootstrap`` are after the last;
    * ``next_actions [b, horizon, action]`` with ``next_action_mask [b, horizon]``: what was done
      at ``next_observations``, of no meaning where ``bootstrap`` is 0;
    * ``candidates [b, k, horizon, action]``: chunks to choose from at ``observations``;
      ``next_candidates`` at ``next_observations``;
    * ``returns [b]``: discounted sum to the end; ``returns_whole [b]``: the task ended there, the
      recording was not merely cut off;
    * ``cost``: ``cost [b]``, the discounted sum over ``stride`` steps, and ``worst_cost [b]``, the
      largest of one of them;
    * ``origin [b]``: the number of the store (``data.stores``) that a window is of, 0 where there
      is one; in practice 0: own episodes, 1 and more: demonstrations;
    * ``chain [b, states, h, a]``: what the sampler went through on its way to the chunk, noise
      first, in normalised actions; ``chain_log_prob [b, steps]``: how dense every step of that was
      for whoever took it; ``advantage [b]``: how much better the decision was than expected;
      ``worth [b]``: what it was worth (:class:`DecisionSpec`; none of it before a decision of its
      own was made);
    * ``future[name] [b, *shape]``: what is observed at the row that :class:`FutureSpec` drew, such
      as a later tick of the episode;
    * ``actor_goals[goal] [b, *shape]``: the second draw, as values of the goal signals; nothing
      else of the batch (goals, reward, bootstrap) is about them;
    * ``waypoints[name] [b, n_obs, *shape]``: the observations some ticks ahead on the way to those.
    """

    observations: Observed
    actions: Float[Tensor, "b h a"]
    action_mask: Bool[Tensor, "b h"]
    reward: Float[Tensor, " b"] | None = None
    next_observations: Observed | None = None
    bootstrap: Float[Tensor, " b"] | None = None
    intervention: Bool[Tensor, "b h"] | None = None
    future: Observed | None = None
    actor_goals: Observed | None = None
    waypoints: Observed | None = None
    step_rewards: Float[Tensor, "b stride"] | None = None
    step_observations: Observed | None = None
    step_bootstrap: Float[Tensor, "b stride"] | None = None
    next_actions: Float[Tensor, "b h a"] | None = None
    next_action_mask: Bool[Tensor, "b h"] | None = None
    candidates: Float[Tensor, "b k h a"] | None = None
    next_candidates: Float[Tensor, "b k h a"] | None = None
    returns: Float[Tensor, " b"] | None = None
    returns_whole: Bool[Tensor, " b"] | None = None
    cost: Float[Tensor, " b"] | None = None
    worst_cost: Float[Tensor, " b"] | None = None
    origin: Int[Tensor, " b"] | None = None
    chain: Float[Tensor, "b states h a"] | None = None
    chain_log_prob: Float[Tensor, "b steps"] | None = None
    advantage: Float[Tensor, " b"] | None = None
    worth: Float[Tensor, " b"] | None = None


@dataclass(frozen=True, slots=True)
class ParamGroup:
    """Parameters that one optimiser owns."""

    parameters: tuple[nn.Parameter, ...]
    lr: float
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.95)
    # How its learning rate goes down after the warm-up; None: as ``fit.schedule`` says.
    schedule: Schedule | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """One scalar per parameter group (an absent group is not updated) and figures for the log,
    which may stay tensors on the device: nobody waits for them before a line is written.
    """

    by_group: Mapping[str, Float[Tensor, ""]]
    metrics: Mapping[str, float | Float[Tensor, ""]]


@runtime_checkable
class FieldPolicy(Policy, Protocol):
    """A policy whose sampler integrates a vector field."""

    def field(
        self, x_t: Float[Tensor, "b h a"], t: Float[Tensor, " b"], context: Float[Tensor, "b ..."]
    ) -> Float[Tensor, "b h a"]:
        """Velocity or score ``[b, horizon, action]`` at ``x_t``, time ``t [b]``."""
        ...


class Algorithm(nn.Module):
    """How a policy is trained; one file per algorithm under ``policies/``."""

    batch_spec: BatchSpec

    @abstractmethod
    def groups(self) -> Mapping[str, ParamGroup]:
        """Parameters by group name."""

    @abstractmethod
    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Losses for one batch; the single entry point (wrapped as it is for data parallel)."""

    @abstractmethod
    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Target networks, EMA."""

    @abstractmethod
    def policy(self) -> Policy:
        """The trained policy with its current (averaged) weights."""

    @abstractmethod
    def policy_weights(self) -> Weights:
        """What the run directory keeps of it; the policy's config loads it again."""


# Told for how many rows chunks are drawn, and of how many.
OnProposed = Callable[[int, int], None]


@runtime_checkable
class Proposing(Protocol):
    """An algorithm that learns from chunks it does not have to draw anew in every update."""

    def propose(self, observations: Observed, seeds: RequestNumbers) -> Float[Tensor, "b k h a"]:
        """Chunks at ``observations [b, n_obs, *shape]``; row ``i`` from ``seeds[i]`` alone."""
        ...


@dataclass(frozen=True, slots=True)
class Replayed:
    """Decisions that were made again: what the sampler went through, how dense every step of it
    was, and how far the chunk is from the one that was executed, in normalised actions.
    """

    chain: Float[Tensor, "b states h a"]
    log_prob: Float[Tensor, "b steps"]
    deviation: Float[Tensor, " b"]


@runtime_checkable
class Replaying(Protocol):
    """An algorithm that learns from decisions of its own (:class:`DecisionSpec`)."""

    def replay(self, weights: Weights, batch: Batch, seeds: RequestNumbers) -> Replayed:
        """The decisions of ``batch``, made again by the ``weights`` of then (those of a version)
        from the noise of ``seeds``.
        """
        ...

    def values(self, observations: Observed) -> Float[Tensor, " b"]:
        """What is expected from ``observations [b, n_obs, *shape]`` on."""
        ...


@runtime_checkable
class Diagnosed(Protocol):
    """An algorithm that learns a critic, and can say how that stands."""

    def diagnose(
        self, batch: Batch, rng: torch.Generator
    ) -> Mapping[str, float | Float[Tensor, ""]]:
        """Figures on ``batch``, by the names of ``robolearn/training/diagnosis.py``; nothing is
        learned from it.
        """
        ...

    def train(self, mode: bool = True) -> object:
        """Torch's; between updates."""
        ...

    def eval(self) -> object:
        """Torch's; while figures are taken."""
        ...


@runtime_checkable
class GraphModel(Protocol):
    """What a graph computes: chunks, in one pass, without derivatives."""

    # Arrays of noise that one chunk takes.
    draws: int

    def several(
        self, noise: Float[Tensor, "b k draws h a"], observations: Observed
    ) -> Float[Tensor, "b k h a"]:
        """``k`` chunks in SI units at every row of ``observations [b, n_obs, *shape]``."""
        ...


@runtime_checkable
class GraphPolicy(Protocol):
    """A policy that may be written as a graph."""

    def graph(self) -> GraphModel:
        """What computes its answers. Errors: :class:`ConfigError` where that is not one pass."""
        ...


def with_goals(batch: Batch, later: Observed) -> Batch:
    """The batch whose goals, by signal, are ``later[name] [b, *shape]``, at all of its times."""

    def shown(observations: Observed) -> Observed:
        goals = {
            name: value[:, None].expand(-1, observations[name].shape[1], *value.shape[1:])
            for name, value in later.items()
        }
        return {**observations, **goals}

    follow = batch.next_observations
    return dataclasses.replace(
        batch,
        observations=shown(batch.observations),
        next_observations=None if follow is None else shown(follow),
    )


def use_threads(count: int) -> None:
    """Let torch compute by so many threads; :class:`ConfigError` for fewer than one."""
    require_threads(count)
    torch.set_num_threads(count)


def require_threads(count: int) -> None:
    """:class:`ConfigError` for a number of threads that torch does not know."""
    if count < 1:
        raise ConfigError(f"threads must be at least 1, got {count}")


def request_noise(seeds: RequestNumbers, shape: tuple[int, ...]) -> NoiseRows:
    """Standard normal noise ``[batch, *shape]`` float32, each row from its own seed alone."""
    rows = [_generator(seed).standard_normal(shape, dtype=np.float32) for seed in seeds.tolist()]
    return rows[0][None] if len(rows) == 1 else np.stack(rows)


def _generator(seed: int) -> np.random.Generator:
    # What numpy.random.default_rng makes of a seed, in half of the time.
    return np.random.Generator(np.random.PCG64(seed))
