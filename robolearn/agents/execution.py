"""Chooses how chunks become commands: the same for evaluation and deployment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.sub_goals import GoalsInTurn
from robolearn.contracts import Agent, PolicySpec
from robolearn.errors import ConfigError
from robolearn.spec import EmbodimentSpec

Runtime = Literal["torch", "onnx"]
"""What computes a policy."""
GuidanceName = Literal["auto", "jacobian", "identity", "hard", "trained"]
"""How a policy continues what is left of a plan (``policies/chunks/guidance.py``): ``auto`` is
``trained`` if it was trained so, else ``jacobian``."""

_LABELS = {"realtime_chunking": "realtime"}


@dataclass(frozen=True, slots=True)
class Execution:
    """Chunk execution and receding horizon (``execute``), real-time chunking, or ensembling."""

    # Actions executed per chunk; default: what the policy says, and 1 with --ensemble.
    execute: int | None = None
    # Ask for the next chunk so many control steps ahead: inference may take that long.
    lead_ticks: int = 0
    # Let each chunk continue the one before it (real-time chunking).
    realtime_chunking: bool = False
    # Temporal ensembling: weights exp(-M i) of all chunks for a time, the oldest first; ACT: 0.01.
    ensemble: float | None = None
    # Show the policy one wanted sub-goal at a time, each for at most so many seconds; default: all.
    goal_s: float | None = None
    # With --goal-s: whose turn is first, counted from 0; the others follow as they are numbered.
    goal_order: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """What differs from the default, for names and hashes; empty: nothing."""
        # The names are part of what trials are found again by; they do not follow the options'.
        changed = [
            f"{_LABELS.get(f.name, f.name)}={getattr(self, f.name)}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return ",".join(changed)

    def check(self) -> None:
        """:class:`ConfigError` for choices that exclude each other or that nothing can do."""
        for name, value, least in (
            ("execute", self.execute, 1),
            ("lead_ticks", self.lead_ticks, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        if self.realtime_chunking and self.ensemble is not None:
            raise ConfigError(
                "real-time chunking and temporal ensembling exclude each other: the first makes"
                " chunks agree, the second averages those that do not"
            )
        if self.goal_order and self.goal_s is None:
            raise ConfigError("an order of sub-goals needs the seconds that each of them has")

    def agent(
        self,
        spec: PolicySpec,
        embodiment: EmbodimentSpec,
        name: str,
        command_latency_s: float = 0.0,
    ) -> Agent:
        """The policy's wrapper on a robot; raises as :meth:`check`."""
        self.check()
        agent = ChunkAgent(
            spec,
            embodiment,
            name=name,
            execute=self.execute,
            lead_ticks=self.lead_ticks,
            realtime=self.realtime_chunking,
            ensemble=self.ensemble,
            command_latency_s=command_latency_s,
        )
        if self.goal_s is None:
            return agent
        return GoalsInTurn(agent, spec, self.goal_s, self.goal_order)
