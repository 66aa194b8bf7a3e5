"""The virtual lab: command to state through the unmodified ur_rtde, real time, speed in process.

make bench ONLY=lab
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from hardware.emulators.lab.launch import LabProcess
from robolearn.pusht import TOOL
from robolearn.types import Command
from sim.adapters.pusht.bullet import PyBulletEnv
from tests.waiting import pass_time, wait_until

CONFIG = Path(__file__).parents[2] / "configs" / "hardware" / "lab_ur5e.yaml"
ADDRESS = "127.0.7.1"
TICK_MS = 2.0
MOVED_RAD = 2e-6  # a hundred times what the resting arm does


def rows(long: bool = False) -> list[dict[str, Any]]:
    """All figures of this area."""
    return [*_wire(300 if long else 60), _in_process(300 if long else 100)]


def _row(
    name: str, unit: str, ours: float, reference: float, floor: str, holds: bool, why: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "ours": round(ours, 3),
        "reference": round(reference, 3),
        "ratio": round(ours / reference, 3),
        "floor": floor,
        "holds": holds,
        "why": why,
    }


def _wire(repeats: int) -> list[dict[str, Any]]:
    import rtde_control
    import rtde_receive

    with LabProcess(CONFIG, address=ADDRESS) as lab, lab.where.connect() as door:
        receive = rtde_receive.RTDEReceiveInterface(ADDRESS)
        control = rtde_control.RTDEControlInterface(ADDRESS)
        before = door.call("stats")
        start = time.monotonic()
        latencies = _latencies(receive, control, repeats)
        wall = time.monotonic() - start
        after = door.call("stats")
        control.servoStop()
        control.disconnect()
        receive.disconnect()
    p50, p99 = np.percentile(latencies, [50, 99])
    cpu = (after["cpu_s"] - before["cpu_s"]) / wall
    kept = (after["time_s"] - before["time_s"]) / wall
    late = after["late"] - before["late"]
    return [
        _row(
            "servoJ command to changed state, p50 (reference: one controller tick)",
            "ms",
            float(p50),
            TICK_MS,
            "p50 <= 3 ms",
            bool(p50 <= 3.0),
            f"p99 {p99:.2f} ms, n {len(latencies)}",
        ),
        _row(
            "CPU of the lab, PyBullet at 500 Hz with two RTDE clients (reference: one core)",
            "cores",
            cpu,
            1.0,
            "<= 0.4",
            bool(cpu <= 0.4),
        ),
        _row(
            "simulated time of the lab per wall time",
            "s/s",
            kept,
            1.0,
            "0.99 to 1.01",
            bool(0.99 <= kept <= 1.01),
            f"{late} of {after['ticks'] - before['ticks']} ticks late",
        ),
    ]


def _latencies(receive: Any, control: Any, repeats: int) -> list[float]:
    """Milliseconds from the call of servoJ at rest until the receive interface shows motion."""
    home = np.array(receive.getActualQ())
    out: list[float] = []
    for i in range(repeats):
        target = home.copy()
        target[0] += 0.01 if i % 2 else -0.01
        rest = _settle(receive)
        start = time.perf_counter()
        control.servoJ(target.tolist(), 0.0, 0.0, 0.002, 0.03, 500.0)
        wait_until(
            lambda rest=rest: abs(receive.getActualQ()[0] - rest) >= MOVED_RAD,
            timeout_s=1.0,
            poll_s=5e-5,
            what="a motion after a servoJ command",
        )
        out.append((time.perf_counter() - start) * 1e3)
    return out


def _settle(receive: Any) -> float:
    """Joint 0 [rad] once it has been still for 10 ms."""
    while True:
        before = receive.getActualQ()[0]
        pass_time(0.01, "still for so long")
        if abs(receive.getActualQ()[0] - before) < 0.1 * MOVED_RAD:
            return float(receive.getActualQ()[0])


def _in_process(ticks: int) -> dict[str, Any]:
    env = PyBulletEnv()
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    start = time.perf_counter()
    for seq in range(ticks):
        target = np.array([0.256, 0.3]) + 0.1 * np.array([np.cos(0.2 * seq), np.sin(0.2 * seq)])
        env.apply(Command(seq, {TOOL: target}, env.now_ns(), "bench"))
        env.advance()
        env.drain()
    speed = ticks / env.spec.rate_hz / (time.perf_counter() - start)
    env.close()
    return _row(
        "the lab's physics in process (reference: real time)",
        "s/s",
        speed,
        1.0,
        "faster than real time",
        speed > 1.0,
    )
