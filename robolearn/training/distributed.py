"""Trains one policy in several processes: gradients are averaged, all else is the same in each.

    torchrun --nproc-per-node 2 -m robolearn.cli.main train ...      (accelerate launch --multi_gpu)

Both launchers set RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT; without them there is
one process. Process ``r`` of ``n`` takes every n-th batch, so ``n`` processes with batch size ``b``
see in one step what one process with batch size ``n b`` sees. NCCL on CUDA, gloo elsewhere.
"""

# The stubs of torch leave some parameters untyped.
# pyright: reportUnknownMemberType=false, reportPrivateImportUsage=false
from __future__ import annotations

import contextlib
import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from datetime import timedelta

import torch
from torch import distributed as dist

from robolearn.errors import ConfigError
from robolearn.learning import AnyTensor


@dataclass(frozen=True, slots=True)
class Ranks:
    """One process among those that train together; a single one needs no communication."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the run directory."""
        return self.rank == 0

    def mean_(self, tensors: Sequence[AnyTensor]) -> None:
        """Average ``tensors`` over the processes, in place, by one message."""
        if self.size == 1 or not tensors:
            return
        flat = torch.cat([t.detach().flatten().to(torch.float32) for t in tensors])
        dist.all_reduce(flat)
        flat /= self.size
        start = 0
        for tensor in tensors:
            stop = start + tensor.numel()
            tensor.copy_(flat[start:stop].view_as(tensor))
            start = stop

    def share_(self, tensors: Sequence[AnyTensor]) -> None:
        """Overwrite ``tensors`` with those of the first process."""
        if self.size > 1:
            for tensor in tensors:
                # Detached: it is no part of what is differentiated.
                dist.broadcast(tensor.detach(), 0)

    def lead(self, value: int) -> int:
        """The first process's ``value``."""
        if self.size == 1:
            return value
        message = torch.tensor([value], device="cuda" if dist.get_backend() == "nccl" else "cpu")
        dist.broadcast(message, 0)
        return int(message.item())

    def wait(self) -> None:
        """Until all processes are here."""
        if self.size > 1:
            dist.barrier()


def leads_here() -> bool:
    """Whether this process is the first of those that a launcher started, or the only one."""
    return _number("RANK", 0) == 0


@contextlib.contextmanager
def joined(device: str = "cpu", timeout_s: float = 600.0) -> Generator[Ranks]:
    """The processes that a launcher started, connected until the block ends.

    They leave together: one that has nothing more to send waits for those that still have. A
    process that dies makes the others fail within ``timeout_s``.
    """
    size = _number("WORLD_SIZE", 1)
    if size == 1:
        yield Ranks()
        return
    backend = "nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(_number("LOCAL_RANK", 0))
    dist.init_process_group(backend, timeout=timedelta(seconds=timeout_s))
    try:
        ranks = Ranks(dist.get_rank(), dist.get_world_size())
        yield ranks
        # gloo's threads let go of what was sent after it has arrived, and need Python for that: the
        # last thing they do before the end is a message without a tensor.
        ranks.wait()
    finally:
        dist.destroy_process_group()


def _number(name: str, otherwise: int) -> int:
    text = os.environ.get(name, "")
    try:
        return int(text) if text else otherwise
    except ValueError as error:
        raise ConfigError(
            f"{name} is '{text}', expected a number: start the processes with torchrun or"
            " accelerate launch"
        ) from error
