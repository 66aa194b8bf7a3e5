"""Learns a sampler's own steps from what its decisions led to: PPO over the chain of a chunk.

    rho = exp( log p(x_{k+1} | x_k, o) - log p_then )      of the steps taken, then: as it was flown
    policy: -E[ min( rho w A, clip(rho, 1 - c, 1 + c) w A ) ] + cloning |chunk - parent's|^2
    value:   E[ (V(o) - clip(worth))^2 ]

    A_i = d_i + g^s m trace A_{i+1},   d_i = R_i + g^s m V(o_{i+1}) - V(o_i),   worth = A + V

Schulman et al. 2017 on the two-level process of Ren et al. 2024: decisions of the world, and in
each of them the steps of the sampler, all of which get the decision's advantage. A file says what a
step is and how steps weigh.

What is learned from are decisions of the newest version alone, in passes over the last round, then
never again. A decision is made again from what its episode says (version, seed), so that nothing
else is recorded; advantages are by the values of the moment, once per pass. Before anything of its
own was flown (the warm-up; also ``robolearn train``, on recordings) values alone are learned, by
one step: R + g^s m V(o'); with a ``gate`` the policy, too (``gate.py``).

The density is that of the actions that are executed, as DPPO has it. A time limit ends a recording
without a last observation: the decision before it counts, and is followed by what the last one is
worth.
"""

from __future__ import annotations

import copy
import dataclasses
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import nn

from policies.chunks.base import ChunkAlgorithm, ChunkModel, randn
from policies.chunks.policy import ChunkPolicy, ChunkSampler
from policies.chunks.student import student_of, with_weights
from policies.critics.actor_critic import mlp
from policies.critics.bounds import require_bounded_rewards
from policies.critics.chunk_critic import ChunkCritic, CriticConfig
from policies.critics.denoising.chain import Chain
from policies.critics.denoising.gate import Gate, GateConfig
from policies.critics.observed import ObservedFeatures
from policies.critics.parent import inner_policy, judged_policy, kept_parent
from policies.nets.encoder import FocusConfig
from policies.nets.pictures import PictureConfig
from policies.nets.shapes import (
    ChainDensities,
    Chunks,
    RatioRows,
    RatioWeights,
    Rows,
    Scalar,
    StepRows,
)
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchSpec,
    DecisionSpec,
    Losses,
    Observed,
    ParamGroup,
    Replayed,
    Schedule,
    Weights,
    request_noise,
)
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights
from robolearn.types import RequestNumbers

ConfigT = TypeVar("ConfigT", bound="PolicyGradientConfig")

REMEDY = "practise it by residual, dsrl or idql, or"


