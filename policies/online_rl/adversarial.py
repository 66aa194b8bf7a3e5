"""Imitates by practice, without any reward: DAC (Kostrikov et al. 2019), and SQIL as a switch.

    D:   logit of "demonstrated":  E_demo[ -log sigma(D(s, A)) ] + E_own[ -log(1 - sigma(D(s, A))) ]
         + penalty E[ ( |dD/d(s, A)| - 1 )^2 ]   between pairs of a demonstrated and an own chunk
    r:   sigma(D(s, A))                          rewards learned
         1 where it was demonstrated, else 0     kind constant: SQIL (Reddy et al. 2020)
    Q, pi, t:  SAC's, on all rows, with these rewards

Off-policy: the discriminator tells demonstrations from everything that was done while practising.
The penalty keeps it Lipschitz (Gulrajani et al. 2017), without which its rewards are 0 and 1 and
teach nothing in between; Blonde et al. 2022 find it to be what makes the off-policy case work.

An end of the task is an absorbing state, whose rewards must count, or ending early would be good or
bad by the sign of rewards alone. Here what was done last goes on for ever: y = r / (1 - g^h). So an
end as in demonstrations is worth the most there is, and a failure, which none shows, little [ours;
DAC gives absorbing states a feature of their own].

Which windows were demonstrated: ``origin`` of the batch, the number of their store
(``data.stores``) or, while practising, the demonstrations. Rewards that were recorded are not
looked at.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn import functional

from policies.critics.actor_critic import GroupLosses, Transition, mlp
from policies.critics.diagnostics import Figures
from policies.nets.shapes import Features, RowFlags, Rows, Scalar
from policies.online_rl.sac import SacConfig, SacTraining
from robolearn.contracts import PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import BatchPart, BatchSpec, ParamGroup


@dataclass(frozen=True, slots=True)
class AdversarialConfig(SacConfig):
    """Adversarial imitation."""

    # Number of the store (origin) whose windows were demonstrated; in practice 1.
    expert: int = 1
    # Where rewards are from: a discriminator, or which data a window is of (SQIL).
    kind: Literal["learned", "constant"] = "learned"
    # Weight of the discriminator's gradient penalty. The paper: 10.
    penalty: float = 10.0
    # Learning rate of the discriminator; null: lr. The paper: 1e-3, as its critic's.
    discriminator_lr: float | None = None
    # Rewards are at most 1 per chunk; entropy would outweigh them.
    entropy_backup: bool = False

    def __post_init__(self) -> None:
        SacConfig.__post_init__(self)
        if min(self.expert, self.penalty) < 0:
            raise ConfigError("expert and penalty must be at least 0")
        if self.discriminator_lr is not None and not self.discriminator_lr > 0:
            raise ConfigError(f"discriminator_lr must be positive, got {self.discriminator_lr}")
        if self.discount >= 1.0:
            raise ConfigError("discount: an end that goes on for ever wants it below 1")

    def algorithm(self) -> type[Adversarial]:
        """What trains it."""
        return Adversarial

    def practice(self) -> Mapping[str, Any]:
        """Half of a batch is demonstrated."""
        return {"demonstrations": 0.5}

    def parts(self) -> tuple[BatchPart, ...]:
        """Where windows are from."""
        return ("transition", "origin")

    def batches(self) -> BatchSpec:
        """Without rewards."""
        return dataclasses.replace(SacConfig.batches(self), makes_rewards=True)


class Adversarial(SacTraining[AdversarialConfig]):
    """Trains critic, actor, and what tells demonstrations from practice."""

    name = "adversarial"

    def __init__(self, config: AdversarialConfig, spec: PolicySpec, stats: DatasetStats) -> None:
        super().__init__(config, spec, stats)
        size = self.critic.observed.size + self.actor.chunk_size
        self.discriminator = mlp(size, 1, config.width, config.depth)

    def demonstrated(self, t: Transition) -> RowFlags:
        """Which rows were."""
        if t.batch.origin is None:
            raise ConfigError("adversarial is fed with where windows are from (part origin)")
        return t.batch.origin == self.config.expert

    def rewarded(self, t: Transition) -> Transition:
        """``t`` with the rewards that are learned from."""
        with torch.no_grad():
            if self.config.kind == "constant":
                reward = self.demonstrated(t).float()
            else:
                reward = torch.sigmoid(self.discriminator(_shown(t)).squeeze(-1))
        c = self.config
        forever = reward / (1.0 - c.discount**c.horizon)
        return dataclasses.replace(t, reward=torch.where(t.bootstrap > 0, reward, forever))

    def critic_loss(self, t: Transition, rng: torch.Generator) -> GroupLosses:
        """SAC's with other rewards, and the discriminator's."""
        losses = super().critic_loss(self.rewarded(t), rng)
        return {**losses, "discriminator": self.discriminator_loss(t, rng)}

    def mean_td_loss(self, t: Transition, rng: torch.Generator) -> Scalar:
        """With the rewards that are learned from."""
        return super().mean_td_loss(self.rewarded(t), rng)

    def discriminator_loss(self, t: Transition, rng: torch.Generator) -> Scalar:
        """Cross entropy, each kind by its own mean, and the gradient penalty."""
        shown, expert = _shown(t), self.demonstrated(t)
        logit = self.discriminator(shown).squeeze(-1)
        loss = 0.0 * logit.sum()
        for rows, sign in ((expert, 1.0), (~expert, -1.0)):
            if bool(rows.any()):
                loss = loss + functional.softplus(-sign * logit[rows]).mean()
        if self.config.penalty and bool(expert.any()) and not bool(expert.all()):
            loss = loss + self.config.penalty * self.steepness(shown, expert, rng)
        return loss

    def steepness(self, shown: Features, expert: RowFlags, rng: torch.Generator) -> Scalar:
        """``E (|gradient| - 1)^2`` between a row of each kind, as many pairs as rows."""
        count = len(shown)
        pairs = [
            shown[rows][torch.randint(int(rows.sum()), (count,), generator=rng)]
            for rows in (expert, ~expert)
        ]
        share = torch.rand(count, 1, generator=rng).to(shown.device)
        between = (share * pairs[0] + (1.0 - share) * pairs[1]).requires_grad_()
        with torch.enable_grad():
            said = self.discriminator(between).sum()
            (gradient,) = torch.autograd.grad(said, between, create_graph=True)
        return ((gradient.norm(dim=1) - 1.0) ** 2).mean()

    def largest(self) -> float | None:
        """Rewards are in [0, 1] per chunk."""
        return 1.0 / (1.0 - self.config.discount**self.config.horizon)

    def more_figures(self, t: Transition, rng: torch.Generator) -> Figures:  # noqa: ARG002
        """``reward_apart``: mean reward of demonstrated rows minus that of own ones."""
        with torch.no_grad():
            reward = torch.sigmoid(self.discriminator(_shown(t)).squeeze(-1))
        expert = self.demonstrated(t).float()
        return {"reward_apart": _mean(reward, expert) - _mean(reward, 1.0 - expert)}

    def grouped(
        self, parameters: Mapping[str, tuple[nn.Parameter, ...]]
    ) -> Mapping[str, ParamGroup]:
        """The discriminator at its own pace."""
        groups, lr = dict(super().grouped(parameters)), self.config.discriminator_lr
        if lr is not None:
            groups["discriminator"] = dataclasses.replace(groups["discriminator"], lr=lr)
        return groups

    def actor_groups(self) -> Mapping[str, tuple[nn.Parameter, ...]]:
        """SAC's, and the discriminator."""
        return {**super().actor_groups(), "discriminator": tuple(self.discriminator.parameters())}


def _shown(t: Transition) -> Features:
    return torch.cat([t.now.detach(), t.chunk], dim=-1)


def _mean(values: Rows, weight: Rows) -> Scalar:
    return (values * weight).sum() / weight.sum().clamp(min=1.0)
