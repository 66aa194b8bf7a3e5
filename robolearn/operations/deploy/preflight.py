"""Looks at everything that a deployment needs before anything moves, and tells what it found."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from hardware.cell.config import CellConfig
from hardware.env.real_env import RealEnv
from robolearn.operations.cell.look import look_at
from robolearn.operations.deploy.policy import Source, policy_latency_s
from robolearn.operations.deploy.result import Preflight
from robolearn.timing.latencies import differences


@dataclass(frozen=True, slots=True)
class Checks:
    """Makes the checks of one deployment; ``told`` hears each with what was found."""

    cell: CellConfig
    policy: Source
    told: Callable[[str, str], None]

    def run(self, env: RealEnv, *, lead_ticks: int, agent_real_time: bool) -> Preflight:
        """All of them; raises what a device raises that does not answer."""
        ids = look_at(env, self.told)
        latency_s = policy_latency_s(self.policy.inference)
        self._policy(latency_s, lead_ticks)
        return Preflight(
            agent_real_time=agent_real_time,
            supervisor_real_time=env.supervisor.real_time,
            policy_call_ms=1e3 * latency_s,
            latencies=self.cell.latencies,
            latencies_differ=self._latencies(),
            devices=ids,
        )

    def _policy(self, latency_s: float, lead_ticks: int) -> None:
        lead_s = lead_ticks / self.cell.rate_hz
        call = f"one call {1e3 * latency_s:.1f} ms"
        if latency_s < lead_s:
            self.told("policy", f"{call}, fits the lead of {1e3 * lead_s:.0f} ms")
            return
        enough = math.ceil(latency_s * self.cell.rate_hz)
        self.told(
            "policy",
            f"{call}, DOES NOT FIT the lead of {1e3 * lead_s:.0f} ms: give"
            f" {enough} lead ticks, stop other programs, or do without real-time chunking",
        )

    def _latencies(self) -> tuple[str, ...] | None:
        """What is compensated here, and whether the policy was trained with something else."""
        here = self.cell.latencies
        ahead = f"actions are sent {1e3 * here.command_s:.0f} ms ahead"
        if self.policy.trained is None:
            self.told("latencies", f"{ahead}; those of the training are not known (a server)")
            return None
        names = [s.name for s in self.policy.inference.spec.task_space.observations]
        lines = differences(self.policy.trained, here, names)
        if not lines:
            self.told("latencies", f"{ahead}; observations arrive as in training")
            return ()
        self.told("latencies", f"{ahead}; DIFFERENT FROM TRAINING: {'; '.join(lines)}")
        self.told("", "train with data.latency_s (docs/calibration.md), or mend the slow stream")
        return tuple(lines)
