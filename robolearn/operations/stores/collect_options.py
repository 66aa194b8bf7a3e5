"""Holds what a collection is told: who acts, how many episodes of it, and how a cell is opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from hardware.cell.limits import RunLimits
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectOptions:
    """Who acts, in a world or on a cell, and how many episodes of it are kept."""

    # Who acts: the task's scripted expert, the expert at play (many goals, none of them the
    # task's), or a person at a device: keyboard (this terminal's keys), browser (a page),
    # freedrive (the arm itself, guided by hand), or another one (docs/teleoperation.md); auto: as
    # the configuration says, else browser in Push-T and scripted elsewhere.
    agent: str = "auto"
    # A trained run, which acts instead: its episodes, failures included, are of kind 'rollout'. On
    # a cell only where somebody corrects it.
    policy: Path | None = None
    # Who takes over from the policy when it is lost, and hands back: a person at a device
    # (keyboard, browser, ...), or scripted (the task's expert); the episodes are of kind
    # 'corrected', and say of every step who drove.
    corrected_by: str = ""
    # Clumsiness of the expert, 0 to 1.
    noise: float = 0.0
    # You follow no task: long recordings without a time limit, with markers (kind 'play').
    play: bool = False
    # How many episodes to save.
    episodes: int = 10
    # Port of the page (0: any free one).
    port: int = 0
    # Address of this computer under which a tablet in its network opens the page, with TLS; without
    # it nobody but this computer can.
    host: str = ""
    # CAMERA=SCENE, on a cell with a suite: while things are placed the camera's picture (on the
    # page, in the terminal, and in OUT-start.png) has the wanted start over it, as the scene's
    # camera of that name would see it.
    overlay: str = ""
    # Who is recording, kept with every episode.
    operator: str = ""

    def check(self) -> None:
        """:class:`ConfigError` for what excludes each other, and numbers that cannot be."""
        if self.episodes < 1:
            raise ConfigError(f"episodes must be at least 1, got {self.episodes}")
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be 0 (any free one) to 65535, got {self.port}")
        if self.policy is not None and self.agent != "auto":
            raise ConfigError(
                f"either a policy acts or the agent '{self.agent}': leave one of them out"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class CellOptions:
    """How a cell is opened."""

    # Start the virtual lab of the cell and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Tighter limits for this run.
    limits: RunLimits = field(default_factory=RunLimits)
