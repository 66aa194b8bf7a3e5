"""Steers a trained policy by the noise that its sampler begins from: DSRL (Wagenmaker et al. 2025).

    acting: A = sampler(o, z),   z = b tanh(u),   u ~ N(mean(o), deviation(o))     sampler: frozen
    Q:    E[ sum_i ( Q_i(o, A) - clip( R + g^s m min_i Qbar_i(o', sampler(o', z')) ) )^2 ]
    Qw:   E[ sum_i ( Qw_i(o, z) - min_j Q_j(o, sampler(o, z)) )^2 ]
    z:    E[ entropy log p(z|o) - min_i Qw_i(o, z) ]

The noise-aliased variant (arXiv 2506.15799): Q learns from whatever was executed, by whom ever, and
Qw tells of noise what Q tells of the chunk that it leads to, so that nothing is differentiated
through the sampler. Pairs of noise and chunk are drawn once before training, from N(0, 1) at every
row; where the actor itself goes, the sampler is asked in every update (``own``), as it is for what
follows (``backup: sampler``). With ``backup: noise`` the value of noise follows, Qbarw(o', z'), and
without ``own`` no update waits for the sampler: what DSRL's plain variant is chosen for. That one
(soft actor-critic on z alone) is not built: z would have to be made again from the version and seed
of every decision (``robolearn/data/decisions.py``).

Settings were read in the authors' code, which is wider (3 x 2048) and updates 20 to 30 times per
decision; what z Qw learns from is [unverified]. Deployed, z is that of the mean; practising, it is
drawn.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import nn

from policies.chunks.base import move_towards, randn
from policies.chunks.policy import on
from policies.chunks.request import request_tensors
from policies.chunks.steering import Steerable, steerable
from policies.critics.actor_critic import mlp
from policies.critics.candidates import generated
from policies.critics.chunk_critic import ChunkCritic, judged_part, least, said
from policies.critics.editing.entropy import EntropyWeight
from policies.critics.ensemble import Ensemble
from policies.critics.gaussian.squashed import LOG_DEVIATION, squashed_density
from policies.critics.over_parent import OverParent, OverParentConfig, Step
from policies.critics.parent import inner_policy, kept_parent, policy_for
from policies.critics.reranked import RerankedPolicy
from policies.nets.shapes import (
    CandidateRows,
    Candidates,
    EditNoise,
    Features,
    FlatCandidates,
    Rows,
)
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import (
    Algorithm,
    Batch,
    BatchPart,
    Losses,
    Observed,
    ParamGroup,
    Weights,
    request_noise,
)
from robolearn.seeding import child_seed
from robolearn.spec import TaskSpace
from robolearn.training.run_directory import Run, load_weights
from robolearn.types import PolicyInput, PolicyOutput, RequestNumbers


@dataclass(frozen=True, slots=True)
class DsrlConfig(OverParentConfig):
    """An actor that chooses noise."""

    # Noises to choose from by the critics when acting, the first of them that of the mean. DSRL: 1.
    candidates: int = 1
    # b: largest noise. DSRL: 1.5 (1 to 2.5), to be tuned first.
    magnitude: float = 1.5
    # What follows a chunk is worth: what critics say of the chunk that the actor's noise leads to
    # there, or what they are told of that noise.
    backup: Literal["sampler", "noise"] = "sampler"
    # Whether noise that the actor draws here is judged by the chunk that it leads to as well.
    own: bool = True
    # Weight of the entropy; where target_entropy is given, the first one.
    entropy: float = 0.01
    # Entropy of z / b that the weight is moved to hold; null: the weight stays.
    target_entropy: float | None = 0.0
    # Learning rate of the actor.
    actor_lr: float = 3e-4
    # Updates of the critics alone.
    critics_first: int = 1000

    def __post_init__(self) -> None:
        OverParentConfig.__post_init__(self)
        if not self.magnitude > 0 or not self.actor_lr > 0:
            raise ConfigError("magnitude and actor_lr must be positive")
        if not min(self.entropy, self.critics_first) >= 0:
            raise ConfigError("entropy and critics_first must be at least 0")
        if self.mirror is not None:
            raise ConfigError(
                "dsrl: the noise of a reflected chunk is not known; set 'mirror' to null"
            )

    def algorithm(self) -> type[Dsrl]:
        """What trains it."""
        return Dsrl

    def parts(self) -> tuple[BatchPart, ...]:
        """Pairs of noise and chunk at every row."""
        return ("transition", "candidates")

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """Untrained critics and actor over the policy of ``parent``."""
        if parent is not None:
            steerable(inner_policy(parent), str(parent.path))
        return OverParentConfig.build(self, space, stats, parent)

    def actor(self, critics: ChunkCritic, spec: PolicySpec) -> NoiseActor:
        """Untrained."""
        numbers = self.horizon * spec.task_space.action_size
        return NoiseActor(self, critics.observed.size, numbers)

    def acting(
        self, critics: ChunkCritic, actor: NoiseActor, parent: Policy, *, drawn: bool
    ) -> Policy:
        """The chunk of the actor's noise, or the best of several."""
        policy = SteeredPolicy(critics, actor, steerable(parent, "parent"), drawn=drawn)
        if self.candidates == 1:
            return policy
        return RerankedPolicy(critics, policy, self.candidates, self.margin)

    def load(self, run: Run) -> Policy:
        """Critics and actor over the parent kept inside the run directory."""
        return self._trained(run, drawn=False)

    def explorer(self, run: Run) -> Policy:
        """Who acts while practising: noise is drawn."""
        return self._trained(run, drawn=True)

    def _trained(self, run: Run, *, drawn: bool) -> Policy:
        critics = self.critic(run.spec, run.stats)
        actor = self.actor(critics, run.spec)
        trained = nn.ModuleDict({"critics": critics, "actor": actor}).eval()
        load_weights(trained, run.weights, str(run.path))
        return self.acting(
            critics, actor, policy_for(kept_parent(run), run.spec.task_space), drawn=drawn
        )


