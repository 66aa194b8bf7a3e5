"""What policies that imitate chunks share: configuration, encoding, averaging and answering.

    observations --encoder, pictures--> flat --observe--> context = [flat | seen]
    actions [b, h, a] <--codec--> normalised chunk <--the algorithm-- noise [b, draws, h, a]

An algorithm file adds a model with a loss and a way from noise to a chunk.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from policies.chunks.averaging import move_towards
from policies.chunks.guidance import AUTO, GuidanceConfig, Prefix, guided, request_prefix, ways
from policies.chunks.mirror import Mirror, MirrorConfig
from policies.chunks.request import request_tensors
from policies.chunks.sampler_steps import Step, clock_features, equal_times
from policies.nets.chunk_net import ConvConfig, NetKind, NetSize, build_net
from policies.nets.encoder import ActionCodec, FocusConfig, SignalEncoder
from policies.nets.estimator import (
    EstimateConfig,
    Estimator,
    with_estimated,
    without_estimated,
)
from policies.nets.pictures import PictureConfig, PictureEncoder
from policies.nets.residual_mlp import time_features
from robolearn.contracts import Normalization, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.instructions import TEXT, text_encoder
from robolearn.learning import Algorithm, Batch, BatchSpec, Losses, ParamGroup, request_noise
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run
from robolearn.types import PolicyInput, PolicyOutput

TIME_FEATURES = 64
# The parameter group of what estimates signals from pictures.
ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class ChunkConfig:
    """What every policy of the family is configured by."""

    # Observations at the control rate that the policy sees, newest last.
    n_obs: int = 2
    # Actions per chunk; index 0 is the action at the newest observation.
    horizon: int = 16
    # Actions of a chunk that are usually executed before the next one is asked for.
    execute: int = 8
    # Width of the network.
    width: int = 256
    # Its blocks or layers.
    blocks: int = 3
    # Hidden units of a block as a multiple of the width.
    expansion: float = 2.0
    # Scaling of observations and actions.
    normalization: Normalization = "minmax"
    # Pairs (position, pose): the position is shown in the pose's frame as well; also two poses in
    # space, with data.representation.six_d.
    relative: tuple[tuple[str, str], ...] = ()
    # Octaves of sines and cosines added to the features of an observation.
    octaves: int = 0
    # A place where one observation is resolved finely.
    focus: FocusConfig | None = None
    # The encoder of cameras, where the task space has some.
    picture: PictureConfig = field(default_factory=PictureConfig)
    # Signals of the data that the policy is not shown: it learns to tell them from its pictures,
    # which it sees only through these estimates.
    estimated: tuple[EstimateConfig, ...] = ()
    # Peak learning rate of what estimates them, pictures' encoder included.
    estimate_lr: float = 2e-3
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
    # Whether the repeated last action past the end of an episode is imitated as well.
    imitate_padding: bool = False
    # Reflection symmetry of the task, if it has one.
    mirror: MirrorConfig | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.execute <= self.horizon:
            raise ConfigError(f"execute must be in 1..horizon={self.horizon}, got {self.execute}")
        if min(self.n_obs, self.width, self.blocks, self.batch_size) < 1:
            raise ConfigError("n_obs, width, blocks and batch_size must be at least 1")
        if not self.lr > 0 or not self.weight_decay >= 0:
            raise ConfigError(
                f"lr must be positive and weight_decay at least 0, got {self.lr},"
                f" {self.weight_decay}"
            )
        if not self.estimate_lr > 0:
            raise ConfigError(f"estimate_lr must be positive, got {self.estimate_lr}")
        if not 0 <= self.ema < 1 or not self.expansion > 0 or not self.observation_noise >= 0:
            raise ConfigError("ema must be in [0, 1), expansion positive, observation_noise >= 0")

    def batches(self) -> BatchSpec:
        """Windows of observations and actions."""
        return BatchSpec("windows", self.n_obs, self.horizon, self.batch_size)

    def policy_spec(self, space: TaskSpace) -> PolicySpec:
        """What the trained policy reads and writes."""
        seen = without_estimated(space, self.estimated)
        return PolicySpec(seen, self.n_obs, self.horizon, self.execute, self.normalization)


@dataclass(frozen=True, slots=True)
class FieldConfig(ChunkConfig):
    """A policy whose network sees noisy chunks."""

    # Network over chunks: mlp and mixer are the fastest on a CPU, unet and dit want a GPU.
    net: NetKind = "mlp"
    # Size of the UNet.
    conv: ConvConfig = field(default_factory=ConvConfig)
    # Attention heads of the transformer (dit).
    heads: int = 4

    def size(self) -> NetSize:
        """Of the network."""
        return NetSize(self.net, self.width, self.blocks, self.expansion, self.heads, self.conv)


def from_scratch(name: str, parent: Run | None) -> None:
    """Refuse a parent run, for algorithms that have no use for one."""
    if parent is not None:
        raise ConfigError(f"{name} starts from scratch: drop 'parent' from the experiment")


class ChunkModel(nn.Module):
    """Encoders, action codec, and the way from noise to a normalised chunk."""

    # Arrays of noise [horizon, action] that one chunk takes.
    draws = 1

    def __init__(self, config: ChunkConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        # What it sees, and what it believes beside that.
        self.told = with_estimated(spec, config.estimated, stats)
        self.encoder = SignalEncoder(
            self.told, stats, config.relative, config.octaves, config.focus
        )
        self.codec = ActionCodec(spec, stats, config.anchor)
        self.horizon, self.action_size = spec.horizon, spec.task_space.action_size
        self.n_obs, self.noise = spec.n_obs, config.observation_noise
        cameras = tuple(s for s in spec.task_space.observations if s.is_image)
        self.pictures = PictureEncoder(cameras, spec.n_obs, config.picture) if cameras else None
        self.estimator: Estimator | None = None
        self.flat_size = spec.n_obs * self.encoder.lifted_size
        if self.pictures is not None and config.estimated:
            inputs = self.pictures.size // spec.n_obs
            self.estimator = Estimator(config.estimated, self.told, stats, inputs, config.width)
        elif self.pictures is not None:
            self.flat_size += self.pictures.size
        encoder = text_encoder(spec.task_space)
        self.reads = encoder is not None
        said = 0 if encoder is None else encoder.size
        self.seen_size = config.width
        self.context_size = self.flat_size + self.seen_size
        self.observe = nn.Sequential(
            nn.Linear(self.flat_size + said, config.width),
            nn.SiLU(),
            nn.Linear(config.width, config.width),
        )

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.codec.high.device

    def context(
        self, observations: Mapping[str, Tensor], rng: torch.Generator | None = None
    ) -> Tensor:
        """What the rest needs of observations ``[b, n_obs, *shape]``, once per chunk: ``[b, c]``.

        ``rng``: in training, for noise on vectors and crops of pictures. Estimated signals that are
        there already are taken as they are.
        """
        if self.estimator is not None and not observations.keys() >= {*self.estimator.names}:
            believed = self.estimator(self.looked(observations, rng))
            observations = {**observations, **self.estimator.signals(believed)}
        features = self.encoder(observations)
        if rng is not None and self.noise > 0:
            features = features + self.noise * randn(features, rng)
        flat = self.encoder.lift(features).flatten(1)
        if self.pictures is not None and self.estimator is None:
            flat = torch.cat([flat, self.pictures(observations, rng)], dim=-1)
        told = torch.cat([flat, observations[TEXT]], dim=-1) if self.reads else flat
        return torch.cat([flat, self.observe(told)], dim=-1)

    def looked(self, observations: Mapping[str, Tensor], rng: torch.Generator | None) -> Tensor:
        """Features of all cameras, one row per observation ``[b, n_obs, f]``."""
        if self.pictures is None:
            raise ConfigError("no cameras are observed")
        return self._by_time(self.pictures(observations, rng))

    def _by_time(self, seen: Tensor) -> Tensor:
        cameras = 0 if self.pictures is None else len(self.pictures.cameras)
        apart = seen.view(seen.shape[0], cameras, self.n_obs, -1)
        return apart.transpose(1, 2).flatten(2)

    def parts(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """A context's features ``[b, flat]`` and what a layer made of them ``[b, width]``."""
        sizes = [int(context.shape[1]) - self.seen_size, self.seen_size]
        flat, seen = context.split(sizes, dim=1)
        return flat, seen

    def sequence(self, flat: Tensor) -> Tensor:
        """A context's features as one token per observation, oldest first ``[b, n_obs, f]``."""
        vectors = self.n_obs * self.encoder.lifted_size
        tokens = flat[:, :vectors].view(flat.shape[0], self.n_obs, -1)
        if self.pictures is None or self.estimator is not None:
            return tokens
        return torch.cat([tokens, self._by_time(flat[:, vectors:])], dim=-1)

    @abstractmethod
    def generate(self, noise: Tensor, context: Tensor) -> Tensor:
        """Normalised chunks ``[b, h, a]`` from standard normal ``noise [b, draws, h, a]``."""


