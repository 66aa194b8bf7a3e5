"""How batches reach the optimiser: which ones a process takes, ahead of time, on the device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from robolearn.distributed import Ranks
from robolearn.errors import ConfigError
from robolearn.learning import Batch


@runtime_checkable
class Batches(Protocol):
    """Batch ``step`` as a pure function of ``step``."""

    def batch(self, step: int) -> Batch:
        """One batch."""
        ...


class Feed:
    """The batches of this process in order, on the device; how long the optimiser waited."""

    def __init__(
        self, batches: Batches, ranks: Ranks, device: str, accumulate: int, prefetch: int
    ) -> None:
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("device cuda: torch finds no CUDA device here; use device cpu")
        self._batches, self._ranks, self._device = batches, ranks, device
        self._accumulate, self._prefetch = accumulate, prefetch
        self._pool = ThreadPoolExecutor(1) if prefetch else None
        self._ahead: dict[int, Future[Batch]] = {}
        self.waited_s = 0.0

    def close(self) -> None:
        """Stop preparing."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def numbers(self, step: int) -> Sequence[int]:
        """The batches of ``step`` that this process takes."""
        first = (step * self._ranks.size + self._ranks.rank) * self._accumulate
        return range(first, first + self._accumulate)

    def take(self, step: int, index: int) -> Batch:
        """Batch ``index`` of ``step``, moved to the device."""
        begin = time.perf_counter()
        number = self.numbers(step)[index]
        if self._pool is None:
            batch = self._batches.batch(number)
        else:
            batch = self._prepared(self._pool, step, index)
        batch = on_device(batch, self._device)
        self.waited_s += time.perf_counter() - begin
        return batch

    def _prepared(self, pool: ThreadPoolExecutor, step: int, index: int) -> Batch:
        for k in range(self._prefetch + 1):
            later, at = divmod(step * self._accumulate + index + k, self._accumulate)
            number = self.numbers(later)[at]
            if number not in self._ahead:
                self._ahead[number] = pool.submit(self._batches.batch, number)
        return self._ahead.pop(self.numbers(step)[index]).result()


def on_device(batch: Batch, device: str) -> Batch:
    """The batch with every tensor on ``device``."""
    if device == "cpu":
        return batch

    def signals(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {k: v.to(device, non_blocking=True) for k, v in values.items()}

    def one(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(device, non_blocking=True)

    follow = batch.next_observations
    return Batch(
        observations=signals(batch.observations),
        actions=batch.actions.to(device, non_blocking=True),
        action_mask=batch.action_mask.to(device, non_blocking=True),
        reward=one(batch.reward),
        next_observations=None if follow is None else signals(follow),
        bootstrap=one(batch.bootstrap),
        intervention=one(batch.intervention),
    )
