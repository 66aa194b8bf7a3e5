"""Holds what a deployment is told: which policy, on which cell, over which starts, and how."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from hardware.cell.limits import RunLimits
from robolearn.agents.execution import Execution, GuidanceName, Runtime
from robolearn.errors import ConfigError
from robolearn.operations.builders import require_continued

Mode = Literal["run", "dry_run", "shadow"]
"""Move the arm; ask the policy once about what is seen now; watch it for an episode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeOverOptions:
    """Who takes over from the policy when it is lost, and hands back."""

    # A device (keyboard, spacemouse, gamepad, leader, browser), scripted (the task's expert), or ""
    # (nobody).
    by: str = ""
    # A file of configs/collect/, whose ``device``, ``mapping`` and ``takeover`` count.
    config: Path | None = None
    # Where the page is (0: any free port; "": on this computer alone).
    port: int = 0
    host: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployOptions:
    """Which policy on which cell, and how its trials are run."""

    # Run directory of the policy; None: ``server``.
    run: Path | None = None
    # A policy server instead, ws://HOST:PORT; its token in ROBOLEARN_TOKEN.
    server: str = ""
    # A file of configs/hardware/.
    robot: Path
    # Results: store/, trials.sqlite, deploy.json, videos/; a folder of earlier trials gains these.
    out: Path
    # Where the starts come from.
    suite: Path = Path("configs/eval/pusht.yaml")
    # How many trials.
    episodes: int = 2
    # Index of the first condition of the suite.
    first: int = 0
    # Control steps per trial; None: what the suite says.
    max_steps: int | None = None
    # How chunks become commands.
    execution: Execution = field(
        default_factory=lambda: Execution(lead_ticks=1, realtime_chunking=True)
    )
    # What computes the policy.
    runtime: Runtime = "torch"
    # How a plan is continued.
    guidance: GuidanceName = "auto"
    # Take a run whose files were edited since it was written.
    accept_edited: bool = False
    # The policy's certificate; None: certificate.json of the run, if it has one.
    certificate: Path | None = None
    # Why it may drive without a certificate that holds; kept with every episode. "": it may not,
    # where the cell demands one.
    accept_uncertified: str = ""
    # What a policy that reads text is told; "": what the suite says.
    instruction: str = ""
    # What is done.
    mode: Mode = "run"
    # Who scores: the task's predicate, or the operator's keys alone (keys always count).
    score: Literal["task", "operator"] = "task"
    # Tighter limits for this run.
    limits: RunLimits = field(default_factory=RunLimits)
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Who may take over; what they drove is marked, and never counted as the policy's success.
    takeover: TakeOverOptions = field(default_factory=TakeOverOptions)
    # How many safety stops the deployment goes on after; each ends its trial as a failure. A lab is
    # cleared by the program, a real arm after the operator has looked at it.
    go_on_after_stop: int = 0
    # Who supervises, kept with every trial.
    operator: str = ""
    # Draw a video of every trial from its recorded poses.
    video: bool = True

    def __post_init__(self) -> None:
        for name, value, least in (
            ("episodes", self.episodes, 1),
            ("first", self.first, 0),
            ("max_steps", self.max_steps, 1),
            ("go_on_after_stop", self.go_on_after_stop, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        self.executed.check()
        require_continued(self.guidance, self.executed.realtime_chunking)

    @property
    def executed(self) -> Execution:
        """``execution``, without the real-time chunking that an ensemble or ONNX replaces."""
        continued = self.runtime == "torch" and self.execution.ensemble is None
        return dataclasses.replace(
            self.execution,
            realtime_chunking=self.execution.realtime_chunking and continued,
        )
