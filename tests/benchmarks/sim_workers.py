"""Processes that step a scene and draw it, for ``bench_sim.py`` and the test of equal bits."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from typing import Any

CAMERA, SIZE = "agent", 84


@dataclass(frozen=True, slots=True)
class Report:
    """What one process did: wall clock at start and end [s], CPU time between [s], and a digest of
    all states and pictures.
    """

    start_s: float
    end_s: float
    cpu_s: float
    digest: str


def wall_rate(reports: Sequence[Report], ticks: int) -> float:
    """Ticks per second of all processes together."""
    took = max(r.end_s for r in reports) - min(r.start_s for r in reports)
    return len(reports) * ticks / took


def cpu_rate(reports: Sequence[Report], ticks: int) -> float:
    """Ticks per second if each process had a core: what they do per CPU second, added up."""
    return sum(ticks / r.cpu_s for r in reports)


def run(world: str, ticks: int, workers: int) -> list[Report]:
    """The same episode in each of ``workers`` processes at the same time."""
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(workers), context.SimpleQueue()
    processes = [
        context.Process(target=work, args=(world, ticks, barrier, queue)) for _ in range(workers)
    ]
    for process in processes:
        process.start()
    reports = [Report(*queue.get()) for _ in processes]
    for process in processes:
        process.join()
    return reports


def work(world: str, ticks: int, barrier: Barrier, queue: Any) -> None:
    """Step and draw, starting together; put the values of a :class:`Report` into ``queue``."""
    os.environ["LP_NUM_THREADS"] = "0"
    import numpy as np

    from robolearn.agents.actions import hold_action
    from robolearn.types import Command
    from sim.env.scene_env import SceneEnv
    from sim.scene.load import load_scene

    env = SceneEnv(load_scene(world), cameras=(CAMERA,), size=SIZE)
    env.reset(env.sample_condition(3), np.random.default_rng(3))
    held = dict(hold_action(env.spec.actions, env.observe()))
    digest = hashlib.sha256()
    barrier.wait(timeout=120)
    start, cpu = time.perf_counter(), time.process_time()
    for k in range(ticks):
        action = {n: np.array(v) for n, v in held.items()}
        action["tool/xyz_yaw"][:2] += 0.04 * np.array([np.cos(0.2 * k) - 1, np.sin(0.2 * k)])
        env.apply(Command(k, action, env.now_ns(), "bench"))
        env.advance()
        digest.update(env.data.qpos.tobytes())
        digest.update(env.observe().value(f"{CAMERA}/image").tobytes())
        env.drain()
    end, cpu = time.perf_counter(), time.process_time() - cpu
    env.close()
    queue.put((start, end, cpu, digest.hexdigest()))
