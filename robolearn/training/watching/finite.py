"""Finds losses that are not finite without waiting for the device at every update.

    update    1    2   ...  10 (look)  11   ...  a line of the log or a checkpoint (look)
    kept     [1] [1,2] ... [1 .. 10]  [11]

What a loss was computed from is kept until somebody looks, so that the first bad batch is found,
however late; nothing is written before a look.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from robolearn.errors import TrainingError
from robolearn.learning import Batch, Losses
from robolearn.training.run_directory import write_tensors

FAILED_BATCH = "failed_batch.safetensors"
LOOK_EVERY = 10
"""Updates between looks at most."""

# What a loss was computed from, with the losses.
Computed = tuple[Batch, Losses]


@dataclass(frozen=True, slots=True)
class _Update:
    step: int
    # Of all processes.
    mean: Losses
    # Of this process, one per batch.
    parts: Sequence[Computed]


class FiniteLosses:
    """The losses of the updates since the last look."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._updates: list[_Update] = []
        # One was not, so that nothing learned since can be relied on.
        self.failed = False

    def add(self, step: int, mean: Losses, parts: Sequence[Computed]) -> None:
        """An update: the losses of all processes, and what this one computed its own from."""
        self._updates.append(_Update(step, mean, parts))
        if len(self._updates) >= LOOK_EVERY:
            self.look()

    def look(self) -> None:
        """Wait for the device once; :class:`TrainingError` where a loss is not finite.

        All processes see the same means at the same updates, so that they stop together.
        """
        updates, self._updates = self._updates, []
        losses = [loss for u in updates for loss in u.mean.by_group.values()]
        if not losses or bool(torch.stack(losses).isfinite().all()):
            return
        self.failed = True
        bad = next(u for u in updates if not _finite(u.mean))
        found = next((part for part in bad.parts if not _finite(part[1])), None)
        if found is None:
            raise TrainingError(f"a loss of another process is not finite, step {bad.step}")
        batch, own = found
        name, loss = next((k, v) for k, v in own.by_group.items() if not bool(v.isfinite()))
        raise TrainingError(_save_failure(self._run_dir, bad.step, name, loss, batch))


def _finite(losses: Losses) -> bool:
    return all(bool(loss.isfinite()) for loss in losses.by_group.values())


def _save_failure(run_dir: Path, step: int, group: str, loss: Tensor, batch: Batch) -> str:
    tensors = {f"observations/{k}": v for k, v in batch.observations.items()}
    tensors |= {"actions": batch.actions, "action_mask": batch.action_mask}
    if batch.reward is not None:
        tensors["reward"] = batch.reward
    path = run_dir / FAILED_BATCH
    write_tensors(path, tensors, {"step": str(step)})
    bad = [k for k, v in tensors.items() if not bool(torch.isfinite(v).all())]
    cause = f"its inputs {bad} are not finite" if bad else "its inputs are finite: lower the lr"
    return (
        f"loss '{group}' is {loss.item()} at step {step}; {cause}."
        f" The batch is in '{path}'; a checkpoint from before it, if there is one, is kept"
    )
