"""Conditional flow matching over action chunks.

    x_t = (1 - t) eps + t a,   v = a - eps,   loss = |v_net(x_t, t, o) - v|^2

with t from 0 (noise) to 1 (data) (Lipman et al. 2023; Liu et al. 2023). Sampling integrates v with
a few Euler steps. The network predicts what a linear estimate of v from x_t leaves over (the
preconditioning of Karras et al. 2022, written for this path), and times of training and sampling
pass through one shift towards the data: chunks vary little given the observation, so the field
bends late.
"""

# Shapes in annotations follow jaxtyping's grammar, which ruff reads as a forward reference.
# ruff: noqa: F722
from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from policies.augment import Mirror, MirrorConfig
from policies.guidance import GuidanceConfig, Prefix, guided, request_prefix
from policies.nets.averaging import move_towards
from policies.nets.encoder import ActionCodec, FocusConfig, SignalEncoder
from policies.nets.residual_mlp import ResidualMLP, time_features
from policies.request import request_tensors
from robolearn.checkpoint import Run, load_weights
from robolearn.contracts import Normalization, PolicySpec
from robolearn.data.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Algorithm, Batch, BatchSpec, Losses, ParamGroup, request_noise
from robolearn.spec import TaskSpace
from robolearn.types import PolicyInput, PolicyOutput

TIME_FEATURES = 64


@dataclass(frozen=True, slots=True)
class FlowConfig:
    """Flow-matching policy for vector observations."""

    # Observations at the control rate that the policy sees, newest last.
    n_obs: int = 2
    # Actions per chunk; index 0 is the action at the newest observation.
    horizon: int = 16
    # Actions of a chunk that are usually executed before the next one is asked for.
    execute: int = 8
    # Width of the residual stream.
    width: int = 256
    # Residual blocks.
    blocks: int = 3
    # Hidden units of a block as a multiple of the width.
    expansion: float = 2.0
    # Scaling of observations and actions.
    normalization: Normalization = "minmax"
    # Pairs (position, pose): the position is shown in the pose's frame as well.
    relative: tuple[tuple[str, str], ...] = ()
    # Octaves of sines and cosines added to the features of an observation.
    octaves: int = 0
    # A place where one observation is resolved finely.
    focus: FocusConfig | None = None
    # 0: actions as they are; else the gain on actions relative to the newest observation of the
    # signal of the same name (absolute actions only), after scaling.
    anchor: float = 0.0
    # Samples per update.
    batch_size: int = 256
    # Peak learning rate of AdamW.
    lr: float = 1e-3
    # Decoupled weight decay.
    weight_decay: float = 1e-4
    # Decay of the averaged weights per update (reached after a warm-up).
    ema: float = 0.999
    # Noise added to normalised observations in training, standard deviation.
    observation_noise: float = 0.002
    # 1: uniform times; larger: training and sampling times move towards the data.
    time_shift: float = 3.0
    # Standard deviation of normalised actions that the preconditioning assumes.
    action_std: float = 0.5
    # Euler steps when sampling.
    steps: int = 4
    # Whether the repeated last action past the end of an episode is imitated as well.
    imitate_padding: bool = False
    # Reflection symmetry of the task, if it has one.
    mirror: MirrorConfig | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.execute <= self.horizon:
            raise ConfigError(f"execute must be in 1..horizon={self.horizon}, got {self.execute}")
        if min(self.n_obs, self.width, self.blocks, self.batch_size, self.steps) < 1:
            raise ConfigError("n_obs, width, blocks, batch_size and steps must be at least 1")
        if not self.lr > 0 or not self.weight_decay >= 0:
            raise ConfigError(
                f"lr must be positive and weight_decay at least 0, got {self.lr},"
                f" {self.weight_decay}"
            )
        if self.time_shift <= 0 or self.action_std <= 0 or not 0 <= self.ema < 1:
            raise ConfigError("time_shift and action_std must be positive, ema in [0, 1)")

    def batches(self) -> BatchSpec:
        """Windows of observations and actions."""
        return BatchSpec("windows", self.n_obs, self.horizon, self.batch_size)

    def policy_spec(self, space: TaskSpace) -> PolicySpec:
        """What the trained policy reads and writes."""
        return PolicySpec(space, self.n_obs, self.horizon, self.execute, self.normalization)

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> FlowAlgorithm:
        """An untrained algorithm; initial weights come from torch's global generator."""
        if parent is not None:
            raise ConfigError("flow starts from scratch: drop 'parent' from the experiment")
        return FlowAlgorithm(self, self.policy_spec(space), stats)

    def load(self, run: Run) -> FlowPolicy:
        """The trained policy of a run directory."""
        model = FlowModel(self, run.spec, run.stats)
        load_weights(model, run.weights, str(run.path))
        return FlowPolicy(model.eval(), run.spec, self.steps)