class FieldModel(ChunkModel):
    """A network over noisy chunks, told how noisy they are by ``clocks`` numbers in [0, 1]."""

    # Of the features of a clock, see time_features.
    fastest = 200.0
    known = 0  # First actions that may be given in training (policies/chunks/prefix.py).

    def __init__(
        self,
        config: FieldConfig,
        spec: PolicySpec,
        stats: DatasetStats,
        clocks: int = 1,
        extra_inputs: int = 0,
    ) -> None:
        super().__init__(config, spec, stats)
        self.clock = nn.Linear(clocks * TIME_FEATURES, config.width)
        inputs = self.action_size + extra_inputs
        self.net = build_net(config.size(), self.horizon, inputs, self.action_size, self.flat_size)

    def raw(self, x: Tensor, clocks: tuple[Tensor, ...], context: Tensor) -> Tensor:
        """The network's answer ``[b, h, a]`` to ``x [b, h, i]`` and ``clocks``, each ``[b]``."""
        flat, seen = self.parts(context)
        told = self.clock(
            torch.cat([time_features(c, TIME_FEATURES, self.fastest) for c in clocks], dim=-1)
        )
        return self.net.trunk(x, flat, self.net.modulation(seen + told))

    def march(self, x: Tensor, steps: tuple[Step, ...], context: Tensor) -> Tensor:
        """``x [b, h, a]`` after ``steps``; the modulations of all of them are one product."""
        flat, seen = self.parts(context)
        features = clock_features(steps, TIME_FEATURES, self.fastest, x.device)
        modulations = self.net.modulation(seen + self.clock(features)[:, None])
        for step, modulation in zip(steps, modulations, strict=True):
            answer = self.net.trunk(self.shown(step.scale * x), flat, modulation)
            x = torch.add(step.keep * x, answer, alpha=step.add)
        return x

    def shown(self, x: Tensor) -> Tensor:
        """What the network sees of a scaled chunk that continues nothing ``[b, h, i]``."""
        return x

    @abstractmethod
    def velocity(self, x_t: Tensor, t: Tensor, context: Tensor) -> Tensor:
        """Of x_t along the path ``x_t = (1 - t) noise + t data``, ``t [b]`` in [0, 1).

        Every member of the family answers in these terms, whatever it was trained in, so that
        they can be composed and guided alike.
        """

    @abstractmethod
    def times(self) -> Tensor:
        """Times of the sampler's steps, from 0 to 1."""

    def continued(
        self, noise: Tensor, context: Tensor, prefix: Prefix, guidance: GuidanceConfig
    ) -> Tensor:
        """As :meth:`generate`, but chunks that continue a prefix."""
        times = self.times()
        if len(times) <= guidance.least_steps:
            times = torch.tensor(equal_times(guidance.least_steps), device=self.device)
        return guided(self.velocity, noise[:, 0], times, context, prefix, guidance)


