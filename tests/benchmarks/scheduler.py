"""A simulation of the scheduler: one head that hands out chunks and commits results, many workers.

What limits an evaluation on a thousand workers is arithmetic, and this checks it by discrete
events: the head is a single server (it sends a task, it reads and commits a result, one at a time),
workers start late, take their time, and may be lost.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from robolearn.errors import ConfigError
from robolearn.seeding import child_seed


@dataclass(frozen=True, slots=True)
class Cluster:
    """Times in seconds. ``chunk_s``: mean time of a chunk on a worker, log-normal with coefficient
    of variation ``spread``; ``dispatch_s`` and ``commit_s``: what the head spends on each chunk;
    ``loss``: probability that a worker is lost during a chunk (it is replaced after ``start_s`` and
    the chunk is run again).
    """

    workers: int
    chunk_s: float
    dispatch_s: float
    commit_s: float
    start_s: float = 0.0
    spread: float = 0.0
    loss: float = 0.0

    def __post_init__(self) -> None:
        times = (self.dispatch_s, self.commit_s, self.start_s, self.spread)
        if self.workers < 1 or self.chunk_s <= 0 or min(times) < 0 or not 0 <= self.loss < 1:
            raise ConfigError(f"expected workers >= 1, chunk_s > 0, loss in [0, 1), got {self}")

    @property
    def head_limit(self) -> float:
        """Chunks per second that the head can handle."""
        cost = self.dispatch_s + self.commit_s
        return 1.0 / cost if cost else float("inf")

    @property
    def workers_that_pay(self) -> float:
        """How many workers keep the head busy all the time; more change nothing."""
        return self.head_limit * self.chunk_s + 1.0


@dataclass(frozen=True, slots=True)
class Run:
    """``wall_s``; share of it that the head and the mean worker were busy; chunks done twice."""

    wall_s: float
    head_busy: float
    workers_busy: float
    done: int
    repeated: int


def simulate(cluster: Cluster, chunks: int, seed: int = 0) -> Run:
    """Run ``chunks`` through the cluster; every chunk is committed exactly once."""
    if chunks < 1:
        raise ConfigError(f"expected at least one chunk, got {chunks}")
    rng = np.random.default_rng(child_seed(seed, "scheduler"))
    sigma = float(np.sqrt(np.log1p(cluster.spread**2)))
    # (time, order, what): a worker that wants work, or one that brings a result.
    events = [(cluster.start_s, i, False) for i in range(cluster.workers)]
    heapq.heapify(events)
    order, waiting, done, repeated = cluster.workers, chunks, 0, 0
    head_free, head_used, worked, end = 0.0, 0.0, 0.0, 0.0
    idle = 0
    while done < chunks:
        now, _, brings = heapq.heappop(events)
        begin = max(now, head_free)
        if brings:
            begin += cluster.commit_s
            head_used += cluster.commit_s
            done, end = done + 1, begin
        if waiting == 0:
            head_free, idle = begin, idle + 1
            continue
        waiting -= 1
        begin += cluster.dispatch_s
        head_used += cluster.dispatch_s
        head_free = begin
        took = cluster.chunk_s * float(np.exp(sigma * rng.normal() - sigma**2 / 2))
        order += 1
        if cluster.loss and rng.random() < cluster.loss:
            waiting, repeated = waiting + 1, repeated + 1
            at = begin + took * float(rng.random()) + cluster.start_s
            heapq.heappush(events, (at, order, False))
            # Whoever had found nothing to do is asked again.
            for _ in range(min(idle, 1)):
                order, idle = order + 1, idle - 1
                heapq.heappush(events, (begin, order, False))
            continue
        worked += took
        heapq.heappush(events, (begin + took, order, True))
    return Run(
        wall_s=end,
        head_busy=head_used / end,
        workers_busy=worked / (end * cluster.workers),
        done=done,
        repeated=repeated,
    )
