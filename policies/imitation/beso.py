"""Learns goals by few-step diffusion (BESO: Reuss et al. 2023; EDM: Karras et al. 2022).

    x = a + sigma eps,   D(x) = c_skip x + c_out net(c_in x, sigma, o, g)
    c_skip = s^2 / (sigma^2 + s^2),  c_out = sigma s / sqrt(sigma^2 + s^2),  c_in = 1 / sqrt(...)
    loss = |net - (a - c_skip x) / c_out|^2,    s: deviation of the data

Chunks come from a few deterministic steps (DDIM, exponentially falling sigma). The goal is now and
then left out in training, so that sampling may exaggerate what it changes (classifier-free
guidance): D = D(none) + strength (D(goal) - D(none)). Where demonstrations had no goal (play), a
later observation of the same episode becomes one.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policies.chunks.base import (
    EncodedBatch,
    FieldAlgorithm,
    FieldConfig,
    FieldModel,
    randn,
    uniform,
)
from policies.nets.encoder import SignalEncoder
from policies.nets.preconditioning import denoiser_scales
from policies.nets.shapes import (
    Chunks,
    Context,
    Marks,
    MarksHistory,
    Noise,
    Rows,
    RowsOneOne,
    StepTimes,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError, SpecMismatchError, did_you_mean
from robolearn.learning import Batch, BatchSpec, FutureSpec, Losses, Observed, with_goals


@dataclass(frozen=True, slots=True)
class BesoConfig(FieldConfig):
    """Goal-conditioned policy with a diffusion model in the form of EDM."""

    # Observed signals that say the goal; none: a policy without goals.
    goal: tuple[str, ...] = ()
    # Pairs (goal signal, observed signal): in training the goal is what is observed later on.
    hindsight: tuple[tuple[str, str], ...] = ()
    # The hindsight goal is one mark per sub-goal (1: wanted, holds), pursued one at a time in this
    # order; what does not stay, such as a button that springs back, comes last. Empty: no marks.
    order: tuple[int, ...] = ()
    # How many ticks later at least and at most, drawn at random; with an order: where the next
    # sub-goal is reached, if that is by then, else no goal is told. What was done long before a
    # sub-goal was mostly done for something else.
    ahead: tuple[int, int] = (16, 64)
    # Chance that the goal is left out of a sample in training.
    dropped: float = 0.1
    # Classifier-free guidance; 1: none. Published: 1.5 (kitchen), 2 (block push).
    strength: float = 1.5
    # Smallest and largest noise in training and sampling. Published: 0.005..1 (kitchen), 0.05..1,
    # for single actions. Sampling starts from noise alone, and the denoiser takes it for an action
    # with noise: of two ways to act, the one nearer to zero is then drawn too often by
    # n (|a|^2 - |b|^2) / (2 sigma^2) nats, n numbers a chunk; so the largest is large here.
    sigma: tuple[float, float] = (0.05, 10.0)
    # Standard deviation of normalised actions that the scaling assumes.
    action_std: float = 0.5
    # Network calls per chunk (twice as large ones with guidance).
    sampler_steps: int = 3

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if not 0 < self.sigma[0] < self.sigma[1] or self.action_std <= 0 or self.sampler_steps < 1:
            raise ConfigError("sigma must rise from above 0, action_std > 0, sampler_steps >= 1")
        if not 0 <= self.dropped < 1 or not 0 <= self.ahead[0] <= self.ahead[1]:
            raise ConfigError("dropped must be in [0, 1), ahead two rising numbers of ticks")
        if self.order and (len(self.hindsight), len(self.goal)) != (1, 1):
            raise ConfigError("order: expected one goal of marks, with hindsight")
        if len(set(self.order)) != len(self.order) or min(self.order, default=0) < 0:
            raise ConfigError(f"order: expected different sub-goals, counted from 0: {self.order}")
        if self.future is not None:
            raise ConfigError("beso makes goals by 'hindsight' and 'ahead': drop 'future'")
        strangers = [name for name, _ in self.hindsight if name not in self.goal]
        if strangers:
            raise ConfigError(f"hindsight: {strangers} are not among the goals {self.goal}")

    def batches(self) -> BatchSpec:
        """Windows, with a later observation where that becomes the goal."""
        windows = FieldConfig.batches(self)
        # Marks are taken where they are next reached: pressed buttons hold for a moment only.
        events = self.hindsight[0][1] if self.order else ""
        if not self.hindsight:
            return windows
        future = FutureSpec(uniform=1.0, ahead=self.ahead, events=events)
        return dataclasses.replace(windows, future=future)

    def algorithm(self) -> type[BesoAlgorithm]:
        """What trains it."""
        return BesoAlgorithm


class BesoModel(FieldModel):
    """The denoiser. Its context is ``[features | what was seen | the goal]``."""

    def __init__(self, config: BesoConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        seen, goal = _split(spec, config.goal)
        super().__init__(config, seen, stats)
        self.config = config
        self.aims = bool(config.goal)
        if self.aims:
            # What a goal looks like is learned from what is observed, where play is relabelled.
            shown = dataclasses.replace(stats, observations=dict(stats.observations))
            for name, source in config.hindsight:
                _require(spec, name, source)
                shown = dataclasses.replace(
                    shown,
                    observations={**shown.observations, name: stats.observations[source]},
                )
            self.goal_encoder = SignalEncoder(goal, shown)
            marks = goal.task_space.observations[0].shape
            if config.order and (len(marks) != 1 or max(config.order) >= marks[0]):
                raise SpecMismatchError(f"order: {config.order} does not fit marks {marks}")
            size = self.goal_encoder.size
            self.aim = nn.Sequential(
                nn.Linear(size, config.width), nn.SiLU(), nn.Linear(config.width, config.width)
            )
            self.nothing = nn.Parameter(torch.zeros(config.width))
            self.context_size += config.width

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """What was seen, and the newest goal; in training some goals are left out."""
        context = super().context(observations, rng)
        if not self.aims:
            return context
        seen = self._next(observations)
        goal = self.aim(self.goal_encoder(seen)[:, -1])
        if self.config.order:
            marked = seen[self.config.goal[0]][:, -1].amax(dim=-1, keepdim=True) > 0.5
            goal = torch.where(marked, goal, self.nothing)
        if rng is not None:
            out = torch.rand(len(goal), 1, generator=rng).to(goal.device) < self.config.dropped
            goal = torch.where(out, self.nothing, goal)
        return torch.cat([context, goal], dim=-1)

    def _next(self, observations: Observed) -> Mapping[str, Tensor]:
        """The observations with the next sub-goal alone where several are wanted."""
        if not self.config.order:
            return observations
        ((goal, source),) = self.config.hindsight
        wanted = first_open(observations[goal], observations[source], self.config.order)
        return {**observations, goal: wanted}

    def denoise(self, x: Chunks, sigma: Rows, context: Context) -> Chunks:
        """The estimate D of the chunk from ``x [b, h, a]`` at ``sigma [b]``, guided."""
        if not self.aims:
            return self._denoise(x, sigma, context)
        width = self.seen_size
        base, goal = context[:, :-width], context[:, -width:]
        if self.config.strength == 1.0:
            return self._denoise(x, sigma, _told(base, goal))
        both = torch.cat([_told(base, goal), _told(base, self.nothing.expand_as(goal))])
        aimed, free = self._denoise(x.repeat(2, 1, 1), sigma.repeat(2), both).chunk(2)
        return free + self.config.strength * (aimed - free)

    def answer(self, x: Chunks, sigma: Rows, context: Context) -> Chunks:
        """What the network says, for its loss; goals as they are, without guidance."""
        if self.aims:
            context = _told(context[:, : -self.seen_size], context[:, -self.seen_size :])
        low, high = (math.log(v) for v in self.config.sigma)
        clock = (sigma.log() - low) / (high - low)
        return self.raw(self.scales(sigma)[0] * x, (clock,), context)

    def scales(self, sigma: Rows) -> tuple[RowsOneOne, RowsOneOne, RowsOneOne]:
        """``c_in, c_skip, c_out`` ``[b, 1, 1]``."""
        return denoiser_scales(sigma[:, None, None], self.config.action_std)

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """On the straight path: sigma = (1 - t) / t, and x = x_t / t."""
        low, high = self.config.sigma
        t = t.clamp(1 / (1 + high), 1 / (1 + low))
        s = t[:, None, None]
        return (self.denoise(x_t / s, (1 - t) / t, context) - x_t) / (1 - s)

    def times(self) -> StepTimes:
        """Times of as many equal steps, from 0 to 1."""
        return torch.linspace(0.0, 1.0, self.config.sampler_steps + 1, device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """DDIM: ``x <- (sigma' / sigma) x + (1 - sigma' / sigma) D(x)``, at last D itself."""
        low, high = self.config.sigma
        logs = torch.linspace(
            math.log(high), math.log(low), self.config.sampler_steps, device=self.device
        )
        sigmas = torch.cat([logs.exp(), logs.new_zeros(1)])
        x = high * noise[:, 0]
        for sigma, after in itertools.pairwise(sigmas):
            share = after / sigma
            x = share * x + (1 - share) * self.denoise(x, sigma.expand(x.shape[0]), context)
        return x

    def _denoise(self, x: Tensor, sigma: Tensor, context: Tensor) -> Tensor:
        low, high = (math.log(v) for v in self.config.sigma)
        c_in, c_skip, c_out = self.scales(sigma)
        clock = (sigma.log() - low) / (high - low)
        return c_skip * x + c_out * self.raw(c_in * x, (clock,), context)


class BesoAlgorithm(FieldAlgorithm[BesoConfig, BesoModel]):
    """Trains the denoiser."""

    name = "beso"
    model_class = BesoModel

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """As every policy; goals may be what is observed later."""
        relabelled_batch = relabelled(
            batch, self.config.hindsight, rng if self.config.order else None
        )
        return super().forward(relabelled_batch, step, rng)

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The squared error of the scaled estimate."""
        model, actions = self.model, encoded.actions
        u = uniform(len(actions), rng, actions.device)
        sigma = log_logistic(u, self.config.action_std, self.config.sigma)
        x = actions + sigma[:, None, None] * randn(actions, rng)
        _, c_skip, c_out = model.scales(sigma)
        error = model.answer(x, sigma, encoded.context) - (actions - c_skip * x) / c_out
        return Losses({"beso": encoded.mean(error**2)}, {})


