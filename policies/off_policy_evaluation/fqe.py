"""Estimates the mean return of a policy: fitted Q evaluation (Le, Voloshin, Yue 2019).

    Q_i:  E[ ( Q_i(o, A) - clip( R + g^s m mean_k Qbar_i(o', A'_k) ) )^2 ],   A'_k ~ pi(o')

Every member has its own target network; targets are held in what is possible. The next chunk is the
policy's at the *next* observation (an early version of a known library took the current one).
"""

from __future__ import annotations

import torch

from policies.critics.ensemble import Ensemble
from policies.nets.shapes import Features, ManyFeatures, MemberRows, Scalar
from policies.off_policy_evaluation.fitted import FittedEvaluation
from robolearn.errors import ConfigError
from robolearn.learning import Batch


class FittedQ(FittedEvaluation):
    """Mean returns."""

    def numbers(self) -> int:
        """A mean."""
        return 1

    def means(self, q: Ensemble, x: Features) -> MemberRows:
        """What the networks say."""
        return q(x)

    def loss(self, now: Features, after: ManyFeatures, batch: Batch) -> Scalar:
        """Mean squared TD error."""
        if batch.reward is None or batch.bootstrap is None:
            raise ConfigError("fitted Q evaluation is fed with transitions")
        with torch.no_grad():
            follow = self.target(after).unflatten(1, (-1, self.config.draws)).mean(dim=2)
            target = batch.reward + batch.bootstrap * follow
            if self.bounds is not None:
                target = target.clamp(*self.bounds)
        return ((self.critic.q(now) - target) ** 2).mean()
