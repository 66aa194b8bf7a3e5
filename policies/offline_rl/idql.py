"""Ranks anew by offline RL: chunked IQL critics choose among chunks of a parent flow policy.

    V:  E[ L_k( min_i Qbar_i(o, A) - V(o) ) ],    L_k(u) = |k - 1(u < 0)| u^2
    Q:  E[ sum_i ( Q_i(o, A) - (R + g^s m V(o')) )^2 ]

with ``A`` the first ``stride`` actions of a chunk, ``R`` their discounted reward and ``o'`` the
observation after them. No action is ever sampled in training (Kostrikov et al. 2021), chunks as in
Q-chunking (Li, Zhou, Levine 2025), extraction as in IDQL (Hansen-Estruch et al. 2023): of ``n``
chunks of the behaviour policy the one with the highest min Q is executed.
"""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from policies.chunks.base import move_towards
from policies.chunks.mirror import Mirror, MirrorConfig
from policies.chunks.request import request_tensors
from policies.nets.encoder import ActionCodec, FocusConfig, SignalEncoder, refuse_pictures
from policies.nets.shapes import AnyShape, ChunkFeatures, Chunks, Features, Rows, TwinRows
from policies.registry import policy_of
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.learning import Algorithm, Batch, BatchSpec, Losses, Observed, ParamGroup, Weights
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import PARENT, Run, load_weights, nested_run
from robolearn.types import PolicyInput, PolicyOutput


@dataclass(frozen=True, slots=True)
class IqlRerankConfig:
    """Chunked IQL critics over a parent policy."""

    # Observations that the critics see; must equal the parent's.
    n_obs: int = 2
    # Chunk length of the parent.
    horizon: int = 16
    # Steps of a chunk that the critics judge; normally what is executed of it.
    stride: int = 8
    # Discount per control step.
    discount: float = 0.99
    # Expectile of V: 0.5 is the behaviour's mean, towards 1 its best.
    expectile: float = 0.9
    # Hidden units of the critics' two layers.
    width: int = 256
    # Samples per update.
    batch_size: int = 256
    # Learning rate of AdamW, both groups.
    lr: float = 1e-3
    # Decoupled weight decay.
    weight_decay: float = 1e-4
    # Polyak rate of the target critics.
    tau: float = 0.01
    # Noise added to normalised observations in training, standard deviation.
    observation_noise: float = 0.002
    # Pairs (position, pose), see the flow policy.
    relative: tuple[tuple[str, str], ...] = ()
    # A place where one observation is resolved finely, see the flow policy.
    focus: FocusConfig | None = None
    # Gain on actions relative to the tool, see the flow policy.
    anchor: float = 0.0
    # Chunks of the parent to choose from.
    candidates: int = 4
    # What another chunk's value must gain over the parent's own first one to be preferred. Below
    # the critics' error a difference means nothing, and the best of many picks their mistakes.
    margin: float = 0.02
    # Reflection symmetry of the task, if it has one.
    mirror: MirrorConfig | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.horizon:
            raise ConfigError(f"stride must be in 1..horizon={self.horizon}, got {self.stride}")
        if not 0.0 < self.expectile < 1.0 or not 0.0 < self.discount <= 1.0:
            raise ConfigError("expectile must be in (0, 1), discount in (0, 1]")
        if not self.lr > 0:
            raise ConfigError(f"lr must be positive, got {self.lr}")
        if min(self.n_obs, self.width, self.batch_size, self.candidates) < 1:
            raise ConfigError("n_obs, width, batch_size and candidates must be at least 1")

    def batches(self) -> BatchSpec:
        """Chunked transitions."""
        return BatchSpec(
            self.n_obs,
            self.horizon,
            self.batch_size,
            ("transition",),
            self.discount,
            self.stride,
        )

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> IqlRerank:
        """Untrained critics over the policy of ``parent``."""
        if parent is None:
            raise ConfigError("iql_rerank needs a parent run: --parent RUN (a trained flow policy)")
        if space.texts:
            raise ConfigError("iql_rerank: the critics read no instructions; leave data.text out")
        if parent.config.get("policy") == "iql_rerank":
            raise ConfigError(
                f"the parent '{parent.path}' re-ranks another run itself; give the policy that it"
                " builds on"
            )
        if parent.spec.task_space != space:
            raise SpecMismatchError(
                f"the parent '{parent.path}' reads and writes another task space than the data:"
                f" {parent.spec.task_space} against {space}"
            )
        if (parent.spec.n_obs, parent.spec.horizon) != (self.n_obs, self.horizon):
            raise ConfigError(
                f"n_obs and horizon must be the parent's ({parent.spec.n_obs},"
                f" {parent.spec.horizon}), got ({self.n_obs}, {self.horizon})"
            )
        return IqlRerank(self, parent.spec, stats, policy_of(parent))

    def load(self, run: Run) -> RerankedPolicy:
        """The trained critics over the parent kept inside the run directory."""
        critics = Critics(self, run.spec, run.stats)
        load_weights(critics, run.weights, str(run.path))
        if not (run.path / PARENT).is_dir():
            raise CheckpointError(
                f"'{run.path}' lacks the folder 'parent' with the policy it re-ranks"
            )
        return RerankedPolicy(critics.eval(), policy_of(nested_run(run, PARENT)), self)


