"""Moving averages of weights: the EMA of a policy, the target network of a critic."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import get_ema_multi_avg_fn


def move_towards(average: nn.Module, online: nn.Module, share: float) -> None:
    """``average += share * (online - average)`` for every parameter, in place."""
    old: list[Tensor] = list(average.parameters())
    new: list[Tensor] = list(online.parameters())
    with torch.no_grad():
        get_ema_multi_avg_fn(1.0 - share)(old, new, 0)
