"""Says how a critic's learning stands, by figures that need no rollout.

    q_data, q_std    mean and spread of Q over recorded chunks            Kumar et al. 2021: overfit
    q_policy         mean Q over the policy's own chunks                      where it rises, then
    q_largest        largest |Q| of both; q_share: of |r|max / (1 - g)        falls
    q_whole, q_return, q_return_correlation    mean Q and mean recorded return of those recorded
                     chunks whose recording went on to the task's end, and how both go together
    td_error         root of the critic's own squared TD loss
    distance         root mean square of policy - recorded, in normalised actions
    rank, rank_share effective rank of the critic's last features, and of what is possible
    dormant          share of hidden units that hardly ever speak

Critics of another kind say theirs by another letter: v of values of observations alone (no action,
so nothing of the policy), f of critics that tell goals apart, which have no TD error but

    contrast, contrast_share    their cross-entropy, and of that of a critic that knows nothing

Effective rank (Kumar et al. 2020, Implicit Under-Parameterization, delta = .01): the least k whose
singular values make up 1 - delta of the sum of all. Dormant (Sokar et al. 2023, equation 1): a unit
whose mean |activation|, relative to its layer's mean, is at most tau = .025.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from policies.critics.ensemble import Ensemble
from policies.nets.shapes import Features, MemberFeatures, MemberRows, Scalar
from robolearn.learning import Batch

RANK_DELTA = 0.01
DORMANT_TAU = 0.025

Figures = dict[str, Scalar]


def network_figures(q: Ensemble, x: Features) -> Figures:
    """``rank``, ``rank_share`` and ``dormant`` of the critic at ``x [b, f]``; rank is that of the
    first member.
    """
    with torch.no_grad():
        spoken, last = q.hidden(x)
        rank = effective_rank(last[0])
        return {
            "rank": rank,
            "rank_share": rank / min(last.shape[1:]),
            "dormant": dormant_share(spoken),
        }


def value_figures(
    of_data: MemberRows, of_policy: MemberRows | None, largest: float | None, letter: str = "q"
) -> Figures:
    """``q_...`` of what every member says of recorded chunks, and of the policy's where they are
    known; ``largest``: |r|max / (1 - discount), if that is; ``letter``: of another kind of critic.
    """
    found = {f"{letter}_data": of_data.mean(), f"{letter}_std": of_data.mean(dim=0).std()}
    extent = of_data.abs().max()
    if of_policy is not None:
        found[f"{letter}_policy"] = of_policy.mean()
        extent = torch.maximum(extent, of_policy.abs().max())
    found[f"{letter}_largest"] = extent
    if largest:
        found[f"{letter}_share"] = extent / largest
    return {name: value.detach() for name, value in found.items()}


def return_figures(of_data: MemberRows, batch: Batch, letter: str = "q") -> Figures:
    """``q_whole``, ``q_return`` and their correlation: what the members say together of recorded
    chunks beside what followed. Only of rows whose recording went on to the task's end: what
    would have followed a cut is not known. Nothing without two of them, or where returns were not
    asked for; no correlation where either is the same everywhere.
    """
    if batch.returns is None or batch.returns_whole is None:
        return {}
    whole = batch.returns_whole
    said, found = of_data.detach().mean(dim=0)[whole], batch.returns[whole]
    if len(found) < 2:
        return {}
    figures = {f"{letter}_whole": said.mean(), f"{letter}_return": found.mean()}
    if min(said.std(), found.std()) > 0:
        figures[f"{letter}_return_correlation"] = torch.corrcoef(torch.stack([said, found]))[0, 1]
    return figures


def effective_rank(features: Features) -> Scalar:
    """Of ``features [b, w]``, a number from 0 (all are zero) to ``min(b, w)``."""
    singular = torch.linalg.svdvals(features.double())
    total = singular.sum()
    below = singular.cumsum(0) < (1.0 - RANK_DELTA) * total
    return (below.sum() + (total > 0)).float()


def dormant_share(activations: Sequence[MemberFeatures]) -> Scalar:
    """Of all units of ``activations`` (one ``[members, b, w]`` per hidden layer)."""
    silent: list[torch.Tensor] = []
    for layer in activations:
        size = layer.abs().mean(dim=1)
        silent.append((size <= DORMANT_TAU * size.mean(dim=-1, keepdim=True)).flatten())
    return torch.cat(silent).float().mean()
