"""Learns a chain from recordings, keeping a step only where off-policy evaluation rises: Uni-O4.

    V:   E[ L( min_i Qbar_i(o, A) - V(o) ) ],   L: expectile loss                    A: recorded
    Q:   E[ sum_i ( Q_i(o, A) - clip( R + g^s m V(o') ) )^2 ]
    policy: PPO's loss (``policy_gradient.py``) of decisions that the kept policy draws where
         somebody was:  advantage min_i Qbar_i(o, B) - V(o),  ratio to the kept one,  B ~ kept
    J:   E[ min_i Qbar_i(o, B) ],  B: as deployed, on a batch that nobody has learned from yet

    after every so many updates:   J(policy) > J(kept) + least    kept <- policy
                                   else                           policy <- kept

The half of Lei et al. 2023 (arXiv 2311.03351) before the switch. What flies and is deployed is the
kept policy, which begins as the parent. Once there are decisions of its own PPO is plain, as
theirs is, and nothing is kept back.

Theirs evaluates by rollouts in a learned model, with fitted Q on the way; here Q is asked where
recordings are, without a model: a bound of no kind, but it needs nothing that is wrong further
ahead. It begins with an ensemble of cloned policies, of which the parent is one here [ours, both].
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from policies.chunks.base import move_towards, randn
from policies.critics.chunk_critic import ChunkCritic, expectile_loss, least_of_members
from policies.critics.denoising.chain import Chain
from policies.nets.shapes import CandidateNoise, Chunks, Rows, Scalar
from robolearn.errors import ConfigError
from robolearn.learning import Batch, Observed


@dataclass(frozen=True, slots=True)
class GateConfig:
    """How recordings are learned from."""

    # Updates of the policy between two evaluations.
    every: int = 100
    # How much the evaluation has to rise for a policy to be kept.
    least: float = 0.0
    # Updates of the critics alone: before, they evaluate nothing.
    critics_first: int = 1000
    # Which part of what recorded chunks were worth V says; .5: their mean. IQL: .7 to .9.
    expectile: float = 0.7
    # Networks of the critic; the least of what they say counts.
    members: int = 2
    # Polyak rate of the target critics.
    tau: float = 0.005

    def __post_init__(self) -> None:
        if min(self.every, self.members) < 1 or self.critics_first < 0:
            raise ConfigError("gate: every and members at least 1, critics_first at least 0")
        if not 0.0 < self.expectile < 1.0 or not 0.0 < self.tau <= 1.0:
            raise ConfigError(
                f"gate: expectile in (0, 1) and tau in (0, 1], got {self.expectile}, {self.tau}"
            )
        if not self.least >= 0:
            raise ConfigError(f"gate: least must be at least 0, got {self.least}")


class Gate(nn.Module):
    """The critics, the policy that is kept, and when they are asked."""

    def __init__(
        self,
        config: GateConfig,
        critic: ChunkCritic,
        bounds: tuple[float, float] | None,
        chain: Chain,
    ) -> None:
        super().__init__()
        self.config, self.critic, self._bounds = config, critic, bounds
        self.target = copy.deepcopy(self.critic.q).requires_grad_(requires_grad=False)
        self.kept: Chain = copy.deepcopy(chain).requires_grad_(requires_grad=False)
        # Updates of the policy since the last look; looks, and how many of them it was kept at.
        self.made: Tensor
        self.looks: Tensor
        self.risen: Tensor
        self.register_buffer("made", torch.zeros((), dtype=torch.int64))
        self.register_buffer("looks", torch.zeros((), dtype=torch.int64))
        self.register_buffer("risen", torch.zeros((), dtype=torch.int64))

    def learned(self) -> tuple[nn.Parameter, ...]:
        """Of the critics."""
        return (*self.critic.q.parameters(), *self.critic.observed.parameters())

    def losses(self, batch: Batch, value: nn.Module) -> dict[str, Scalar]:
        """Of ``value`` and the critics, on recorded chunks."""
        if batch.reward is None or batch.next_observations is None or batch.bootstrap is None:
            raise ConfigError("a gate is fed with chunked transitions")
        features = self.critic.observed(batch.observations)
        chunk = self.critic.chunk(batch.actions, batch.observations)
        with torch.no_grad():
            judged: Rows = self.target(torch.cat([features, chunk], dim=-1)).amin(dim=0)
            target: Rows = batch.reward + batch.bootstrap * value(batch.next_observations)
            target = self.held(target)
        apart: Rows = self.held(judged) - value(batch.observations)
        q = self.critic.q_values(features, chunk)
        return {
            "value": expectile_loss(apart, self.config.expectile).mean(),
            "critic": ((q - target) ** 2).sum(dim=0).mean(),
        }

    def held(self, worth: Rows) -> Rows:
        """Within what anything can be worth."""
        return worth if self._bounds is None else worth.clamp(*self._bounds)

    @torch.no_grad()
    def worth(self, actions: Chunks, observations: Observed) -> Rows:
        """What the target critics say of chunks in SI units ``[b, h, a]``, the least of them."""
        features = self.critic.observed(observations)
        chunks = actions[:, None]
        judged = least_of_members(self.target, self.critic, features, chunks, observations)
        return self.held(judged[:, 0])

    @torch.no_grad()
    def evaluated(self, chain: Chain, observations: Observed, noise: CandidateNoise) -> float:
        """``J`` of ``chain`` as it is deployed, from ``noise [b, 1, draws, h, a]``."""
        chunks = chain.model.several(noise, observations)[:, 0]
        return float(self.worth(chunks, observations).mean())

    @torch.no_grad()
    def look(self, chain: Chain, observations: Observed, rng: torch.Generator) -> None:
        """Keep ``chain``, or put it back, where that is due."""
        if int(self.made) < self.config.every:
            return
        model, count = chain.model, len(next(iter(observations.values())))
        shape = (count, 1, model.draws, model.horizon, model.action_size)
        noise = randn(torch.empty(shape, device=chain.device), rng)
        new, old = (self.evaluated(c, observations, noise) for c in (chain, self.kept))
        if new > old + self.config.least:
            self.keep(chain)
            self.risen += 1
        else:
            chain.load_state_dict(self.kept.state_dict())
        self.looks += 1
        self.made.zero_()

    def keep(self, chain: Chain) -> None:
        """It is what flies from now on."""
        self.kept.load_state_dict(chain.state_dict())

    def after_update(self, chain: Chain, updated: frozenset[str]) -> None:
        """Move the target critics; of what was learned from own decisions nothing is kept back."""
        if "critic" in updated:
            move_towards(self.target, self.critic.q, self.config.tau)
            self.made += "policy" in updated
        elif "policy" in updated:
            self.keep(chain)