@dataclass(frozen=True, slots=True)
class PolicyGradientConfig:
    """What policy gradients over a chain are configured by."""

    name: ClassVar[str]

    # Observations that the values see; must equal the parent's.
    n_obs: int = 2
    # Chunk length of the parent.
    horizon: int = 16
    # Steps of a chunk that are executed, and that densities are of: a decision every so many.
    stride: int = 8
    # Discount per control step: .98 per chunk of eight. DPPO: .999 per chunk of four.
    discount: float = 0.9975
    # How long advantages look at what happened instead of at values. DPPO: .95.
    trace: float = 0.95
    # Values are held in between; null: they are not.
    bounds: tuple[float, float] | None = (-1.0, 0.0)
    # Passes over a round. DPPO: 10; 5 where actors are few.
    passes: int = 5
    # Decisions per update. DPPO: 10,000; 500 in its smaller tasks.
    batch_size: int = 256
    # Largest change of a ratio that is rewarded. Both papers: .01.
    clip: float = 0.01
    # Learning rate of the policy. DPPO: 1e-4; Uni-O4's PPO: 2e-5, with clip .05.
    actor_lr: float = 1e-4
    # Learning rate of the values. DPPO: 1e-3.
    lr: float = 1e-3
    # How both go down; nobody knows when practice ends. null: as fit.schedule says.
    schedule: Schedule | None = "constant"
    # Decoupled weight decay of the values.
    weight_decay: float = 1e-4
    # Weight of the squared distance to the parent's chunks from the same noise, in normalised
    # actions. ReinFlow: W2 regularisation, optional.
    cloning: float = 0.0
    # Hidden units of a layer of the values. DPPO: 256.
    width: int = 256
    # Its hidden layers. DPPO: 3.
    depth: int = 3
    # Pairs (position, pose), see the flow policy.
    relative: tuple[tuple[str, str], ...] = ()
    # A place where one observation is resolved finely, see the flow policy.
    focus: FocusConfig | None = None
    # The encoder of cameras of the values, where the task space has some.
    picture: PictureConfig = field(default_factory=PictureConfig)
    # Learn from recordings, too, where off-policy evaluation rises (Uni-O4); null: values alone.
    gate: GateConfig | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.stride <= self.horizon:
            raise ConfigError(f"stride must be in 1..horizon={self.horizon}, got {self.stride}")
        if not 0.0 < self.discount <= 1.0 or not 0.0 <= self.trace <= 1.0:
            raise ConfigError(
                f"discount in (0, 1] and trace in [0, 1], got {self.discount}, {self.trace}"
            )
        if min(self.n_obs, self.passes, self.batch_size, self.width, self.depth) < 1:
            raise ConfigError("n_obs, passes, batch_size, width and depth must be at least 1")
        if not min(self.clip, self.actor_lr, self.lr) > 0 or not self.cloning >= 0:
            raise ConfigError("clip, actor_lr and lr must be positive, cloning at least 0")
        if self.bounds is not None and not self.bounds[0] < self.bounds[1]:
            raise ConfigError(f"bounds must rise, got {self.bounds}")

    @abstractmethod
    def algorithm(self) -> type[PolicyGradient[Any]]:
        """What trains it."""

    @abstractmethod
    def chain(self, model: ChunkModel, where: str) -> Chain:
        """The steps of ``model``'s sampler; :class:`ConfigError` for one that has none of these."""

    def batches(self) -> BatchSpec:
        """Decisions and what follows them."""
        return BatchSpec(
            self.n_obs,
            self.horizon,
            self.batch_size,
            ("transition",),
            self.discount,
            self.stride,
            self.stride,
            decisions=DecisionSpec(self.trace),
        )

    def practice(self) -> Mapping[str, Any]:
        """Rounds are large, for they are all that there is to learn from; the parent flies an
        eighth of them.
        """
        return {
            "lanes": 64,
            "parent_share": 0.125,
            # Those of a gate are all that is learned from the warm-up.
            "critic_updates": 1000 if self.gate is None else 4000,
            "updates_per_decision": self.passes / self.batch_size,
        }

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """The parent's network, to go on from, and untrained values."""
        judged_policy(parent, self.name, space, self.n_obs, self.horizon)
        if parent is None:
            raise ConfigError(f"{self.name} needs a parent run: --parent RUN (a trained policy)")
        if self.bounds is not None:
            require_bounded_rewards(stats.reward, self.discount, self.bounds)
        student = student_of(parent, space, REMEDY)
        self.chain(student.ema, str(parent.path))
        return self.algorithm()(self, student, stats)

    def critic(self, members: int, spec: PolicySpec, stats: DatasetStats) -> ChunkCritic:
        """Untrained critics of what is executed, as large as the values."""
        size = CriticConfig(
            members, self.width, self.depth, self.relative, self.focus, self.picture
        )
        return ChunkCritic(size, spec, stats, self.stride)

    def load(self, run: Run) -> Policy:
        """The parent with the weights of ``run``, without noise: a policy of its kind."""
        return inner_policy(with_weights(kept_parent(run), run.weights, "chain.model."))

    def explorer(self, run: Run) -> Policy:
        """Who acts while practising: the chain with its noise."""
        student = student_of(kept_parent(run), run.spec.task_space, REMEDY)
        chain = self.chain(student.ema, str(run.path))
        theirs = with_weights(run, run.weights, "chain.").weights
        load_weights(chain, theirs, str(run.path))
        return ChunkPolicy(chain.eval(), run.spec)