def randn(like: Tensor, rng: torch.Generator) -> Tensor:
    """Standard normal noise in the shape and on the device of ``like``."""
    return torch.randn(like.shape, generator=rng).to(like.device)


def uniform(count: int, rng: torch.Generator, device: torch.device) -> Tensor:
    """Stratified numbers in [0, 1): one in each of ``count`` equal slices, in order, which lowers
    the gradient's variance.
    """
    return ((torch.arange(count) + torch.rand(count, generator=rng)) / count).to(device)


@dataclass(frozen=True, slots=True)
class Lesson:
    """A batch in network units: chunks ``[b, h, a]``, contexts ``[b, c]``, and which actions count
    ``[b, h, 1]`` (bool); beside it the batch in SI units that it comes from.
    """

    actions: Tensor
    context: Tensor
    weight: Tensor
    batch: Batch

    def mean(self, values: Tensor) -> Tensor:
        """Mean of ``values [b, h, a]`` over the actions that count; 0 if none does."""
        weight = self.weight.expand_as(values)
        return (values * weight).sum() / weight.sum().clamp(min=1)


class ChunkAlgorithm(Algorithm):
    """Trains a model and keeps an exponential moving average of it, which is the policy."""

    def __init__(self, name: str, config: ChunkConfig, spec: PolicySpec, model: ChunkModel) -> None:
        super().__init__()
        self.name, self.spec, self.batch_spec = name, spec, config.batches()
        self.shared = config
        self.model = model
        if model.pictures is not None:
            model.pictures.start_from_file()
        self.ema = copy.deepcopy(model).requires_grad_(requires_grad=False)
        space = model.told.task_space
        self.mirror = None if config.mirror is None else Mirror(config.mirror, space)

    @abstractmethod
    def losses(self, lesson: Lesson, step: int, rng: torch.Generator) -> Losses:
        """The loss of one batch."""

    def groups(self) -> Mapping[str, ParamGroup]:
        """One group; one more where signals are estimated, for all that looks at pictures."""
        model, decay = self.model, self.shared.weight_decay
        parameters = tuple(p for p in model.parameters() if p.requires_grad)
        if model.estimator is None or model.pictures is None:
            return {self.name: ParamGroup(parameters, self.shared.lr, decay)}
        looking = (*model.pictures.parameters(), *model.estimator.parameters())
        apart = {id(p) for p in looking}
        rest = tuple(p for p in parameters if id(p) not in apart)
        return {
            self.name: ParamGroup(rest, self.shared.lr, decay),
            ESTIMATE: ParamGroup(looking, self.shared.estimate_lr, decay),
        }

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Encode the batch, and ask for its loss."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        batch, looking = self._looked(batch, rng)
        context = self.model.context(batch.observations, rng)
        actions = self.model.codec.encode(batch.actions, batch.observations)
        mask = batch.action_mask | self.shared.imitate_padding
        losses = self.losses(Lesson(actions, context, mask[..., None], batch), step, rng)
        return dataclasses.replace(losses, by_group={**losses.by_group, **looking})

    def _looked(self, batch: Batch, rng: torch.Generator) -> tuple[Batch, dict[str, Tensor]]:
        """The batch as the policy will see it, and the error of what it tells from pictures."""
        estimator = self.model.estimator
        if estimator is None:
            return batch, {}
        estimates = estimator(self.model.looked(batch.observations, rng))
        error = estimator.loss(estimates, batch.observations)
        believed = estimator.signals(estimates.detach())
        seen = {**batch.observations, **believed}
        return dataclasses.replace(batch, observations=seen), {ESTIMATE: error}

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the average; its decay warms up so that early weights are soon forgotten."""
        decay = min(self.shared.ema, (1 + step) / (10 + step))
        move_towards(self.ema, self.model, 1 - decay)

    def policy_weights(self) -> Mapping[str, Tensor]:
        """The averaged weights."""
        return self.ema.state_dict()


class ChunkPolicy:
    """Samples chunks; row ``i`` depends on row ``i`` of the request alone."""

    def __init__(self, model: ChunkModel, spec: PolicySpec) -> None:
        self.model, self._spec = model, spec

    @property
    def spec(self) -> PolicySpec:
        """Task space, horizons, normalisation."""
        return self._spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row; candidate 0 is the same for every ``n``."""
        return answer(self.model, self._spec, request, n, self.model.generate)


