"""Does what is worth most where nothing forbidden must follow: FISOR (Zheng et al. 2024).

    h = -1 where a chunk costs nothing, else ``violation``
    Q_h:  E[ (Q_h(s, A) - y_h)^2 ],   y_h = (1 - g^n) h + g^n max( h, V_h(s') ),  h at the end
    V_h:  E[ L_k^rev( max_i Qbar_h_i(s, A) - V_h(s) ) ],   L_k^rev(u) = |k - 1(u > 0)| u^2
    Q, V: IQL's, of the reward (:mod:`policies.offline_rl.iql`)
    pi:   E[ w |eps(s, x_t, t) - eps|^2 ],   diffusion on recorded chunks, weighted by
          w = 1[V_h > 0] min( exp(5 (V_h - Q_h)), 150 )
            + 1[V_h <= 0 and Q_h <= 0] min( exp(3 (Q - V)), 100 )

V_h(s) <= 0 says that behaviour knows a way on which h stays below 0 (Hamilton-Jacobi reachability,
discounted by Fisac et al. 2019): the reverse expectile takes the safe end of what was done. There
the best chunks that stay feasible are cloned, elsewhere those that lead back, and no multiplier is
balanced between the two. Acting takes the least max_i Q_h of ``candidates`` samples; or, not as
published (``choice``), the greatest min_i Q of those whose max_i Q_h is at most 0, and the least
max_i Q_h where there is none. A chunk's h is that of its worst step, and its n steps count as one
of discount g^n.

The values of h, 25 and -1, are the authors' as we remember them; their paper was not at hand.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from policies.chunks.base import move_towards
from policies.chunks.policy import each
from policies.critics.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    GroupLosses,
    Transition,
)
from policies.critics.behaviour_diffusion import BehaviourDiffusion
from policies.critics.chunk_critic import ChunkCritic, expectile_loss
from policies.critics.judged_actor import JudgedActor, per_sample
from policies.nets.shapes import Chunks, Context, Features, Noise, Rows
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import BatchPart, Observed

LARGEST_WAY_BACK, LARGEST_WEIGHT = 150.0, 100.0
"""Of a chunk, where forbidden things follow and where they need not."""


@dataclass(frozen=True, slots=True)
class FisorConfig(ActorCriticConfig):
    """Feasibility-guided offline RL; needs ``data.cost``."""

    # Expectile of V, and of V_h from the other end. Published: .9.
    expectile: float = 0.9
    # h of a chunk in which something forbidden happens; -1 is that of every other.
    violation: float = 25.0
    # Inverse temperature of advantages where nothing forbidden must follow. Published: 3.
    beta: float = 3.0
    # Inverse temperature of feasibility elsewhere. Published: 5.
    feasible_beta: float = 5.0
    # Denoising steps. Published: 5.
    diffusion_steps: int = 5
    # Samples to choose from when acting. Published: 16.
    candidates: int = 16
    # Which of them is done: the most feasible one, as published, everywhere; or the one that is
    # worth most of those that are feasible.
    choice: Literal["safest", "worth"] = "safest"

    def __post_init__(self) -> None:
        ActorCriticConfig.__post_init__(self)
        if not 0.0 < self.expectile < 1.0 or not min(self.beta, self.feasible_beta) >= 0:
            raise ConfigError("expectile must be in (0, 1), both betas at least 0")
        if not self.violation > 0 or min(self.diffusion_steps, self.candidates) < 1:
            raise ConfigError(
                "violation must be above 0, diffusion_steps and candidates at least 1"
            )

    def algorithm(self) -> type[Fisor]:
        """What trains it."""
        return Fisor

    def parts(self) -> tuple[BatchPart, ...]:
        """What a chunk costs counts beside what it is worth."""
        return ("transition", "cost")


class FisorActor(JudgedActor):
    """The diffusion, and who chooses among its samples: the critic of feasibility, and that of the
    reward where it is asked.
    """

    def __init__(self, config: FisorConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        self.candidates, self.steps = config.candidates, config.diffusion_steps
        self.draws = self.candidates * self.steps
        size, c = self.observed.size, config
        self.diffusion = BehaviourDiffusion(
            size, self.chunk_size, c.width, c.depth, c.diffusion_steps, c.clip
        )
        self.critic = ChunkCritic(c.critic(), spec, stats, spec.horizon, values=True)
        self.worth = (
            ChunkCritic(c.critic(), spec, stats, spec.horizon, values=True)
            if config.choice == "worth"
            else None
        )

    def context(self, observations: Observed, rng: torch.Generator | None = None) -> Context:
        """Features of the actor, then those of feasibility, which learns by its own; last those of
        the reward's critic where it chooses.
        """
        features = [self.observed(observations, rng), self.critic.observed(observations, rng)]
        if self.worth is not None:
            features.append(self.worth.observed(observations).detach())
        return torch.cat(features, dim=-1)

    def split(self, context: Context) -> tuple[Features, Features]:
        """What the actor sees, and what its samples' feasibility is judged by."""
        size = self.observed.size
        return context[:, :size], context[:, size : size + self.critic.observed.size]

    def generate(self, noise: Noise, context: Context) -> Chunks:
        """One of the samples from ``noise [b, candidates * steps, h, a]``, see ``choice``."""
        count = self.candidates
        seen, judged = (each(v, count) for v in self.split(context))
        chunks = self.held(self.diffusion.sample(per_sample(noise, count), seen))
        worst = self.critic.q_values(judged, chunks).amax(dim=0).view(-1, count)
        best = worst.argmin(dim=1)
        if self.worth is not None:
            features = each(context[:, -self.worth.observed.size :], count)
            worth = self.worth.q_values(features, chunks).amin(dim=0).view(-1, count)
            feasible = worst <= 0
            of_these = worth.masked_fill(~feasible, -torch.inf).argmax(dim=1)
            best = torch.where(feasible.any(dim=1), of_these, best)
        return self.chosen(chunks.unflatten(0, (-1, count)), best)


