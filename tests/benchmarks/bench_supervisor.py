"""The supervisor's loop at 500 Hz beside a policy that burns every core.

    make bench ONLY=supervisor

Lateness is that of every tick against its absolute deadline; a missed tick is skipped and counted.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from hardware.drivers.fakes.robot import FakeConfig
from hardware.supervisor.client import SupervisorClient
from hardware.supervisor.link import SupervisorConfig, Target
from robolearn.timing.clocks import Rate
from tests.hardware.workcell import FOLLOWER, joints_at

PERIOD_S = 0.1


@dataclass(frozen=True, slots=True)
class Lateness:
    """Milliseconds, and the share of ticks that were missed."""

    p50: float
    p99: float
    worst: float
    missed: float
    ticks: int
    real_time: bool


def rows(long: bool = False) -> list[dict[str, Any]]:
    """See ``tests/benchmarks/run.py``."""
    seconds = 60.0 if long else 15.0
    stop = multiprocessing.get_context("spawn").Event()
    burners = [
        multiprocessing.get_context("spawn").Process(target=burn, args=(stop,), daemon=True)
        for _ in range(os.cpu_count() or 2)
    ]
    for process in burners:
        process.start()
    try:
        measured = [measure(seconds, real_time=wanted) for wanted in (True, False)]
    finally:
        stop.set()
        for process in burners:
            process.join(10)
    told = (
        f"{len(burners)} burning processes, {seconds:g} s, 1-minute load {os.getloadavg()[0]:.0f}"
    )
    return [row for lateness in measured for row in _rows(lateness, told)]


def burn(stop: Any) -> None:
    """A policy that never rests: numbers and Python in turn."""
    a = np.random.default_rng(0).normal(size=(200, 200))
    while not stop.is_set():
        a = np.tanh(a @ a * 1e-2)
        sum(range(20_000))


def measure(seconds: float, *, real_time: bool) -> Lateness:
    """Follow a moving target for that long."""
    patient = SupervisorConfig(
        late_s=1.0, heartbeat_s=1.0, frozen_s=5.0, state_late_s=0.5, state_stale_s=1.0
    )
    robot = FakeConfig(tuple(joints_at((0.256, 0.3))), watchdog_s=5.0)
    client = SupervisorClient(robot.build, FOLLOWER, patient, real_time=real_time)
    try:
        client.request("follow")
        begin, (_, index) = client.status(), client.counts()
        late: list[float] = []
        rate = Rate(1.0 / PERIOD_S)
        for k in range(round(seconds / PERIOD_S)):
            xy = np.array([0.256 + 0.1 * np.sin(0.4 * k), 0.3 + 0.1 * np.cos(0.4 * k)])
            client.command(Target(k, time.monotonic_ns(), xy, np.zeros((0, 2))))
            rate.wait()
            sent = client.sent(index)
            index = sent.next_index
            late += (1e-6 * sent.value[:, 1]).tolist()
        end = client.status()
    finally:
        client.close()
    ticks, missed = end.ticks - begin.ticks, end.missed - begin.missed
    p50, p99, worst = (float(v) for v in np.percentile(late, [50, 99, 100]))
    return Lateness(p50, p99, worst, missed / (ticks + missed), ticks, client.real_time)


def _rows(measured: Lateness, told: str) -> list[dict[str, Any]]:
    how = "SCHED_FIFO" if measured.real_time else "ordinary priority"
    figures = (
        f"p50 {measured.p50:.3f} ms, worst {measured.worst:.2f} ms, {measured.ticks} ticks; {told}"
    )
    fifo = measured.real_time
    return [
        {
            "name": f"supervisor at 500 Hz, {how}: lateness p99 (reference: the period)",
            "unit": "ms",
            "ours": round(measured.p99, 3),
            "reference": 2.0,
            "ratio": round(measured.p99 / 2.0, 3),
            "floor": "p99 <= 0.5 ms" if fifo else "",
            "holds": measured.p99 <= 0.5 if fifo else None,
            "why": figures,
        },
        {
            "name": f"supervisor at 500 Hz, {how}: ticks missed and counted (reference: all)",
            "unit": "%",
            "ours": round(100 * measured.missed, 3),
            "reference": 100.0,
            "ratio": round(measured.missed, 5),
            "floor": "<= 0.1 %" if fifo else "",
            "holds": measured.missed <= 1e-3 if fifo else None,
            "why": figures,
        },
    ]
