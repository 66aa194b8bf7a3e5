"""Estimates the distribution of a policy's returns: fitted likelihood estimation (Wu, Uehara, Sun
2023, arXiv 2302.09456).

    y = R + g^s m Z',   Z' ~ p_target(. | o', A'),   A' ~ pi(o')
    p:  maximise E[ log p(y | o, A) ]

FLE is any model that is fitted by maximum likelihood to such y, one fit after the other; the paper
shows Gaussian mixtures and diffusion models. Here the model is a histogram on ``atoms`` places over
the range of values, and the fits are blended by a slow target network. The expectation over Z' is
taken exactly instead of by samples, and y is split between its two neighbouring places; with that
the step is the projected Bellman step of C51 (Bellemare, Dabney, Munos 2017). UNVERIFIED: only the
paper's abstract and summaries were read.
"""

from __future__ import annotations

import torch
from torch import nn

from policies.critics.ensemble import Ensemble
from policies.nets.shapes import (
    AtomRows,
    Atoms,
    Features,
    ManyFeatures,
    MemberAtoms,
    MemberRows,
    Scalar,
)
from policies.off_policy_evaluation.fitted import EvaluationConfig, FittedEvaluation
from robolearn.contracts import Policy
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import ConfigError
from robolearn.learning import Batch


class FittedLikelihood(FittedEvaluation):
    """Distributions of returns over fixed places."""

    def __init__(self, config: EvaluationConfig, policy: Policy, stats: DatasetStats) -> None:
        super().__init__(config, policy, stats)
        if self.bounds is None:
            raise ConfigError("a distribution needs a range of values: set bounds")
        low, high = self.bounds
        self.places = nn.Buffer(torch.linspace(low, high, config.atoms))

    def numbers(self) -> int:
        """One per place."""
        return self.config.atoms

    def means(self, q: Ensemble, x: Features) -> MemberRows:
        """Of the distributions."""
        return (q.several(x).softmax(dim=-1) * self.places).sum(dim=-1)

    def loss(self, now: Features, after: ManyFeatures, batch: Batch) -> Scalar:
        """Negative log likelihood of what follows."""
        if batch.reward is None or batch.bootstrap is None:
            raise ConfigError("fitted likelihood estimation is fed with transitions")
        with torch.no_grad():
            shares = self.target.several(after).softmax(dim=-1)
            mixed = shares.unflatten(1, (-1, self.config.draws)).mean(dim=2)
            wanted = self.projected(batch.reward[:, None] + batch.bootstrap[:, None] * self.places,
                                    mixed)  # fmt: skip
        return -(wanted * self.critic.q.several(now).log_softmax(dim=-1)).sum(dim=-1).mean()

    def projected(self, at: AtomRows, shares: MemberAtoms) -> MemberAtoms:
        """``shares [members, b, atoms]`` of values ``at [b, atoms]``, each split between the two
        places next to it.
        """
        low, high, n = float(self.places[0]), float(self.places[-1]), len(self.places)
        position = (at.clamp(low, high) - low) / (high - low) * (n - 1)
        below = position.floor().clamp(max=n - 2).long()
        upper = (position - below).expand_as(shares)
        index = below.expand(shares.shape)
        found = torch.zeros_like(shares)
        found.scatter_add_(2, index, shares * (1 - upper))
        found.scatter_add_(2, index + 1, shares * upper)
        return found

    @torch.no_grad()
    def distribution(self, starts: ManyFeatures) -> Atoms:
        """Shares of the places over all starts, draws and members, ``[atoms]``."""
        return self.critic.q.several(starts).softmax(dim=-1).mean(dim=(0, 1))

    def worst(self, starts: ManyFeatures, share: float = 0.1) -> float:
        """Mean return of the worst ``share`` of episodes (conditional value at risk)."""
        shares = self.distribution(starts).double()
        below = shares.cumsum(0) - shares
        counted = (share - below).clamp(min=0.0).minimum(shares)
        return float((counted * self.places.double()).sum() / share)
