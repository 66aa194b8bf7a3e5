"""Gives policies that imitate chunks what they share: configuration, encoding, training, averaging.

    observations --encoder, pictures--> flat --observe--> context = [flat | seen]
    actions [b, h, a] <--codec--> normalised chunk <--the algorithm-- noise [b, draws, h, a]

An algorithm file adds a configuration, a model with a way from noise to a chunk, and its loss.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn

from policies.chunks.mirror import Mirror, MirrorConfig
from policies.chunks.policy import ChunkPolicy, ChunkSampler, FieldChunkPolicy, FieldSampler
from policies.chunks.sampler_steps import Step, clock_features
from policies.nets.chunk_net import ConvConfig, NetKind, NetSize, build_net
from policies.nets.encoder import ActionCodec, FocusConfig, SignalEncoder
from policies.nets.estimator import EstimateConfig, Estimator, with_estimated, without_estimated
from policies.nets.pictures import PictureConfig, PictureEncoder
from policies.nets.residual_mlp import time_features
from policies.nets.shapes import (
    AnyShape,
    ChunkMask,
    Chunks,
    Context,
    Features,
    Hidden,
    MarkedChunks,
    Rows,
    Scalar,
    Tokens,
)
from robolearn.contracts import Normalization, Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.instructions import TEXT, text_encoder
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchSpec,
    FutureSpec,
    Losses,
    Observed,
    ParamGroup,
    Weights,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights

ConfigT = TypeVar("ConfigT", bound="ChunkConfig")
ModelT = TypeVar("ModelT", bound="ChunkModel")

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
    # Later observations that become goals in training (goal-conditioned behaviour cloning), such as
    # {rest: 1.0, goals: [[goal/state, obs/state]]}; null: the recordings' own, if they have some.
    future: FutureSpec | None = None

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
        if self.future is not None and not self.future.goals:
            raise ConfigError(
                "future: name the goals that it is for, such as goals: [[goal/state, obs/state]]"
            )

    def batches(self) -> BatchSpec:
        """Windows of observations and actions."""
        return BatchSpec(self.n_obs, self.horizon, self.batch_size, future=self.future)

    def policy_spec(self, space: TaskSpace) -> PolicySpec:
        """What the trained policy reads and writes."""
        seen = without_estimated(space, self.estimated)
        return PolicySpec(seen, self.n_obs, self.horizon, self.execute, self.normalization)

    @abstractmethod
    def algorithm(self) -> type[ChunkAlgorithm[Any, Any]]:
        """What trains it, and names its model and its policy."""

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """An untrained algorithm; initial weights come from torch's global generator."""
        kind, spec = self.algorithm(), self.policy_spec(space)
        if parent is not None:
            raise ConfigError(f"{kind.name} starts from scratch: drop 'parent' from the experiment")
        return kind(self, spec, kind.model_class(self, spec, stats))

    def load(self, run: Run) -> Policy:
        """The trained policy of a run directory; a parent is not needed any more."""
        kind = self.algorithm()
        model = kind.model_class(self, run.spec, run.stats)
        load_weights(model, run.weights, str(run.path))
        return kind.policy_class(model.eval(), run.spec)


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


