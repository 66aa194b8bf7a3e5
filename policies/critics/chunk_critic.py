"""Judges chunks of actions at observations: several networks Q(o, A), and V(o) if needed."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import nn

from policies.chunks.policy import each
from policies.critics.ensemble import Ensemble
from policies.critics.observed import ObservedFeatures
from policies.nets.bisimulation import BisimulationConfig
from policies.nets.encoder import ActionCodec, FocusConfig
from policies.nets.pictures import PictureConfig
from policies.nets.shapes import (
    AnyShape,
    CandidateRows,
    Candidates,
    ChunkFeatures,
    Chunks,
    Features,
    FlatCandidates,
    MemberCandidates,
    MemberRows,
)
from robolearn.contracts import Normalization, PolicySpec
from robolearn.data.store.stats import DatasetStats
from robolearn.learning import AnyTensor, Observed


@dataclass(frozen=True, slots=True)
class CriticConfig:
    """What a critic sees and how large it is."""

    # Networks of the critic.
    members: int = 2
    # Hidden units of a layer.
    width: int = 256
    # Hidden layers.
    depth: int = 2
    # Pairs (position, pose), see the flow policy.
    relative: tuple[tuple[str, str], ...] = ()
    # A place where one observation is resolved finely, see the flow policy.
    focus: FocusConfig | None = None
    # The encoder of cameras, where the task space has some.
    picture: PictureConfig = field(default_factory=PictureConfig)
    # Gain on actions relative to the tool, see the flow policy.
    anchor: float = 0.0
    # Scaling of observations; null: that of the policy.
    scaling: Normalization | None = None
    # A learned encoder of the history; null: none.
    bisimulation: BisimulationConfig | None = None


class ChunkCritic(nn.Module):
    """Judges the first ``stride`` actions of chunks."""

    def __init__(
        self,
        config: CriticConfig,
        spec: PolicySpec,
        stats: DatasetStats,
        stride: int,
        *,
        values: bool = False,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        self.observed = ObservedFeatures(
            spec,
            stats,
            relative=config.relative,
            focus=config.focus,
            picture=config.picture,
            scaling=config.scaling,
            bisimulation=config.bisimulation,
        )
        self.codec = ActionCodec(spec, stats, config.anchor)
        self.stride, size = stride, self.observed.size
        chunk = stride * spec.task_space.action_size
        self.q = Ensemble(config.members, size + chunk, config.width, config.depth, outputs)
        self.v = Ensemble(1, size, config.width, config.depth) if values else None

    def chunk(self, actions: Chunks, observations: Observed) -> ChunkFeatures:
        """The part of the chunks ``[b, h, a]`` (SI units) that is judged, normalised and flat."""
        return self.codec.encode(actions[:, : self.stride], observations).flatten(1)

    def q_values(self, features: Features, chunk: ChunkFeatures) -> MemberRows:
        """What every member says."""
        return self.q(torch.cat([features, chunk], dim=-1))

    def steering(self, features: Features, chunk: ChunkFeatures) -> MemberRows:
        """:meth:`q_values` for the loss of what made ``chunk``: nothing is kept for gradients of
        the members' own.
        """
        learning = [p for p in self.q.parameters() if p.requires_grad]
        for parameter in learning:
            parameter.requires_grad_(False)
        try:
            return self.q_values(features, chunk)
        finally:
            for parameter in learning:
                parameter.requires_grad_(True)


def least_of_members(
    q: Ensemble,
    critic: ChunkCritic,
    features: Features,
    chunks: Candidates,
    observations: Observed,
) -> CandidateRows:
    """The least that any member of ``q`` says of each of ``chunks``."""
    return least(q, features, judged_part(critic, chunks, observations))


def judged_part(critic: ChunkCritic, chunks: Candidates, observations: Observed) -> FlatCandidates:
    """What the critic judges of chunks in SI units, normalised and flat."""
    count = int(chunks.shape[1])
    at = repeated(observations, count)
    return critic.chunk(chunks.flatten(0, 1), at).unflatten(0, (-1, count))


def least(q: Ensemble, features: Features, flat: FlatCandidates) -> CandidateRows:
    """The least that any member of ``q`` says of each of ``flat [b, k, g]``."""
    return said(q, features, flat).amin(dim=0)


def said(q: Ensemble, features: Features, flat: FlatCandidates) -> MemberCandidates:
    """What every member of ``q`` says of each of ``flat [b, k, g]``."""
    count = int(flat.shape[1])
    x = torch.cat([each(features, count), flat.flatten(0, 1)], dim=-1)
    return q(x).unflatten(1, (-1, count))


def repeated(observations: Observed, count: int) -> dict[str, AnyTensor]:
    """Every row ``count`` times in turn."""
    return {name: each(v, count) for name, v in observations.items()}


def expectile_loss(difference: AnyShape, expectile: float) -> AnyShape:
    """``|k - 1(u < 0)| u^2``, elementwise (Kostrikov et al. 2021, equation 4)."""
    return (expectile - (difference < 0).float()).abs() * difference**2
