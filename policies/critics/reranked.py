"""Chooses among the chunks of a trained policy by what a critic says of them."""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import torch

from policies.chunks.policy import on
from policies.chunks.request import request_tensors
from policies.critics.chunk_critic import ChunkCritic, least_of_members
from robolearn.contracts import Policy, PolicySpec
from robolearn.types import PolicyInput, PolicyOutput


class RerankedPolicy:
    """Candidates of the parent, best min Q first; ``extras['changed']`` where that is not the
    chunk that the parent alone would have given.

    ``margin``: what another chunk must be worth more than the parent's own first one. Below the
    critic's error a difference means nothing, and the best of many picks its mistakes.
    """

    def __init__(
        self, critic: ChunkCritic, parent: Policy, candidates: int, margin: float = 0.0
    ) -> None:
        self.critic, self.parent = critic, parent
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
        with torch.inference_mode():
            device = self.critic.codec.high.device
            observations = on(device, request_tensors(request, self.spec))
            # Encoded once for all candidates, which matters where there are pictures.
            features = self.critic.observed(observations)
            chunks = torch.from_numpy(drawn.actions.astype(np.float32)).to(device)
            q = least_of_members(self.critic.q, self.critic, features, chunks, observations)
            scores = q.cpu().double().numpy().copy()
        scores[:, 0] += self.margin
        order = np.argsort(-scores, axis=1, kind="stable")
        best = order[:, :n]
        return dataclasses.replace(
            drawn,
            actions=np.take_along_axis(drawn.actions, best[:, :, None, None], axis=1),
            scores=np.take_along_axis(scores, best, axis=1),
            latency_ns=time.perf_counter_ns() - begin,
            extras={"changed": order[:, 0] != 0},
        )
