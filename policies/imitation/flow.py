"""Learns conditional flow matching over action chunks.

    x_t = (1 - t) eps + t a,   v = a - eps,   loss = |v_net(x_t, t, o) - v|^2

with t from 0 (noise) to 1 (data) (Lipman et al. 2023; Liu et al. 2023). Sampling integrates v with
a few Euler steps. The network predicts what a linear estimate of v from x_t leaves over (the
preconditioning of Karras et al. 2022, written for this path), and times of training and sampling
pass through one shift towards the data: chunks vary little given the observation, so the field
bends late.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
from __future__ import annotations

import dataclasses
import functools
import itertools
from dataclasses import dataclass
from typing import Literal

import torch

from policies.chunks.base import (
    EncodedBatch,
    FieldAlgorithm,
    FieldConfig,
    randn,
    uniform,
)
from policies.chunks.prefix import PrefixModel, check_max_prefix, draw_prefix, marked
from policies.chunks.sampler_steps import Step, equal_times, euler_steps
from policies.nets.shapes import (
    ChunkMask,
    Chunks,
    Context,
    MarkedChunks,
    Noise,
    Rows,
    RowsOne,
    StepTimes,
)
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Losses

TimeKind = Literal["uniform", "logit_normal", "beta"]


@dataclass(frozen=True, slots=True)
class FlowConfig(FieldConfig):
    """Flow-matching policy."""

    # Distribution of training times before the shift: uniform, logit_normal (Esser et al. 2024), or
    # beta ((1, 1.5): pi0's, which prefers noisy chunks).
    times: TimeKind = "uniform"
    # Mean and deviation of logit_normal, or the two parameters of beta; not used by uniform.
    time_parameters: tuple[float, float] = (0.0, 1.0)
    # 1: times as drawn; larger: training and sampling times move towards the data.
    time_shift: float = 3.0
    # Standard deviation of normalised actions that the preconditioning assumes.
    action_std: float = 0.5
    # Euler steps when sampling.
    sampler_steps: int = 4
    # Up to so many first actions are given clean in training, so that a chunk continues what is
    # being executed without guidance (training-time RTC, arXiv 2512.05964); 0: none.
    max_prefix: int = 0

    def __post_init__(self) -> None:
        FieldConfig.__post_init__(self)
        if self.sampler_steps < 1:
            raise ConfigError(f"sampler_steps must be at least 1, got {self.sampler_steps}")
        if self.time_shift <= 0 or self.action_std <= 0:
            raise ConfigError("time_shift and action_std must be positive")
        if self.times == "beta" and min(self.time_parameters) <= 0:
            raise ConfigError(f"beta: time_parameters must be positive, got {self.time_parameters}")
        if self.times == "logit_normal" and self.time_parameters[1] <= 0:
            raise ConfigError(
                f"logit_normal: the deviation must be positive: {self.time_parameters}"
            )
        check_max_prefix(self.max_prefix, self.horizon)

    def algorithm(self) -> type[FlowAlgorithm]:
        """What trains it."""
        return FlowAlgorithm


class FlowModel(PrefixModel):
    """A preconditioned velocity network."""

    def __init__(self, config: FlowConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats, extra_inputs=int(config.max_prefix > 0))
        self.shift, self.std, self.sampler_steps = (
            config.time_shift,
            config.action_std,
            config.sampler_steps,
        )
        self.max_prefix = config.max_prefix

    def velocity(self, x_t: Chunks, t: Rows, context: Context) -> Chunks:
        """``c_skip(t) x + c_out(t) net(c_in(t) x, t, o)``; ``net`` has unit targets."""
        return self.masked_velocity(x_t, t, context, None)

    def masked_velocity(
        self, x_t: Chunks, t: Rows, context: Context, mask: ChunkMask | None
    ) -> Chunks:
        """The velocity where the actions marked in ``mask [b, h, 1]`` (bool) are clean already;
        theirs means nothing.
        """
        c_in, c_skip, c_out = (c[:, :, None] for c in preconditioning(t, self.std))
        if mask is None:
            x = self.net_input(c_in * x_t)
        else:
            x = marked(torch.where(mask, x_t, c_in * x_t), mask)
        return c_skip * x_t + c_out * self.raw(x, (t,), context)

    def net_input(self, x: Chunks) -> MarkedChunks:
        """With a mark where actions are given, if they ever are: here, nowhere."""
        return marked(x, None) if self.max_prefix else x

    def shifted(self, u: Rows) -> Rows:
        """Times in [0, 1] moved towards the data: s u / (1 + (s - 1) u)."""
        return self.shift * u / (1 + (self.shift - 1) * u)

    def times(self) -> StepTimes:
        """Times of the sampler's steps, from 0 to 1."""
        return torch.tensor(equal_times(self.sampler_steps, self.shift), device=self.device)

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """Euler from noise ``[b, 1, h, a]`` to a normalised chunk."""
        return self.integrate(noise.squeeze(1), self.euler(), context)

    def euler(self) -> tuple[Step, ...]:
        """The steps of the sampler."""
        return sampling(self.sampler_steps, self.shift, self.std)

    def inpaint(self, noise: Noise, context: Context, mask: ChunkMask, prefix: Chunks) -> Chunks:
        """Euler, with given actions put back after every step."""
        x = torch.where(mask, prefix, noise[:, 0])
        for t, t_next in itertools.pairwise(self.times()):
            velocity = self.masked_velocity(x, t.expand(x.shape[0]), context, mask)
            x = torch.where(mask, prefix, x + (t_next - t) * velocity)
        return x