class Critics(nn.Module):
    """Twin Q(o, A) and V(o) with layer norms after the activations, as in the OGBench family."""

    def __init__(self, config: IqlRerankConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        refuse_pictures(spec)
        self.encoder = SignalEncoder(spec, stats, config.relative, 0, config.focus)
        self.codec = ActionCodec(spec, stats, config.anchor)
        self.stride = config.stride
        features = spec.n_obs * self.encoder.size
        chunk = config.stride * spec.task_space.action_size
        self.q = nn.ModuleList(_mlp(features + chunk, config.width) for _ in range(2))
        self.v = _mlp(features, config.width)

    def features(self, observations: Observed) -> Features:
        """Flat features ``[b, f]``."""
        return self.encoder(observations).flatten(1)

    def chunk(self, actions: Chunks, observations: Observed) -> ChunkFeatures:
        """The part of the chunks ``[b, h, a]`` (SI units) that is judged, normalised and flat."""
        return self.codec.encode(actions[:, : self.stride], observations).flatten(1)

    def q_values(self, features: Features, chunk: ChunkFeatures) -> TwinRows:
        """``[2, b]``."""
        x = torch.cat([features, chunk], dim=-1)
        return torch.stack([q(x).squeeze(-1) for q in self.q])

    def value(self, features: Features) -> Rows:
        """``[b]``."""
        return self.v(features).squeeze(-1)


def expectile_loss(difference: AnyShape, expectile: float) -> AnyShape:
    """``|k - 1(u < 0)| u^2``, elementwise (Kostrikov et al. 2021, equation 4)."""
    return (expectile - (difference < 0).float()).abs() * difference**2


class IqlRerank(Algorithm):
    """Trains the critics; the parent policy stays as it is."""

    def __init__(
        self, config: IqlRerankConfig, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, spec, config.batches()
        self.critics = Critics(config, spec, stats)
        self.target = copy.deepcopy(self.critics.q).requires_grad_(requires_grad=False)
        self.mirror = None if config.mirror is None else Mirror(config.mirror, spec.task_space)
        self._parent = parent

    def groups(self) -> Mapping[str, ParamGroup]:
        """``value`` and ``critic``."""
        c = self.config
        return {
            "value": ParamGroup(tuple(self.critics.v.parameters()), c.lr, c.weight_decay),
            "critic": ParamGroup(tuple(self.critics.q.parameters()), c.lr, c.weight_decay),
        }

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:  # noqa: ARG002
        """Expectile loss of V and squared TD error of both Q."""
        if self.mirror is not None:
            batch = self.mirror.draw(batch, rng)
        if batch.reward is None or batch.next_observations is None or batch.bootstrap is None:
            raise ConfigError("iql_rerank is fed with chunked transitions")
        critics = self.critics
        now = self._noisy(critics.features(batch.observations), rng)
        chunk = critics.chunk(batch.actions, batch.observations)
        with torch.no_grad():
            x = torch.cat([now, chunk], dim=-1)
            judged = torch.stack([q(x).squeeze(-1) for q in self.target]).amin(dim=0)
            follow = critics.features(batch.next_observations)
            target = batch.reward + batch.bootstrap * critics.value(follow)
        value = critics.value(now)
        value_loss = expectile_loss(judged - value, self.config.expectile).mean()
        q = critics.q_values(now, chunk)
        critic_loss = ((q - target) ** 2).sum(dim=0).mean()
        metrics = {
            "q_mean": q.mean().item(),
            "v_mean": value.mean().item(),
            "target_std": target.std().item(),
        }
        return Losses({"value": value_loss, "critic": critic_loss}, metrics)

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Move the target critics."""
        move_towards(self.target, self.critics.q, self.config.tau)

    def policy(self) -> RerankedPolicy:
        """The parent, re-ranked by the critics as they are."""
        return RerankedPolicy(self.critics, self._parent, self.config)

    def policy_weights(self) -> Weights:
        """The critics; the parent is kept beside them as a run of its own."""
        return self.critics.state_dict()

    def _noisy(self, features: Tensor, rng: torch.Generator) -> Tensor:
        noise = torch.randn(features.shape, generator=rng)
        return features + self.config.observation_noise * noise


class RerankedPolicy:
    """Candidates of the parent, best min Q first; ``extras['changed']`` where that is not the
    chunk that the parent alone would have given.
    """

    def __init__(self, critics: Critics, parent: Policy, config: IqlRerankConfig) -> None:
        self.critics, self.parent, self.config = critics, parent, config

    @property
    def spec(self) -> PolicySpec:
        """The parent's."""
        return self.parent.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """The ``n`` best of the candidates per row."""
        begin = time.perf_counter_ns()
        count = max(n, self.config.candidates)
        drawn = self.parent.sample(request, count)
        batch = len(request.seed)
        with torch.inference_mode():
            observations = request_tensors(request, self.spec)
            observations = {k: v.repeat_interleave(count, dim=0) for k, v in observations.items()}
            chunks = torch.from_numpy(drawn.actions.astype(np.float32)).flatten(0, 1)
            q = self.critics.q_values(
                self.critics.features(observations), self.critics.chunk(chunks, observations)
            )
            scores = q.amin(dim=0).view(batch, count).double().numpy().copy()
        scores[:, 0] += self.config.margin
        order = np.argsort(-scores, axis=1, kind="stable")
        best = order[:, :n]
        return dataclasses.replace(
            drawn,
            actions=np.take_along_axis(drawn.actions, best[:, :, None, None], axis=1),
            scores=np.take_along_axis(scores, best, axis=1),
            latency_ns=time.perf_counter_ns() - begin,
            extras={"changed": order[:, 0] != 0},
        )


def _mlp(inputs: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(inputs, width),
        nn.GELU(),
        nn.LayerNorm(width),
        nn.Linear(width, width),
        nn.GELU(),
        nn.LayerNorm(width),
        nn.Linear(width, 1),
    )