class FlowModel(nn.Module):
    """Encoder, velocity network and action codec."""

    def __init__(self, config: FlowConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        self.encoder = SignalEncoder(spec, stats, config.relative, config.octaves, config.focus)
        self.codec = ActionCodec(spec, stats, config.anchor)
        self.horizon, self.action_size = spec.horizon, spec.task_space.action_size
        self.shift, self.std = config.time_shift, config.action_std
        features, chunk = spec.n_obs * self.encoder.lifted_size, self.horizon * self.action_size
        self.observe = nn.Sequential(
            nn.Linear(features, config.width), nn.SiLU(), nn.Linear(config.width, config.width)
        )
        self.clock = nn.Linear(TIME_FEATURES, config.width)
        self.net = ResidualMLP(
            chunk + features, config.width, chunk, config.width, config.blocks, config.expansion
        )

    def context(self, features: Float[Tensor, "b n f"]) -> Tensor:
        """What the velocity needs of the observation, computed once per chunk ``[b, c]``."""
        flat = self.encoder.lift(features).flatten(1)
        return torch.cat([flat, self.observe(flat)], dim=-1)

    def velocity(
        self, x_t: Float[Tensor, "b h a"], t: Float[Tensor, " b"], context: Float[Tensor, "b c"]
    ) -> Float[Tensor, "b h a"]:
        """``c_skip(t) x + c_out(t) net(c_in(t) x, t, o)``; ``net`` has unit targets."""
        flat, seen = self._parts(context)
        modulation = self.net.modulation(seen + self.clock(time_features(t, TIME_FEATURES)))
        return self._velocity(x_t, t, flat, modulation)

    def _velocity(self, x_t: Tensor, t: Tensor, flat: Tensor, modulation: Tensor) -> Tensor:
        c_in, c_skip, c_out = preconditioning(t, self.std)
        x = x_t.flatten(1)
        out = self.net.trunk(torch.cat([c_in * x, flat], dim=-1), modulation)
        return (c_skip * x + c_out * out).view_as(x_t)

    def _parts(self, context: Tensor) -> tuple[Tensor, Tensor]:
        width = self.clock.out_features
        return context[:, :-width], context[:, -width:]

    def shifted(self, u: Tensor) -> Tensor:
        """Times in [0, 1] moved towards the data: s u / (1 + (s - 1) u)."""
        return self.shift * u / (1 + (self.shift - 1) * u)

    def integrate(self, noise: Float[Tensor, "b h a"], context: Tensor, steps: int) -> Tensor:
        """Euler from noise to a normalised chunk.

        The times are known beforehand, so the modulations of all steps are one product.
        """
        times = self.shifted(torch.linspace(0.0, 1.0, steps + 1))
        flat, seen = self._parts(context)
        clocks = self.clock(time_features(times[:-1], TIME_FEATURES))
        modulations = self.net.modulation(seen + clocks[:, None])
        x = noise
        for modulation, (t, t_next) in zip(modulations, itertools.pairwise(times), strict=True):
            x = x + (t_next - t) * self._velocity(x, t.expand(len(x)), flat, modulation)
        return x


def preconditioning(t: Tensor, std: float) -> tuple[Tensor, Tensor, Tensor]:
    """``c_in, c_skip, c_out`` ``[b, 1]``: for independent a ~ N(0, std^2) and eps ~ N(0, 1),
    c_skip x_t is the best linear estimate of v and c_out the deviation of what it leaves over.
    """
    t = t[:, None]
    variance = (1 - t) ** 2 + (t * std) ** 2
    return variance.rsqrt(), (t * std**2 - (1 - t)) / variance, std * variance.rsqrt()


class FlowAlgorithm(Algorithm):
    """Trains the model and keeps an exponential moving average of it, which is the policy."""

    def __init__(self, config: FlowConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, spec, config.batches()
        self.model = FlowModel(config, spec, stats)
        self.ema = copy.deepcopy(self.model).requires_grad_(requires_grad=False)
        self.mirror = None if config.mirror is None else Mirror(config.mirror, spec.task_space)

    def groups(self) -> Mapping[str, ParamGroup]:
        """One group."""
        parameters = tuple(self.model.parameters())
        return {"flow": ParamGroup(parameters, self.config.lr, self.config.weight_decay)}

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """The flow-matching loss of one batch."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        model = self.model
        features = model.encoder(batch.observations)
        if self.config.observation_noise > 0:
            noise = torch.randn(features.shape, generator=rng)
            features = features + self.config.observation_noise * noise
        actions = model.codec.encode(batch.actions, batch.observations)
        size = len(actions)
        # Stratified times: one in each of b equal slices, which lowers the gradient's variance.
        u = (torch.arange(size) + torch.rand(size, generator=rng)) / size
        t = model.shifted(u)
        eps = torch.randn(actions.shape, generator=rng)
        x_t, target = flow_target(actions, eps, t)
        error = model.velocity(x_t, t, model.context(features)) - target
        # In units of what the network predicts, so that all times weigh alike.
        scaled = (error / preconditioning(t, model.std)[2][:, :, None]) ** 2
        mask = batch.action_mask | self.config.imitate_padding
        weight = mask[..., None].expand_as(scaled)
        loss = (scaled * weight).sum() / weight.sum()
        return Losses({"flow": loss}, {})

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the average; its decay warms up so that early weights are soon forgotten."""
        decay = min(self.config.ema, (1 + step) / (10 + step))
        move_towards(self.ema, self.model, 1 - decay)

    def policy(self) -> FlowPolicy:
        """The policy with the averaged weights."""
        return FlowPolicy(self.ema, self.spec, self.config.steps)

    def policy_weights(self) -> Mapping[str, Tensor]:
        """The averaged weights."""
        return self.ema.state_dict()


def flow_target(
    actions: Float[Tensor, "b h a"], eps: Float[Tensor, "b h a"], t: Float[Tensor, " b"]
) -> tuple[Float[Tensor, "b h a"], Float[Tensor, "b h a"]]:
    """``x_t`` and the velocity to regress on."""
    s = t[:, None, None]
    return (1 - s) * eps + s * actions, actions - eps


class FlowPolicy:
    """Samples chunks; row ``i`` depends on row ``i`` of the request alone.

    A request with a prefix is answered by a chunk that continues it (``policies/guidance.py``).
    """

    def __init__(
        self,
        model: FlowModel,
        spec: PolicySpec,
        steps: int,
        guidance: GuidanceConfig = GuidanceConfig(),  # noqa: B008 (frozen)
    ) -> None:
        self.model, self.steps, self.guidance, self._spec = model, steps, guidance, spec

    @property
    def spec(self) -> PolicySpec:
        """Task space, horizons, normalisation."""
        return self._spec

    def field(self, x_t: Tensor, t: Tensor, context: Tensor) -> Tensor:
        """Velocity ``[b, horizon, action]`` in normalised actions."""
        return self.model.velocity(x_t, t, context)

    def context(self, request: PolicyInput) -> Tensor:
        """The encoded observations ``[b, c]`` for :meth:`field`."""
        return self.model.context(self.model.encoder(request_tensors(request, self._spec)))

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row; candidate 0 is the same for every ``n``."""
        begin = time.perf_counter_ns()
        shape = (n, self._spec.horizon, self._spec.task_space.action_size)
        wanted = request_prefix(request, self._spec)
        with torch.inference_mode(wanted is None), torch.no_grad():
            seen = request_tensors(request, self._spec)
            seen = {k: v.repeat_interleave(n, dim=0) for k, v in seen.items()}
            context = self.model.context(self.model.encoder(seen))
            noise = torch.from_numpy(request_noise(request.seed, shape)).flatten(0, 1)
            if wanted is None:
                x = self.model.integrate(noise, context, self.steps)
            else:
                before, weight = (v.repeat_interleave(n, dim=0) for v in wanted)
                prefix = Prefix(self.model.codec.encode(before, seen), weight)
                x = self._continue(noise, context, prefix)
            chunk = self.model.codec.decode(x, seen)
            actions = chunk.view(-1, *shape).double().numpy()
        return PolicyOutput(
            actions=actions,
            scores=np.zeros(actions.shape[:2]),
            t_ns=request.t_ns,
            latency_ns=time.perf_counter_ns() - begin,
        )

    def _continue(self, noise: Tensor, context: Tensor, prefix: Prefix) -> Tensor:
        times = self.model.shifted(torch.linspace(0.0, 1.0, self.steps + 1))
        return guided(self.field, noise, times, context, prefix, self.guidance)
