"""A trained policy in the virtual lab for a long time: memory, overruns, interventions.

    python -m tests.benchmarks.soak RUN [MINUTES]

30 minutes is the figure that docs/safety.md names. Prints one JSON document.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from eval.trials.suites import load_suite
from hardware.cell.load import load_cell
from hardware.emulators.lab.launch import LabProcess
from hardware.env.real_env import RealEnv
from robolearn.agents.chunk import ChunkAgent
from robolearn.errors import RobolearnError, SafetyStopError, StaleSignalError
from robolearn.inference.local import WorkerInference
from robolearn.machine.process import take_real_time
from robolearn.operations.builders import policy_builder
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.cell.placing import LabPlacement
from robolearn.operations.cell.scoring import LabScorer
from robolearn.runtime import run_episode
from sim.tasks.registry import build_task

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "configs" / "hardware" / "lab_ur5e.yaml"
SUITE = ROOT / "configs" / "eval" / "pusht.yaml"
STEPS = 150


def soak(run: Path, minutes: float) -> dict[str, Any]:
    """Episode after episode; memory is compared with that after the first fifth of the time."""
    cell = load_cell(CONFIG)
    suite = load_suite(SUITE)
    conditions = suite.select(50)
    begin, memory = time.monotonic(), list[dict[str, float]]()
    episodes, overruns, missed_logged, causes = 0, 0, 0, dict[str, int]()
    error, stops = "", list[str]()
    with LabProcess(CONFIG, address=cell.address) as lab, lab.where.connect() as door:
        inference = WorkerInference(policy_builder(run), timeout_s=30.0)
        # As deploy does: the lab's controller below the supervisor, the agent below both, the
        # policy's worker an ordinary process (the vendor's threads must not starve).
        real_time = take_real_time(lab.pid, 40, inherit=False) and take_real_time(
            0, 5, inherit=True
        )
        place = LabPlacement(door)
        scorer = LabScorer(door, build_task(suite.config.task, {}, where=str(SUITE)))
        env = RealEnv(cell, place=place, scorer=scorer, settable_poses=True)
        agent = ChunkAgent(inference.spec, env.spec, name="soak", lead_ticks=1, realtime=True)
        pids = {
            "agent": 0,
            "supervisor": env.supervisor.pid,
            "policy": inference.pid,
            "lab": lab.pid,
        }
        try:
            while time.monotonic() - begin < 60.0 * minutes:
                condition = conditions[episodes % len(conditions)]
                try:
                    run_episode(env, agent, inference, [HoldAtEnd(env)], condition, max_steps=STEPS)
                    episodes += 1
                except SafetyStopError as stop:
                    # For instance the block jammed against the wall; the operator goes on.
                    stops.append(str(stop).partition(". ")[0])
                    _clear(env, stops)
                except StaleSignalError as stale:
                    # A deployment ends the trial and goes on with the next one.
                    stops.append(str(stale).partition(". ")[0])
                except RobolearnError as problem:
                    error = str(problem)
                    break
                overruns += env.overruns
                for event in env.interventions:
                    name = event.cause.name.lower()
                    causes[name] = causes.get(name, 0) + 1
                memory.append(
                    {
                        "minute": round((time.monotonic() - begin) / 60.0, 2),
                        **{k: _mib(pid) for k, pid in pids.items()},
                    }
                )
            status = env.status()
            missed_logged = status.missed
        finally:
            env.close()
            inference.close()
    settled = memory[len(memory) // 5] if memory else {}
    growth = {
        name: round(100.0 * (memory[-1][name] / settled[name] - 1.0), 2) for name in pids if settled
    }
    return {
        "minutes": round((time.monotonic() - begin) / 60.0, 1),
        "episodes": episodes,
        "real_time": real_time,
        "memory_growth_percent": growth,
        "memory_mib": memory[-1] if memory else {},
        "control_ticks_skipped": overruns,
        "supervisor_ticks_missed": missed_logged,
        "interventions": causes,
        "stops_cleared": stops,
        "ended_by": error,
    }


def _clear(env: RealEnv, stops: list[str], tries: int = 3) -> None:
    """As an operator would: once more when connecting fails, and every failure is told."""
    for left in range(tries - 1, -1, -1):
        try:
            env.clear_stop()
            return
        except RobolearnError as refused:
            stops.append(f"clearing failed: {refused}")
            if not left:
                raise


def _mib(pid: int) -> float:
    return round(psutil.Process(pid or None).memory_info().rss / 2**20, 2)


if __name__ == "__main__":
    minutes = float(sys.argv[2]) if len(sys.argv) > 2 else 30.0
    print(json.dumps(soak(Path(sys.argv[1]), minutes), indent=1))
