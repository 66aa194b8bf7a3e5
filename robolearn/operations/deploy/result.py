"""Holds what a deployment came to, and makes ``deploy.json`` of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardware.supervisor.link import Status
from robolearn.config import from_dict
from robolearn.errors import ConfigError, DataError
from robolearn.operations.deploy.figures import Figures
from robolearn.operations.trust.permission import Permission
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.timing.latencies import Latencies
from robolearn.types import TrialRecord

DOCUMENT = "deploy.json"


@dataclass(frozen=True, slots=True)
class Intervention:
    """What the supervisor did during a trial: when, why, the value that caused it, the command."""

    t_ns: int
    cause: str
    value: float
    command: int


@dataclass(frozen=True, slots=True)
class TrialDetail:
    """What a trial's row does not hold: times of every tick, interventions, or how it was cut short
    (``aborted``, "" for a trial that ended).
    """

    condition: str
    episode: str = ""
    start: str = ""
    interventions: tuple[Intervention, ...] = ()
    inference_ms: tuple[float, ...] = ()
    overrun_ms: tuple[float, ...] = ()
    setpoint_lateness_ms: tuple[float, ...] = ()
    aborted: str = ""

    def to_json(self) -> dict[str, Any]:
        """As in ``deploy.json``."""
        raw = dataclasses.asdict(self)
        if self.aborted:
            short = {"condition": self.condition, "aborted": self.aborted}
            return short | ({"episode": self.episode} if self.episode else {})
        return {name: value for name, value in raw.items() if name != "aborted"}


@dataclass(frozen=True, slots=True)
class Preflight:
    """What was found before anything moved. ``latencies_differ`` is None where the policy runs
    elsewhere; ``devices``: ids by device, as in an episode's provenance.
    """

    agent_real_time: bool
    supervisor_real_time: bool
    policy_call_ms: float
    latencies: Latencies
    latencies_differ: tuple[str, ...] | None
    devices: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])


@dataclass(frozen=True, slots=True)
class Watched:
    """What the policy would have done: its first action (a dry run), or how far its actions were
    from where the arm stood over an episode (a shadow run).
    """

    first_action: tuple[float, ...] = ()
    median: float = 0.0
    max: float = 0.0
    ticks: int = 0

    def to_json(self) -> dict[str, Any]:
        """As in ``dry_run.json`` and ``shadow.json``."""
        if self.first_action:
            return {"first_action": list(self.first_action)}
        return {"median": self.median, "max": self.max, "ticks": self.ticks}


@dataclass(frozen=True, slots=True)
class DeployResult:
    """What a deployment came to.

    ``trials`` are this deployment's, ``details`` and ``figures`` those of the whole folder;
    ``supervisor``: its last words (None where nothing moved); ``watched``: of a dry or shadow run.
    """

    robot: str
    policy: str
    suite: str
    lab_seed: int | None
    trials: tuple[TrialRecord, ...]
    details: tuple[TrialDetail, ...]
    figures: Figures
    preflight: Preflight
    permission: Permission
    supervisor: Status | None = None
    watched: Watched | None = None

    def document(self) -> dict[str, Any]:
        """``deploy.json``."""
        before = self.preflight
        facts: dict[str, Any] = {
            "agent_real_time": before.agent_real_time,
            "policy_call_ms": before.policy_call_ms,
            "supervisor_real_time": before.supervisor_real_time,
            LATENCIES: before.latencies.to_json(),
        }
        if before.latencies_differ is not None:
            facts["latencies_differ"] = list(before.latencies_differ)
        if self.supervisor is not None:
            facts["supervisor"] = dataclasses.asdict(self.supervisor)
        if self.watched is not None:
            facts["shadow"] = self.watched.to_json()
        return {
            "robot": self.robot,
            "policy": self.policy,
            "suite": self.suite,
            **self.permission.to_json(),
            "lab_seed": self.lab_seed,
            **dataclasses.asdict(self.figures),
            **facts,
            "trials": [detail.to_json() for detail in self.details],
        }

    def text(self) -> str:
        """One line for a person, more where a person helped, or a tracker said what cannot be."""
        f = self.figures
        doubts = (
            f"\n{f.implausible_poses} implausible measurement(s) of trackers were not believed:"
            " look at what they see (reflections, two objects of one name, a bumped camera)"
        )
        helped = (
            f"\ncorrected: {f.corrected} of {f.episodes} trial(s), which are not the policy's"
            f" successes; {f.corrected_successes} of them were solved with help; a person drove"
            f" {f.person_steps} of {f.steps} steps"
        )
        return (
            f"{f.episodes} trial(s), mean score {f.mean_score:.3f}, {f.successes} success(es);"
            f" policy latency p50 {f.inference_ms_p50:.1f} ms, p99 {f.inference_ms_p99:.1f} ms;"
            f" {f.overruns} late tick(s), {f.interventions} intervention(s)"
            + (helped if f.corrected else "")
            + (doubts if f.implausible_poses else "")
        )


def earlier_details(folder: Path) -> Sequence[TrialDetail]:
    """What ``deploy.json`` says about the trials that are in the folder already."""
    path = folder / DOCUMENT
    if not path.is_file():
        return ()
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["trials"]
        return [from_dict(TrialDetail, row, "trials") for row in rows]
    except (ValueError, KeyError, TypeError, ConfigError) as error:
        raise DataError(
            f"'{path}' cannot be added to ({type(error).__name__}: {error}); mend it, move it away,"
            " or choose another folder for the results"
        ) from error
