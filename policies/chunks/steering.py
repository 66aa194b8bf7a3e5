"""Finds out whether a policy's chunks can be steered by the noise that its sampler begins from."""

from __future__ import annotations

from policies.chunks.policy import ChunkPolicy, FieldChunkPolicy
from robolearn.contracts import Policy
from robolearn.errors import ConfigError

Steerable = ChunkPolicy | FieldChunkPolicy


def steerable(policy: Policy, where: str) -> Steerable:
    """``policy``, if its chunks are a function of one array of noise.

    Errors: :class:`ConfigError` that says why it is not: it draws more than once per chunk, or its
    answers are chosen or made of those of another policy.
    """
    if not isinstance(policy, ChunkPolicy | FieldChunkPolicy):
        raise ConfigError(
            f"'{where}' has no sampler of its own that noise could steer ({type(policy).__name__});"
            " take the flow, diffusion, mean_flow, shortcut or distilled policy that it builds on"
        )
    draws = policy.model.draws
    if draws != 1:
        raise ConfigError(
            f"the sampler of '{where}' draws noise {draws} times per chunk, so that what it begins"
            " from does not decide; take one that draws once (flow, ddim, dpm, distilled)"
        )
    return policy
