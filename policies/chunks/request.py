"""Turns requests (numpy, SI units) into tensors, checked against a policy's specification."""

from __future__ import annotations

import numpy as np
import torch

from robolearn.contracts import PolicySpec
from robolearn.errors import SpecMismatchError, did_you_mean
from robolearn.instructions import TEXT, text_encoder
from robolearn.learning import RowTensor
from robolearn.types import PolicyInput


def request_tensors(request: PolicyInput, spec: PolicySpec) -> dict[str, RowTensor]:
    """``[batch, n_obs, *shape]`` per signal: float32, the precision that training reads as well,
    and uint8 for pictures.
    """
    out: dict[str, RowTensor] = {}
    batch = len(request.seed)
    for signal in spec.task_space.observations:
        if signal.name not in request.observations:
            have = sorted(request.observations)
            raise SpecMismatchError(
                f"the policy needs '{signal.name}'.{did_you_mean(signal.name, have)}"
                f" The request has: {have}"
            )
        values = request.observations[signal.name]
        want = (batch, spec.n_obs, *signal.shape)
        if values.shape != want:
            raise SpecMismatchError(f"'{signal.name}' should be {want}, got {values.shape}")
        if not np.isfinite(values).all():
            raise SpecMismatchError(f"'{signal.name}' is not finite; a sensor failed upstream")
        picture = signal.is_image
        if picture and values.dtype != np.uint8:
            raise SpecMismatchError(f"'{signal.name}' should be uint8 pictures, got {values.dtype}")
        out[signal.name] = torch.from_numpy(values.astype(np.uint8 if picture else np.float32))
    encoder = text_encoder(spec.task_space)
    if encoder is not None:
        instructions = request.task or ("",) * batch
        if len(instructions) != batch:
            raise SpecMismatchError(f"expected {batch} instructions, got {len(instructions)}")
        out[TEXT] = torch.from_numpy(encoder(instructions))
    return out