class FieldChunkPolicy:
    """A policy with a velocity field. A request with a prefix is answered by a chunk that continues
    it (``policies/chunks/guidance.py``).
    """

    def __init__(
        self, model: FieldModel, spec: PolicySpec, guidance: GuidanceConfig = AUTO
    ) -> None:
        self.model, self.guidance, self._spec = model, guidance, spec
        self.continues = ways(model.known)

    @property
    def spec(self) -> PolicySpec:
        """Task space, horizons, normalisation."""
        return self._spec

    def field(self, x_t: Tensor, t: Tensor, context: Tensor) -> Tensor:
        """Velocity ``[b, horizon, action]`` in normalised actions."""
        return self.model.velocity(x_t, t, context)

    def context(self, request: PolicyInput) -> Tensor:
        """The encoded observations ``[b, c]`` for :meth:`field`."""
        return self.model.context(on(self.model.device, request_tensors(request, self._spec)))

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row; candidate 0 is the same for every ``n``."""
        prefix = encoded_prefix(self.model, self._spec, request, n)
        if prefix is None:
            return answer(self.model, self._spec, request, n, self.model.generate)

        def continued(noise: Tensor, context: Tensor) -> Tensor:
            return self.model.continued(noise, context, prefix, self.guidance)

        return answer(self.model, self._spec, request, n, continued, gradients=True)


def on(device: torch.device, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors on ``device``, from the CPU."""
    if device.type == "cpu":
        return dict(tensors)
    return {name: value.to(device) for name, value in tensors.items()}


