"""Says how an evaluation is run; apart from what runs it, so that ``--help`` answers at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robolearn.agents.execution import Execution, GuidanceName, Runtime
from robolearn.errors import ConfigError
from robolearn.operations.builders import require_continued


@dataclass(frozen=True, slots=True)
class EvaluateOptions:
    """Which conditions and worlds, how policies are computed and executed, and on what it runs."""

    # The conditions and the protocol; default: the suite that comes with the task of the worlds.
    suite: Path | None = None
    # The plan that it keeps to (robolearn suite plan): its worlds and its number of conditions; the
    # trials remember it, and what they say as planned is told apart from what is exploratory.
    plan: Path | None = None
    # Worlds: gym_pusht, packaged scenes, or scene folders; perturbed ones as NAME~mass=1. The suite
    # may add variants to each. Default: the suite's own world (without a suite: gym_pusht).
    worlds: tuple[str, ...] = ()
    # Conditions in every world; default: what the suite says. Beyond the suite's list more are
    # drawn, always the same ones.
    conditions: int | None = None
    # Worker processes; 0: in this process.
    workers: int = 1
    # Where the workers run: processes of this machine, or Ray actors.
    executor: Literal["processes", "ray"] = "processes"
    # Ray cluster (auto, ray://HOST:10001); empty: Ray is started on this machine.
    address: str = ""
    # What computes the policies: torch, or ONNX Runtime (exports the run first if need be).
    runtime: Runtime = "torch"
    # How chunks continue each other: guided with the Jacobian, with the identity instead, by a hard
    # mask, or as the policy was trained to (algorithm.max_prefix); auto: as trained if it was, else
    # jacobian.
    guidance: GuidanceName = "auto"
    # Control steps that an answer of the policy takes, exactly, in simulated time.
    delay_ticks: int = 0
    # Environments per forward pass of a policy. More are faster, and round differently: the batch
    # belongs to a trial's identity.
    batch: int = 1
    # At most so many clips per policy and world (one of a perturbed one), chosen by rule: a failure
    # of each kind, the median, longest and shortest success, the worst and the nearest miss.
    videos: int = 4
    # Run the source world again with starts moved by 0.3 mm, and with other noise of the policy,
    # to know how far a world agrees with itself: two trials more for each of the suite's subset of
    # starts and each policy.
    repeat: bool = False
    # The interval of mean scores: bounded_mean assumes nothing but that scores lie between 0 and 1;
    # t (Student's) that their mean is nearly normal, which few trials and rare failures are not.
    interval: Literal["bounded_mean", "t"] = "bounded_mean"
    # Folder of 'robolearn success': its classifier decides on success, not the world; the worlds
    # need the camera (WORLD,camera=top). Results are corrected by its held-out errors.
    judge: Path | None = None

    def check(self, execution: Execution) -> None:
        """:class:`ConfigError` for numbers and choices that cannot be."""
        for name, value, least in (
            ("workers", self.workers, 0),
            ("batch", self.batch, 1),
            ("videos", self.videos, 0),
            ("delay_ticks", self.delay_ticks, 0),
        ):
            if value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
        execution.check()
        require_continued(self.guidance, execution.realtime_chunking and self.runtime == "torch")