class ChunkModel(ChunkSampler):
    """Encoders, action codec, and the way from noise to a normalised chunk."""

    def __init__(self, config: ChunkConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        # What it sees, and what it believes beside that.
        self.input_spec = with_estimated(spec, config.estimated, stats)
        self.encoder = SignalEncoder(
            self.input_spec, stats, config.relative, config.octaves, config.focus
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
            self.estimator = Estimator(
                config.estimated, self.input_spec, stats, inputs, config.width
            )
        elif self.pictures is not None:
            self.flat_size += self.pictures.size
        encoder = text_encoder(spec.task_space)
        self.reads = encoder is not None
        text_size = 0 if encoder is None else encoder.size
        self.seen_size = config.width
        self.context_size = self.flat_size + self.seen_size
        self.observe = nn.Sequential(
            nn.Linear(self.flat_size + text_size, config.width),
            nn.SiLU(),
            nn.Linear(config.width, config.width),
        )

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """What the rest needs of observations ``[b, n_obs, *shape]``, once per chunk: ``[b, c]``.

        ``rng``: in training, for noise on vectors and crops of pictures. Estimated signals that are
        there already are taken as they are.
        """
        observations = self.with_estimates(observations, rng)
        features = self.encoder(observations)
        if rng is not None and self.noise > 0:
            features = features + self.noise * randn(features, rng)
        flat = self.encoder.lift(features).flatten(1)
        if self.pictures is not None and self.estimator is None:
            flat = torch.cat([flat, self.pictures(observations, rng)], dim=-1)
        features_and_text = torch.cat([flat, observations[TEXT]], dim=-1) if self.reads else flat
        return torch.cat([flat, self.observe(features_and_text)], dim=-1)

    def with_estimates(
        self, observations: Observed, rng: torch.Generator | None = None
    ) -> Observed:
        """With the signals that it tells from its pictures, where they are not there already."""
        if self.estimator is None or observations.keys() >= {*self.estimator.names}:
            return observations
        believed = self.estimator(self.camera_features(observations, rng))
        return {**observations, **self.estimator.signals(believed)}

    def camera_features(self, observations: Observed, rng: torch.Generator | None) -> Tokens:
        """Features of all cameras, one row per observation ``[b, n_obs, f]``."""
        if self.pictures is None:
            raise ConfigError("no cameras are observed")
        return self._by_time(self.pictures(observations, rng))

    def _by_time(self, seen: Tensor) -> Tensor:
        cameras = 0 if self.pictures is None else len(self.pictures.cameras)
        apart = seen.view(seen.shape[0], cameras, self.n_obs, -1)
        return apart.transpose(1, 2).flatten(2)

    def split_context(self, context: Context) -> tuple[Features, Hidden]:
        """A context's features ``[b, flat]`` and what a layer made of them ``[b, width]``."""
        sizes = [int(context.shape[1]) - self.seen_size, self.seen_size]
        flat, hidden = context.split(sizes, dim=1)
        return flat, hidden

    def sequence(self, flat: Hidden) -> Tokens:
        """A context's features as one token per observation, oldest first ``[b, n_obs, f]``."""
        vectors = self.n_obs * self.encoder.lifted_size
        tokens = flat[:, :vectors].view(flat.shape[0], self.n_obs, -1)
        if self.pictures is None or self.estimator is not None:
            return tokens
        return torch.cat([tokens, self._by_time(flat[:, vectors:])], dim=-1)


class FieldModel(ChunkModel, FieldSampler):
    """A network over noisy chunks, told how noisy they are by ``clocks`` numbers in [0, 1]."""

    # Of the features of a clock, see time_features.
    fastest = 200.0

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

    def raw(self, x: MarkedChunks, clocks: tuple[Rows, ...], context: Context) -> Chunks:
        """The network's answer ``[b, h, a]`` to ``x [b, h, i]`` and ``clocks``, each ``[b]``."""
        flat, hidden = self.split_context(context)
        clock = self.clock(
            torch.cat([time_features(c, TIME_FEATURES, self.fastest) for c in clocks], dim=-1)
        )
        return self.net.trunk(x, flat, self.net.modulation(hidden + clock))

    def integrate(self, x: Chunks, steps: tuple[Step, ...], context: Context) -> Chunks:
        """``x [b, h, a]`` after ``steps``; the modulations of all of them are one product."""
        flat, hidden = self.split_context(context)
        features = clock_features(steps, TIME_FEATURES, self.fastest, x.device)
        modulations = self.net.modulation(hidden + self.clock(features)[:, None])
        for step, modulation in zip(steps, modulations, strict=True):
            answer = self.net.trunk(self.net_input(step.scale * x), flat, modulation)
            x = torch.add(step.keep * x, answer, alpha=step.add)
        return x

    def net_input(self, x: Chunks) -> MarkedChunks:
        """What the network sees of a scaled chunk that continues nothing ``[b, h, i]``."""
        return x


def randn(like: AnyShape, rng: torch.Generator) -> AnyShape:
    """Standard normal noise in the shape and on the device of ``like``."""
    return torch.randn(like.shape, generator=rng).to(like.device)


def uniform(count: int, rng: torch.Generator, device: torch.device) -> Rows:
    """Stratified numbers in [0, 1): one in each of ``count`` equal slices, in order, which lowers
    the gradient's variance.
    """
    return ((torch.arange(count) + torch.rand(count, generator=rng)) / count).to(device)


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """A batch in network units: chunks ``[b, h, a]``, contexts ``[b, c]``, and which actions count
    ``[b, h, 1]`` (bool); beside it the batch in SI units that it comes from.
    """

    actions: Chunks
    context: Context
    weight: ChunkMask
    source: Batch

    def mean(self, values: Chunks) -> Scalar:
        """Mean of ``values [b, h, a]`` over the actions that count; 0 if none does."""
        weight = self.weight.expand_as(values)
        return (values * weight).sum() / weight.sum().clamp(min=1)


class ChunkAlgorithm(Algorithm, Generic[ConfigT, ModelT]):
    """Trains a model and keeps an exponential moving average of it, which is the policy."""

    # What the policy is called, the model that is trained, and what answers requests by it.
    name: ClassVar[str]
    model_class: ClassVar[type[ChunkModel]]
    policy_class: ClassVar[type[Any]] = ChunkPolicy

    def __init__(self, config: ConfigT, spec: PolicySpec, model: ModelT) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, spec, config.batches()
        self.model: ModelT = model
        if model.pictures is not None:
            model.pictures.start_from_file()
        self.ema: ModelT = copy.deepcopy(model)
        self.ema.requires_grad_(requires_grad=False)
        space = model.input_spec.task_space
        self.mirror = None if config.mirror is None else Mirror(config.mirror, space)

    @abstractmethod
    def losses(self, encoded: EncodedBatch, step: int, rng: torch.Generator) -> Losses:
        """The loss of one batch."""

    def groups(self) -> Mapping[str, ParamGroup]:
        """One group; one more where signals are estimated, for all that looks at pictures."""
        model, decay = self.model, self.config.weight_decay
        parameters = tuple(p for p in model.parameters() if p.requires_grad)
        if model.estimator is None or model.pictures is None:
            return {self.name: ParamGroup(parameters, self.config.lr, decay)}
        looking = (*model.pictures.parameters(), *model.estimator.parameters())
        apart = {id(p) for p in looking}
        rest = tuple(p for p in parameters if id(p) not in apart)
        return {
            self.name: ParamGroup(rest, self.config.lr, decay),
            ESTIMATE: ParamGroup(looking, self.config.estimate_lr, decay),
        }

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Encode the batch, and ask for its loss."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        batch, looking = self._estimated(batch, rng)
        context = self.model.context(batch.observations, rng)
        actions = self.model.codec.encode(batch.actions, batch.observations)
        mask = batch.action_mask | self.config.imitate_padding
        losses = self.losses(EncodedBatch(actions, context, mask[..., None], batch), step, rng)
        return dataclasses.replace(losses, by_group={**losses.by_group, **looking})

    def _estimated(self, batch: Batch, rng: torch.Generator) -> tuple[Batch, dict[str, Tensor]]:
        """The batch as the policy will see it, and the error of what it tells from pictures."""
        estimator = self.model.estimator
        if estimator is None:
            return batch, {}
        estimates = estimator(self.model.camera_features(batch.observations, rng))
        error = estimator.loss(estimates, batch.observations)
        believed = estimator.signals(estimates.detach())
        observations = {**batch.observations, **believed}
        return dataclasses.replace(batch, observations=observations), {ESTIMATE: error}

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the average; its decay warms up so that early weights are soon forgotten."""
        decay = min(self.config.ema, (1 + step) / (10 + step))
        move_towards(self.ema, self.model, 1 - decay)

    def policy_weights(self) -> Weights:
        """The averaged weights."""
        return self.ema.state_dict()

    def policy(self) -> Policy:
        """The policy with the averaged weights."""
        return self.policy_class(self.ema, self.spec)


class FieldAlgorithm(ChunkAlgorithm[ConfigT, ModelT]):
    """Trains a model with a velocity field."""

    policy_class = FieldChunkPolicy


def move_towards(average: nn.Module, online: nn.Module, share: float) -> None:
    """``average += share * (online - average)`` for every parameter, in place."""
    old: list[Tensor] = list(average.parameters())
    new: list[Tensor] = list(online.parameters())
    with torch.no_grad():
        get_ema_multi_avg_fn(1.0 - share)(old, new, 0)