class Values(nn.Module):
    """What is expected from what is observed."""

    def __init__(self, config: PolicyGradientConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__()
        self.observed = ObservedFeatures(
            spec, stats, relative=config.relative, focus=config.focus, picture=config.picture
        )
        self.net = mlp(self.observed.size, 1, config.width, config.depth)

    def forward(self, observations: Observed) -> Rows:
        """``[b]``."""
        return self.net(self.observed(observations)).squeeze(-1)


class PolicyGradient(Algorithm, Generic[ConfigT]):
    """Trains a chain and values."""

    def __init__(
        self, config: ConfigT, student: ChunkAlgorithm[Any, Any], stats: DatasetStats
    ) -> None:
        super().__init__()
        self.config, self.spec, self.batch_spec = config, student.spec, config.batches()
        self.name, self._deployed = config.name, student.policy_class
        # The averaged weights are what the parent acts by.
        self.chain = config.chain(student.ema.requires_grad_(), "parent")
        self.value = Values(config, student.spec, stats)
        self.gate: Gate | None = None
        if config.gate is not None:
            critic = config.critic(config.gate.members, student.spec, stats)
            self.gate = Gate(config.gate, critic, config.bounds, self.chain)
        # Apart from what is trained and kept.
        self.__dict__["parent"] = copy.deepcopy(student.ema).requires_grad_(requires_grad=False)
        self.parent: ChunkSampler

    @abstractmethod
    def change(self, log_ratio: StepRows) -> tuple[RatioRows, RatioWeights, RatioWeights]:
        """What ratios are of: their logarithms ``[b, r]`` from those of every step, how they weigh,
        and where they are clipped ``[r]``.
        """

    def log_prob(self, densities: ChainDensities) -> StepRows:
        """Of every step, mean over the numbers that are executed ``[b, K]``."""
        return densities[:, :, : self.config.stride].mean(dim=(2, 3))

    def groups(self) -> Mapping[str, ParamGroup]:
        """``policy`` and ``value``, and ``critic`` of a gate."""
        c = self.config
        own = tuple(p for p in self.chain.parameters() if p.requires_grad)
        gate = {} if self.gate is None else {"critic": self.gate.learned()}
        judging = {
            name: ParamGroup(found, c.lr, c.weight_decay, schedule=c.schedule)
            for name, found in {"value": tuple(self.value.parameters()), **gate}.items()
        }
        return {
            "policy": ParamGroup(own, c.actor_lr, 0.0, schedule=c.schedule),
            **judging,
        }

    def forward(self, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Values, and the chain where decisions of its own are shown; a gate learns from others."""
        if self.gate is not None and batch.chain is None:
            return self.recorded(self.gate, batch, step, rng)
        value = self.value(batch.observations)
        wanted = self.worth(batch)
        found = Losses(
            {"value": ((value - wanted) ** 2).mean()},
            {"v_mean": value.detach().mean(), "target_std": wanted.std()},
        )
        if batch.chain is None:
            return found
        policy = self.policy_loss(batch, rng)
        return Losses({**found.by_group, **policy.by_group}, {**found.metrics, **policy.metrics})

    def recorded(self, gate: Gate, batch: Batch, step: int, rng: torch.Generator) -> Losses:
        """Of recordings: values and critics, and the chain by decisions that the kept policy would
        have taken there.
        """
        gate.look(self.chain, batch.observations, rng)
        found = gate.losses(batch, self.value)
        figures: dict[str, Scalar] = {
            "gate_risen": gate.risen.float(),
            "gate_looks": gate.looks.float(),
        }
        if step < gate.config.critics_first:
            return Losses(found, figures)
        policy = self.policy_loss(self.imagined(gate, batch, rng), rng)
        return Losses({**found, **policy.by_group}, {**figures, **policy.metrics})

    @torch.no_grad()
    def imagined(self, gate: Gate, batch: Batch, rng: torch.Generator) -> Batch:
        """A decision of the kept policy at every row, and its advantage by the gate's critics."""
        kept, shown = gate.kept, batch.observations
        shape = (len(batch.actions), kept.draws, kept.horizon, kept.action_size)
        context = kept.context(shown)
        chain = kept.run(randn(torch.empty(shape, device=kept.device), rng), context)
        actions = kept.codec.decode(chain[:, -1], shown)
        return dataclasses.replace(
            batch,
            chain=chain,
            chain_log_prob=self.log_prob(kept.density(chain, context)[0]),
            advantage=gate.worth(actions, shown) - gate.held(self.value(shown)),
        )

    @torch.no_grad()
    def worth(self, batch: Batch) -> Rows:
        """What values are drawn to, within the bounds."""
        worth = batch.worth
        if worth is None:
            if batch.reward is None or batch.next_observations is None or batch.bootstrap is None:
                raise ConfigError(f"{self.name} is fed with chunked transitions")
            worth = batch.reward + batch.bootstrap * self.value(batch.next_observations)
        bounds = self.config.bounds
        return worth if bounds is None else worth.clamp(*bounds)

    def policy_loss(self, batch: Batch, rng: torch.Generator) -> Losses:
        """The clipped objective, its regularisers, and how far the policy has gone."""
        if batch.chain is None or batch.chain_log_prob is None or batch.advantage is None:
            raise ConfigError(f"{self.name} is fed with decisions of its own")
        context = self.chain.context(batch.observations)
        densities, spread = self.chain.density(batch.chain, context)
        now = self.log_prob(densities)
        log_ratio, weight, clip = self.change(now - batch.chain_log_prob)
        ratio = log_ratio.exp()
        gained = batch.advantage
        gained = (gained - gained.mean()) / (gained.std(correction=0) + 1e-8)
        each = weight * gained[:, None]
        held = torch.maximum(torch.minimum(ratio, 1 + clip), 1 - clip)
        loss = -torch.minimum(ratio * each, held * each).mean() + self.regulariser(spread)
        figures: dict[str, Scalar] = {
            "kl": ((ratio - 1) - log_ratio).detach().mean(),
            "clipped": ((ratio.detach() - 1).abs() > clip).float().mean(),
            "deviation": spread.detach().exp().mean(),
            "advantage_std": batch.advantage.std(),
        }
        if self.config.cloning:
            far = self.distance(batch.observations, rng)
            loss = loss + self.config.cloning * far
            figures["parent_distance"] = far.detach().sqrt()
        return Losses({"policy": loss}, figures)

    def regulariser(self, spread: ChainDensities) -> Scalar | float:  # noqa: ARG002
        """What is added to the policy's loss; ``spread``: logarithms of deviations."""
        return 0.0

    def distance(self, observations: Observed, rng: torch.Generator) -> Scalar:
        """Mean squared distance to the parent's chunks, as both would be deployed."""
        model = self.chain.model
        count = len(next(iter(observations.values())))
        shape = (count, model.draws, model.horizon, model.action_size)
        noise = randn(torch.empty(shape, device=model.device), rng)
        with torch.no_grad():
            theirs: Chunks = self.parent.to(model.device).generate(
                noise, self.parent.context(observations)
            )
        return ((model.generate(noise, model.context(observations)) - theirs) ** 2).mean()

    @torch.no_grad()
    def replay(self, weights: Weights, batch: Batch, seeds: RequestNumbers) -> Replayed:
        """The chains that ``weights`` went through, and how dense their steps were."""
        then = copy.deepcopy(self.chain)
        prefix = "chain."
        own = {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}
        load_weights(then, own, "version")
        shape = (then.draws, then.horizon, then.action_size)
        noise = torch.from_numpy(request_noise(seeds, shape)).to(then.device)
        context = then.context(batch.observations)
        chain = then.run(noise, context)
        densities = then.density(chain, context)[0]
        made = then.codec.decode(chain[:, -1], batch.observations)
        apart = then.codec.encode(made, batch.observations) - then.codec.encode(
            batch.actions, batch.observations
        )
        apart = (apart.abs() * batch.action_mask[..., None])[:, : self.config.stride]
        return Replayed(chain, self.log_prob(densities), apart.amax(dim=(1, 2)))

    @torch.no_grad()
    def values(self, observations: Observed) -> Rows:
        """Of the moment, within the bounds."""
        bounds, value = self.config.bounds, self.value(observations)
        return value if bounds is None else value.clamp(*bounds)

    def after_update(self, step: int, updated: frozenset[str]) -> None:  # noqa: ARG002
        """Nothing follows slowly, but a gate's critics: what flies next is what was learned."""
        if self.gate is not None:
            self.gate.after_update(self.chain, updated)

    @property
    def flies(self) -> Chain:
        """What a gate has kept; without one, what is learned."""
        return self.chain if self.gate is None else self.gate.kept

    def policy(self) -> Policy:
        """The parent's sampler with what was learned, without noise."""
        return self._deployed(self.flies.model, self.spec)

    def policy_weights(self) -> Weights:
        """Those of the chain that flies, and the values."""
        return nn.ModuleDict({"chain": self.flies, "value": self.value}).state_dict()