def encoded_prefix(
    model: ChunkModel, spec: PolicySpec, request: PolicyInput, n: int
) -> Prefix | None:
    """What the chunks should continue, normalised, once for every candidate."""
    wanted = request_prefix(request, spec)
    if wanted is None:
        return None
    seen = on(model.device, request_tensors(request, spec))
    before, weight = (v.to(model.device) for v in wanted)
    with torch.no_grad():
        encoded = model.codec.encode(before, seen)
    return Prefix(encoded.repeat_interleave(n, dim=0), weight.repeat_interleave(n, dim=0))


def answer(
    model: ChunkModel,
    spec: PolicySpec,
    request: PolicyInput,
    n: int,
    generate: Callable[[Tensor, Tensor], Tensor],
    *,
    gradients: bool = False,
) -> PolicyOutput:
    """``n`` chunks per row, each from noise of its row's seed; ``gradients``: ``generate`` takes
    some.
    """
    begin = time.perf_counter_ns()
    shape, device = (n, model.draws, model.horizon, model.action_size), model.device
    with torch.no_grad() if gradients else torch.inference_mode():
        seen = on(device, request_tensors(request, spec))
        context = model.context(seen)
        if n > 1:
            context = context.repeat_interleave(n, dim=0)
            seen = {k: v.repeat_interleave(n, dim=0) for k, v in seen.items()}
        noise = torch.from_numpy(request_noise(request.seed, shape)).flatten(0, 1)
        x = generate(noise.to(device), context)
        chunk = model.codec.decode(x, seen).cpu()
        actions = chunk.view(-1, n, *shape[2:]).double().numpy()
    return PolicyOutput(
        actions=actions,
        scores=np.zeros(actions.shape[:2]),
        t_ns=request.t_ns,
        latency_ns=time.perf_counter_ns() - begin,
    )
