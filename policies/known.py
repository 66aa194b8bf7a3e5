"""Training-time real-time chunking: a network that was shown clean first actions and continues them
(arXiv 2512.05964).

    training: the first k actions are clean and marked, k drawn anew; the loss is that of the rest
    sampling: actions that will be executed whatever the answer is are held and marked

It takes no backward pass, and holds them exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from policies.guidance import Prefix
from robolearn.errors import ConfigError


def check_known(known: int, horizon: int) -> None:
    """:class:`ConfigError` unless something is left to be learned."""
    if not 0 <= known < horizon:
        raise ConfigError(f"known must be in 0..horizon-1={horizon - 1}, got {known}")


def draw_known(actions: Tensor, most: int, rng: torch.Generator) -> Tensor:
    """Which of ``actions [b, h, a]`` are given in training ``[b, h, 1]`` (bool): in a little more
    than half of the chunks none (those of a plain request, and of every start), else the first 1
    to ``most``.
    """
    count = torch.randint(-most, most + 1, (len(actions), 1, 1), generator=rng)
    return (torch.arange(actions.shape[1])[None, :, None] < count).to(actions.device)


def marked(x: Tensor, known: Tensor | None) -> Tensor:
    """``x [b, h, i]`` with one more number that says which are known (None: none of them)."""
    mark = torch.zeros_like(x[..., :1]) if known is None else known.to(x.dtype)
    return torch.cat([x, mark], dim=-1)


def held_or_guided(
    most: int, prefix: Prefix, held: Callable[[Tensor], Tensor], guided: Callable[[], Tensor]
) -> Tensor:
    """Chunks ``[b, h, a]`` that continue ``prefix``: by ``held``, told which actions are fixed, and
    by ``guided`` in rows where more of them are than training has shown.
    """
    fixed = prefix.weight >= 1.0
    beyond = fixed.sum(dim=1, keepdim=True) > most
    if bool(beyond.all()):
        return guided()
    answer = held(fixed)
    return torch.where(beyond, guided(), answer) if bool(beyond.any()) else answer