class Fisor(ActorCritic[FisorConfig, FisorActor]):
    """Trains values, feasibility and the diffusion together."""

    name = "fisor"
    actor_class = FisorActor
    values = True

    def __init__(self, config: FisorConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        feasibility = self.actor.critic
        if self.critic.v is None or feasibility.v is None:
            raise ConfigError("fisor learns values of observations")
        if self.actor.worth is not None:
            self.actor.worth = self.critic
        # In a list: they are registered as the critics' parts already.
        self._v = [self.critic.v, feasibility.v]
        self.feasible_target = copy.deepcopy(feasibility.q).requires_grad_(requires_grad=False)

    def value(self, features: Features) -> Rows:
        """``V``."""
        return self._v[0](features).squeeze(0)

    def threshold(self, features: Features) -> Rows:
        """``V_h``: above 0 something forbidden follows whatever is done."""
        return self._v[1](features).squeeze(0)

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:  # noqa: ARG002
        """IQL's losses of the reward, and those of feasibility."""
        config, actor, cost = self.config, self.actor, t.batch.worst_cost
        if cost is None:
            raise ConfigError("fisor is fed with what chunks cost (part cost)")
        judged, follow = actor.split(t.seen)[1], actor.split(t.next_seen)[1]
        with torch.no_grad():
            h = torch.where(cost > 0, config.violation, -1.0)
            safest = torch.maximum(h, self.threshold(follow))
            feasible = (1 - t.bootstrap) * h + t.bootstrap * safest
            target = self.td_target(t, self.value(t.follow))
        least = self.target(torch.cat([t.now, t.chunk], dim=-1).detach()).amin(dim=0)
        worst = self.feasible_target(torch.cat([judged, t.chunk], dim=-1).detach()).amax(dim=0)
        # The reverse expectile is the expectile of the difference the other way round.
        below = self.threshold(judged.detach()) - worst
        return {
            "value": expectile_loss(least - self.value(t.now.detach()), config.expectile).mean(),
            "critic": ((self.critic.q_values(t.now, t.chunk) - target) ** 2).mean(),
            "threshold": expectile_loss(below, config.expectile).mean(),
            "feasibility": ((actor.critic.q_values(judged, t.chunk) - feasible) ** 2).mean(),
        }

    @torch.no_grad()
    def weight(self, t: Transition) -> Rows:
        """How much every recorded chunk counts for the actor."""
        config, judged = self.config, self.actor.split(t.seen)[1]
        q = self.target(torch.cat([t.now, t.chunk], dim=-1)).amin(dim=0)
        q_h = self.feasible_target(torch.cat([judged, t.chunk], dim=-1)).amax(dim=0)
        v_h = self.threshold(judged)
        back = (config.feasible_beta * (v_h - q_h)).exp().clamp(max=LARGEST_WAY_BACK)
        best = (config.beta * (q - self.value(t.now))).exp().clamp(max=LARGEST_WEIGHT)
        return torch.where(v_h > 0, back, best * (q_h <= 0))

    def actor_losses(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """Denoising, weighted."""
        rows = self.actor.diffusion.row_loss(t, rng, self.actor.split(t.seen)[0])
        return {"policy": (self.weight(t) * rows).mean()}

    def after_update(self, step: int, updated: frozenset[str]) -> None:
        """Move both target critics."""
        super().after_update(step, updated)
        move_towards(self.feasible_target, self.actor.critic.q, self.config.tau)

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """The diffusion with what it sees, and the two of feasibility."""
        actor, feasibility = self.actor, self.actor.critic
        return {
            "threshold": tuple(self._v[1].parameters()),
            "feasibility": (*feasibility.q.parameters(), *feasibility.observed.parameters()),
            "policy": (*actor.diffusion.parameters(), *actor.observed.parameters()),
        }
