"""How chunks become commands: one set of choices for evaluation and deployment."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.sub_goals import GoalsInTurn
from robolearn.contracts import Agent, PolicySpec
from robolearn.errors import ConfigError
from robolearn.spec import EmbodimentSpec


@dataclass(frozen=True, slots=True)
class Execution:
    """Chunk execution and receding horizon (``execute``), real-time chunking, or ensembling."""

    # Actions executed per chunk; left out: what the policy says, and 1 with ensembling.
    execute: int | None = None
    # Ask for the next chunk so many ticks ahead: inference may take that long.
    lead_ticks: int = 0
    # Let each chunk continue the one before it.
    realtime: bool = False
    # Do the mean of all chunks that cover a time, weighted by exp(-m i) from the oldest on: m
    # (published: 0.01); left out: the newest chunk alone.
    ensemble: float | None = None
    # Show one of several wanted sub-goals at a time, each for at most so many seconds
    # (robolearn/agents/sub_goals.py); left out: all that are wanted.
    goal_s: float | None = None
    # Whose turn is first, counted from 0; the others follow as they are numbered.
    goal_order: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.realtime and self.ensemble is not None:
            raise ConfigError(
                "real-time chunking and temporal ensembling exclude each other: the first makes"
                " chunks agree, the second averages those that do not"
            )
        if self.goal_order and self.goal_s is None:
            raise ConfigError("an order of sub-goals needs the seconds that each of them has")

    @property
    def label(self) -> str:
        """What differs from the default, for names and hashes; empty: nothing."""
        changed = [
            f"{f.name}={getattr(self, f.name)}"
            for f in dataclasses.fields(self)
            if getattr(self, f.name) != f.default
        ]
        return ",".join(changed)

    def agent(
        self,
        spec: PolicySpec,
        embodiment: EmbodimentSpec,
        name: str,
        command_latency_s: float = 0.0,
    ) -> Agent:
        """The policy's wrapper on a robot."""
        agent = ChunkAgent(
            spec,
            embodiment,
            name=name,
            execute=self.execute,
            lead_ticks=self.lead_ticks,
            realtime=self.realtime,
            ensemble=self.ensemble,
            command_latency_s=command_latency_s,
        )
        if self.goal_s is None:
            return agent
        return GoalsInTurn(agent, spec, self.goal_s, self.goal_order)