class NoiseActor(nn.Module):
    """A Gaussian over the noise of a sampler, squashed into plus and minus the magnitude."""

    def __init__(self, config: DsrlConfig, features: int, numbers: int) -> None:
        super().__init__()
        self.magnitude, self.numbers = config.magnitude, numbers
        self.net = mlp(features, 2 * numbers, config.width, config.depth)

    def draw(self, features: Features, noise: EditNoise) -> tuple[EditNoise, CandidateRows]:
        """As many z as there is ``noise [b, k, numbers]``, and the log densities of z / b."""
        mean, log_deviation = self.net(features)[:, None].chunk(2, dim=-1)
        log_deviation = log_deviation.clamp(*LOG_DEVIATION)
        u = mean + log_deviation.exp() * noise
        density = squashed_density(u, noise, log_deviation.expand_as(u))
        return self.magnitude * torch.tanh(u), density.sum(dim=-1)


class Dsrl(OverParent[DsrlConfig]):
    """Trains critics of chunks, critics of noise, and the actor."""

    name = "dsrl"

    def __init__(
        self, config: DsrlConfig, spec: PolicySpec, stats: DatasetStats, parent: Policy
    ) -> None:
        super().__init__(config, spec, stats, parent)
        self._sampler = steerable(parent, "parent")
        self.actor = config.actor(self.critics, spec)
        seen, c = self.critics.observed.size, config
        self.noise_critic = Ensemble(c.members, seen + self.actor.numbers, c.width, c.depth)
        slow = copy.deepcopy(self.noise_critic) if c.backup == "noise" else None
        self.noise_target = None if slow is None else slow.requires_grad_(requires_grad=False)
        self.entropy = EntropyWeight(c.entropy, c.target_entropy)

    def propose(self, observations: Observed, seeds: RequestNumbers) -> Candidates:
        """``next_candidates`` chunks of the parent, and behind them the noise that each of them
        comes from.
        """
        model = self._sampler.model
        seen = on(model.device, observations)
        shape = (self.config.next_candidates, 1, model.horizon, model.action_size)
        noise = torch.from_numpy(request_noise(seeds, shape)).to(model.device)
        return torch.cat([generated(model, seen, noise), noise[:, :, 0]], dim=1)

    def follow(self, batch: Batch, observations: Observed, rng: torch.Generator) -> Rows:  # noqa: ARG002
        """What the actor would do is worth, or its noise."""
        features = self.critics.observed(observations)
        z = self.drawn(features, rng)[0]
        if self.noise_target is not None:
            return least(self.noise_target, features, z).squeeze(1)
        return least(self.target, features, self.led_to(z, observations)).squeeze(1)

    def drawn(self, features: Features, rng: torch.Generator) -> tuple[EditNoise, Rows]:
        """A z of the actor for every row ``[b, 1, numbers]``, and its log density."""
        noise = randn(features.new_empty(len(features), 1, self.actor.numbers), rng)
        z, density = self.actor.draw(features, noise)
        return z, density.squeeze(1)

    def led_to(self, z: EditNoise, observations: Observed) -> FlatCandidates:
        """What critics judge of the chunks that ``z [b, k, numbers]`` lead to."""
        model = self._sampler.model.to(z.device)
        noise = z.detach().unflatten(2, (1, model.horizon, model.action_size))
        return judged_part(self.critics, generated(model, observations, noise), observations)

    def beside(self, step: Step, rng: torch.Generator) -> Losses:
        """Noise is worth what it leads to; the actor goes where it is worth most."""
        observations, now = step.batch.observations, step.now.detach()
        noises, chunks = self.pairs(step.batch)
        z, density = self.drawn(now, rng)
        if self.config.own:
            chunks = torch.cat([chunks, self.led_to(z, observations)], dim=1)
            noises = torch.cat([noises, z.detach()], dim=1)
        with torch.no_grad():
            worth = least(self.critics.q, now, chunks)
        error = said(self.noise_critic, now, noises) - worth
        by_group = {"noise_critic": (error**2).sum(dim=0).mean()}
        if step.number >= self.config.critics_first:
            value = least(self.noise_critic, now, z).squeeze(1)
            by_group["actor"] = (self.entropy.weight() * density - value).mean()
            by_group |= self.entropy.losses(density[:, None])
        figures = {
            "alias_error": (error.detach() ** 2).mean().sqrt(),
            "noise_size": z.detach().abs().mean(),
        }
        return Losses(by_group, figures)

    def pairs(self, batch: Batch) -> tuple[EditNoise, FlatCandidates]:
        """Noise ``[b, k, numbers]`` and what critics judge of its chunks, as they were drawn."""
        if batch.candidates is None:
            raise ConfigError("dsrl is fed with the parent's chunks at every row")
        count = batch.candidates.shape[1] // 2
        chunks, noise = batch.candidates[:, : 2 * count].chunk(2, dim=1)
        judged = judged_part(self.critics, chunks, batch.observations)
        return noise.flatten(2), judged

    def more_groups(self) -> Mapping[str, ParamGroup]:
        """``noise_critic``, ``actor``, and what weighs its entropy."""
        actor = self.group(tuple(self.actor.parameters()))
        learned = {
            name: dataclasses.replace(self.group(parameters), weight_decay=0.0)
            for name, parameters in self.entropy.groups().items()
        }
        return {
            "noise_critic": self.group(tuple(self.noise_critic.parameters())),
            "actor": dataclasses.replace(actor, lr=self.config.actor_lr),
            **learned,
        }

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """The target critics."""
        super().after_update(step, updated)
        if self.noise_target is not None:
            move_towards(self.noise_target, self.noise_critic, self.config.tau)

    def policy(self) -> Policy:
        """As it is deployed."""
        return self.config.acting(self.critics, self.actor, self.parent, drawn=False)

    def policy_weights(self) -> Weights:
        """Critics of chunks and the actor; the parent is kept beside them as a run of its own."""
        return nn.ModuleDict({"critics": self.critics, "actor": self.actor}).state_dict()


class SteeredPolicy:
    """The chunks of ``parent`` from noise that an actor chooses; row ``i`` depends on row ``i`` of
    the request alone. The first is that of the actor's mean, unless all are ``drawn``.
    """

    def __init__(
        self, critics: ChunkCritic, actor: NoiseActor, parent: Steerable, *, drawn: bool
    ) -> None:
        self.critics, self.actor, self.parent, self.drawn = critics, actor, parent, drawn

    @property
    def spec(self) -> PolicySpec:
        """The parent's."""
        return self.parent.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row; candidate 0 is the same for every ``n``."""
        model, device = self.parent.model, self.critics.codec.high.device
        seeds = np.array([child_seed(int(seed), "steering") for seed in request.seed])
        noise = request_noise(seeds, (n, self.actor.numbers))
        if not self.drawn:
            noise[:, 0] = 0.0
        with torch.inference_mode():
            seen = on(device, request_tensors(request, self.spec))
            features = self.critics.observed(seen)
            z = self.actor.draw(features, torch.from_numpy(noise).to(device))[0]
        shape = (-1, n, model.horizon, model.action_size)
        return self.parent.steered(request, z.view(shape).cpu().numpy())
