"""Chooses among the chunks of a trained policy, and what is made of them, by what a critic says."""

from __future__ import annotations

import dataclasses
import time
from abc import abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from policies.chunks.policy import on
from policies.chunks.request import request_tensors
from policies.critics.chunk_critic import ChunkCritic, judged_part, least, repeated
from policies.critics.ensemble import Ensemble
from policies.nets.shapes import (
    CandidateIndex,
    Candidates,
    Features,
    FlatCandidates,
    MadeCandidates,
)
from robolearn.contracts import Policy, PolicySpec
from robolearn.learning import Observed
from robolearn.types import PolicyInput, PolicyOutput


@dataclass(frozen=True, slots=True)
class Options:
    """Chunks to choose from: what is judged of them, and which candidate each was made of."""

    flat: FlatCandidates
    source: CandidateIndex


class Editor(nn.Module):
    """Makes further chunks of candidates, for a critic to choose among as well."""

    @abstractmethod
    def edited(
        self,
        q: Ensemble,
        features: Features,
        flat: FlatCandidates,
        limits: ChunkLimits,
        rng: torch.Generator | None = None,
    ) -> Options:
        """What is made of the judged parts ``flat [b, k, g]`` of candidates at ``features [b, f]``;
        ``q`` judges them. ``rng``: for what is drawn at random; None: nothing is.
        """


class ChunkLimits:
    """The limits of the action signals at some observations, for normalised flat chunks."""

    def __init__(self, critic: ChunkCritic, observations: Observed) -> None:
        self._critic, self._observations = critic, observations
        codec, rows = critic.codec, len(next(iter(observations.values())))
        low, high = (codec.get_buffer(name).expand(rows, 1, -1) for name in ("low", "high"))
        # As the critic sees them, for every step alike [b, 1, g].
        self._low, self._high = (
            codec.encode(limit, observations).repeat(1, 1, critic.stride) for limit in (low, high)
        )

    def held(self, flat: FlatCandidates) -> FlatCandidates:
        """Within the limits."""
        return flat.clamp(self._low, self._high)

    def actions(self, flat: FlatCandidates) -> Candidates:
        """In SI units, within the limits ``[b, k, stride, a]``."""
        critic, count = self._critic, flat.shape[1]
        chunks = flat.flatten(0, 1).unflatten(1, (critic.stride, -1))
        at = repeated(self._observations, count)
        return critic.codec.decode(chunks, at).unflatten(0, (-1, count))


def whole(options: Options, chunks: Candidates, limits: ChunkLimits) -> MadeCandidates:
    """The options in SI units; behind what is judged they are as the ``chunks`` they come from."""
    rows = torch.arange(len(chunks), device=chunks.device)[:, None]
    made = chunks[rows, options.source].clone()
    edited = limits.actions(options.flat)
    made[:, :, : edited.shape[2]] = edited
    return made


class RerankedPolicy:
    """Candidates of the parent, best min Q first; ``extras['changed']`` where that is not the
    chunk that the parent alone would have given.

    ``margin``: what another chunk must be worth more than the parent's own first one. Below the
    critic's error a difference means nothing, and the best of many picks its mistakes. ``editor``:
    what it makes of the candidates competes with them.
    """

    def __init__(
        self,
        critic: ChunkCritic,
        parent: Policy,
        candidates: int,
        margin: float = 0.0,
        editor: Editor | None = None,
    ) -> None:
        self.critic, self.parent, self.editor = critic, parent, editor
        self.candidates, self.margin = candidates, margin

    @property
    def spec(self) -> PolicySpec:
        """The parent's."""
        return self.parent.spec

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """The ``n`` best of the candidates per row."""
        begin = time.perf_counter_ns()
        count = max(n, self.candidates)
        drawn = self.parent.sample(request, count)
        actions = drawn.actions
        # An editor may take derivatives, which inference mode has none of.
        with torch.inference_mode() if self.editor is None else torch.no_grad():
            device = self.critic.codec.high.device
            observations = on(device, request_tensors(request, self.spec))
            # Encoded once for all candidates, which matters where there are pictures.
            features = self.critic.observed(observations)
            chunks = torch.from_numpy(drawn.actions.astype(np.float32)).to(device)
            flat = judged_part(self.critic, chunks, observations)
            q = least(self.critic.q, features, flat)
            if self.editor is not None:
                limits = ChunkLimits(self.critic, observations)
                options = self.editor.edited(self.critic.q, features, flat, limits)
                made = whole(options, chunks, limits).cpu().double().numpy()
                actions = np.concatenate([actions, made], axis=1)
                q = torch.cat([q, least(self.critic.q, features, options.flat)], dim=1)
            scores = q.cpu().double().numpy().copy()
        scores[:, 0] += self.margin
        order = np.argsort(-scores, axis=1, kind="stable")
        best = order[:, :n]
        return dataclasses.replace(
            drawn,
            actions=np.take_along_axis(actions, best[:, :, None, None], axis=1),
            scores=np.take_along_axis(scores, best, axis=1),
            latency_ns=time.perf_counter_ns() - begin,
            extras={"changed": order[:, 0] != 0},
        )