def relabelled(
    batch: Batch,
    hindsight: tuple[tuple[str, str], ...],
    marks: torch.Generator | None = None,
) -> Batch:
    """The batch with goals replaced by what is observed later in the episode; ``marks``: by a
    sub-goal that was :func:`reached` by then.
    """
    if not hindsight or batch.future is None:
        return batch
    goals: dict[str, Tensor] = {}
    for goal, source in hindsight:
        later = batch.future[source]
        if marks is not None:
            later = reached(batch.observations[source], later, marks)
        goals[goal] = later
    return with_goals(batch, goals)


def reached(now: MarksHistory, later: Marks, rng: torch.Generator) -> Marks:
    """Marks ``[b, m]`` of one sub-goal each that ``later [b, m]`` holds and ``now [b, n_obs, m]``
    did not, drawn at random; none where nothing new was reached.
    """
    fresh = (later > 0.5) & ~(now[:, -1] > 0.5)
    lots = torch.rand(fresh.shape, generator=rng).to(later.device) * fresh
    return ((lots == lots.amax(dim=-1, keepdim=True)) & fresh).to(now.dtype)


def first_open(wanted: MarksHistory, holds: MarksHistory, order: tuple[int, ...]) -> MarksHistory:
    """Marks ``[b, n_obs, m]`` of the first sub-goal in ``order`` that is wanted and does not hold;
    none where all do.
    """
    rank = wanted.new_full(wanted.shape[-1:], 0.0)
    for place, mark in enumerate(order):
        rank[mark] = len(order) - place
    due = rank * ((wanted > 0.5) & ~(holds > 0.5))
    return ((due == due.amax(dim=-1, keepdim=True)) & (due > 0)).to(wanted.dtype)


