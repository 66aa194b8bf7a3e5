"""Lets a policy see pictures through what another one tells of them.

    request with pictures --eyes--> signals that they tell, and the others --> the policy inside

A policy with ``estimated`` signals learned to tell them from its pictures. What builds on it
(critics that choose among its chunks, say) learns from the recorded signals as they are, without a
picture, as its parent did, and acts by what the parent tells.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import torch
from torch import nn

from policies.chunks.base import ChunkModel
from policies.chunks.policy import ChunkPolicy, FieldChunkPolicy, on
from policies.chunks.request import request_tensors
from policies.nets.shapes import CandidateNoise, Candidates
from robolearn.contracts import Policy, PolicySpec
from robolearn.errors import ConfigError
from robolearn.learning import GraphModel, GraphPolicy, Observed
from robolearn.spec import TaskSpace
from robolearn.types import PolicyInput, PolicyOutput


@dataclass(frozen=True, slots=True)
class Eyes:
    """``model`` tells signals from the pictures of ``spec``, which is what its policy observes."""

    model: ChunkModel
    spec: PolicySpec

    @property
    def names(self) -> tuple[str, ...]:
        """The signals that are seen through them: all but pictures, and what these tell."""
        return self.model.encoder.names

    @property
    def told(self) -> tuple[str, ...]:
        """Of :attr:`names` those that the pictures tell."""
        return () if self.model.estimator is None else self.model.estimator.names

    @property
    def space(self) -> TaskSpace:
        """What is seen through them."""
        whole = self.model.input_spec.task_space
        seen = tuple(s for s in whole.observations if s.name in self.names)
        return dataclasses.replace(whole, observations=seen)

    def __call__(self, observations: Observed) -> dict[str, torch.Tensor]:
        """The signals of :attr:`names`."""
        told = self.model.with_estimates(observations)
        return {name: told[name] for name in self.names}


def eyes_of(policy: Policy) -> Eyes | None:
    """Those of a policy that tells signals from its pictures, or that sees through such a one."""
    if isinstance(policy, SeeingPolicy):
        return policy.eyes
    if not isinstance(policy, (ChunkPolicy, FieldChunkPolicy)):
        return None
    model = policy.model
    if not isinstance(model, ChunkModel) or model.estimator is None:
        return None
    # Who was told already observes no pictures.
    sees = any(s.is_image for s in policy.spec.task_space.observations)
    return Eyes(model, policy.spec) if sees else None


def told(policy: Policy) -> Policy:
    """``policy`` as it is for whoever sees through its :func:`eyes_of`: it observes the signals
    that its pictures tell, and no pictures; itself where it has no eyes.
    """
    if isinstance(policy, SeeingPolicy):
        return policy.inner
    eyes = eyes_of(policy)
    if eyes is None:
        return policy
    spec = dataclasses.replace(eyes.spec, task_space=eyes.space)
    if isinstance(policy, FieldChunkPolicy):
        return FieldChunkPolicy(policy.model, spec, policy.guidance)
    return ChunkPolicy(eyes.model, spec)


class SeeingPolicy:
    """``inner``, which observes what ``eyes`` tell of the pictures of a request."""

    def __init__(self, inner: Policy, eyes: Eyes) -> None:
        self.inner, self.eyes = inner, eyes

    @property
    def spec(self) -> PolicySpec:
        """With the pictures."""
        return dataclasses.replace(self.inner.spec, task_space=self.eyes.spec.task_space)

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        """``n`` chunks per row; pictures are looked at once for all."""
        device = self.eyes.model.device
        with torch.inference_mode():
            seen = self.eyes(on(device, request_tensors(request, self.spec)))
            observations = {name: v.cpu().double().numpy() for name, v in seen.items()}
        return self.inner.sample(dataclasses.replace(request, observations=observations), n)

    def graph(self) -> SeeingModel:
        """Eyes and policy in one pass. Errors: :class:`ConfigError` where ``inner`` has none."""
        if not isinstance(self.inner, GraphPolicy):
            raise ConfigError(
                f"a {type(self.inner).__name__} has no graph: run the policy by torch"
            )
        return SeeingModel(self.eyes, self.inner.graph())


class SeeingModel(nn.Module):
    """What :class:`SeeingPolicy` answers, in one pass."""

    def __init__(self, eyes: Eyes, inner: GraphModel) -> None:
        super().__init__()
        self.model, self._eyes, self.inner = eyes.model, eyes, inner
        self.draws = inner.draws

    def several(self, noise: CandidateNoise, observations: Observed) -> Candidates:
        """Of ``inner``, ``[b, k, h, a]``."""
        return self.inner.several(noise, self._eyes(observations))