@functools.lru_cache(maxsize=64)
def sampling(count: int, shift: float, std: float) -> tuple[Step, ...]:
    """The steps of the sampler."""
    times = equal_times(count, shift)
    return euler_steps(times, [(t,) for t in times[:-1]], std)


def preconditioning(t: Rows, std: float) -> tuple[RowsOne, RowsOne, RowsOne]:
    """``c_in, c_skip, c_out`` ``[b, 1]``: for independent a ~ N(0, std^2) and eps ~ N(0, 1),
    c_skip x_t is the best linear estimate of v and c_out the deviation of what it leaves over.
    """
    t = t[:, None]
    variance = (1 - t) ** 2 + (t * std) ** 2
    return variance.rsqrt(), (t * std**2 - (1 - t)) / variance, std * variance.rsqrt()


def training_times(u: Rows, kind: TimeKind, parameters: tuple[float, float]) -> Rows:
    """Uniform numbers ``u [b]`` to times with the wanted distribution, by its quantile function."""
    if kind == "uniform":
        return u
    inside = u.clamp(1e-6, 1 - 1e-6)
    first, second = parameters
    if kind == "logit_normal":
        return torch.sigmoid(first + second * torch.special.ndtri(inside))
    from scipy import special

    quantiles = special.betaincinv(first, second, inside.cpu().double().numpy())
    return torch.as_tensor(quantiles, dtype=u.dtype, device=u.device)


class FlowAlgorithm(FieldAlgorithm[FlowConfig, FlowModel]):
    """Trains the velocity network."""

    name = "flow"
    model_class = FlowModel

    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The flow-matching loss of one batch."""
        model, actions = self.model, encoded.actions
        u = uniform(len(actions), rng, actions.device)
        t = model.shifted(training_times(u, self.config.times, self.config.time_parameters))
        x_t, target = flow_target(actions, randn(actions, rng), t)
        mask = None
        if model.max_prefix:
            mask = draw_prefix(actions, model.max_prefix, rng)
            x_t = torch.where(mask, actions, x_t)
            encoded = dataclasses.replace(encoded, weight=encoded.weight & ~mask)
        error = model.masked_velocity(x_t, t, encoded.context, mask) - target
        # In units of what the network predicts, so that all times weigh alike.
        scaled = (error / preconditioning(t, model.std)[2][:, :, None]) ** 2
        return Losses({"flow": encoded.mean(scaled)}, {})


def flow_target(actions: Chunks, eps: Chunks, t: Rows) -> tuple[Chunks, Chunks]:
    """``x_t`` and the velocity to regress on."""
    s = t[:, None, None]
    return (1 - s) * eps + s * actions, actions - eps