def log_logistic(u: Rows, middle: float, bounds: tuple[float, float]) -> Rows:
    """Uniform numbers to noise levels: logistic in log sigma around ``log middle`` with scale 1 (
    published: 0.5, for bounds that are nearer to each other), cut to ``bounds``.
    """
    low, high = (torch.sigmoid(torch.tensor(b / middle).log()) for b in bounds)
    inside = low.to(u) + u * (high - low).to(u)
    return (math.log(middle) + torch.logit(inside)).exp().clamp(*bounds)


def _told(base: Tensor, goal: Tensor) -> Tensor:
    """A context whose last part is what was seen and the goal together."""
    width = goal.shape[-1]
    return torch.cat([base[:, :-width], base[:, -width:] + goal], dim=-1)


def _split(spec: PolicySpec, goal: tuple[str, ...]) -> tuple[PolicySpec, PolicySpec]:
    """The specifications of what is seen and of what is wanted."""
    space = spec.task_space
    names = [s.name for s in space.observations]
    for name in goal:
        if name not in names:
            raise SpecMismatchError(
                f"goal: no observed signal '{name}'.{did_you_mean(name, names)} It has: {names}"
            )
    seen = tuple(s for s in space.observations if s.name not in goal)
    aims = tuple(s for s in space.observations if s.name in goal)
    if not seen or any(s.is_image for s in aims):
        raise SpecMismatchError(f"goal: {goal} must leave something to see, and be no pictures")
    return (
        dataclasses.replace(spec, task_space=dataclasses.replace(space, observations=seen)),
        dataclasses.replace(spec, task_space=dataclasses.replace(space, observations=aims)),
    )


def _require(spec: PolicySpec, goal: str, source: str) -> None:
    signals = {s.name: s for s in spec.task_space.observations}
    if source not in signals or signals[source].shape != signals[goal].shape:
        raise SpecMismatchError(
            f"hindsight: '{source}' must be observed and shaped like the goal '{goal}'"
            f" {signals[goal].shape}; observed: {sorted(signals)}"
        )
