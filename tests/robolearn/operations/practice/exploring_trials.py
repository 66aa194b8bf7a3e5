"""Explorers that propose what no arm may do, on an emulated arm under its supervisor.

    python -m tests.robolearn.operations.practice.exploring_trials 14

Episodes of a practice (``CellFlights``) in which the explorer asks for the corners of the workspace
by turns at every tick, for places outside, far outside, noise, huge numbers or none, and an episode
of the parent after each. What was sent is judged tick by tick, strictly: joint speed, acceleration
of the tool, the workspace; and so is what the controller's servos made of it, where a set-point
that came a period late is no fault. The episode has what was asked for and the supervisor's events;
where it ends early it says why, and the next one flies.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_SETPOINT
from hardware.emulators.lab.admin import LabClient
from hardware.env.real_env import RealEnv
from robolearn.agents.execution import Execution
from robolearn.contracts import PolicySpec
from robolearn.data.episode import Episode
from robolearn.data.insight.episode_measures import supervised
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import InferenceError
from robolearn.inference.local import InProcessInference
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.deploy.policy import Source
from robolearn.operations.practice.actors import Flown, RoundTask
from robolearn.operations.practice.cell_flights import CellFlights
from robolearn.pusht import BLOCK, TOOL
from robolearn.types import Condition, PolicyInput, PolicyOutput
from tests.hardware.fault_tally import outcome_text
from tests.hardware.fault_verdict import gaps, out_of_limits
from tests.hardware.outside_trials import tool_path
from tests.hardware.real_cell import StillScorer, cell_at, prompt_lab
from tests.mocks import POLICY_SPEC
from tests.waiting import wait_until

STEPS, PERIOD_S = 30, 0.002
START = Condition("start", 3, {TOOL: (0.25, 0.25), BLOCK: (0.3, 0.12, 0.5)})
# The servos' smoothing and a set-point that is a period late make up to so many times the limit
# (hardware/supervisor/resume_check.py); what is not limited at all makes seven times and more.
FACTOR = 1.5
# A command is due when it is decided: what the last one of an episode began.
AFTER_NS = 200_000_000
Rows = NDArray[np.float64]


def _corners(k: int, rng: np.random.Generator) -> Rows:
    del rng
    return np.array([0.0, 0.0]) if k % 2 else np.array([0.512, 0.512])


def _random_corners(k: int, rng: np.random.Generator) -> Rows:
    del k
    return np.array([0.512 * rng.integers(2), 0.512 * rng.integers(2)])


PROPOSALS: Mapping[str, Callable[[int, np.random.Generator], Rows]] = {
    "corners": _corners,
    "random corners": _random_corners,
    "edge": lambda k, rng: np.array([0.512 + 0.03 * (-1.0) ** k, 0.25 + 0.001 * rng.normal()]),
    "outside": lambda k, rng: np.array([0.6, 0.25]) if k > 5 else np.array([0.3, 0.25]),
    "huge": lambda k, rng: rng.choice([-1.0, 1.0], 2) * 1e9,
    "noise": lambda k, rng: np.array([0.25, 0.25]) + rng.normal(size=2),
    "not a number": lambda k, rng: np.full(2, np.nan) if k > 5 else np.array([0.3, 0.25]),
}


class Proposing:
    """A policy whose answers are proposals of a kind, or (kind "rest") the middle of the table."""

    def __init__(self, kind: str, seed: int) -> None:
        self.spec, self._kind = POLICY_SPEC, kind
        self._rng, self._calls = np.random.default_rng(seed), 0

    def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
        first = self._calls
        self._calls += self.spec.execute
        rows = np.array([self._row(first + k) for k in range(self.spec.horizon)])
        actions = np.tile(rows, (1, n, 1, 1))
        return PolicyOutput(actions, np.zeros((1, n)), request.t_ns)

    def _row(self, k: int) -> Rows:
        if self._kind == "rest":
            return np.array([0.25, 0.25])
        return PROPOSALS[self._kind](k, self._rng)


class Answered(InProcessInference):
    """In this process, with the policy's spec."""

    def __init__(self, policy: Proposing) -> None:
        super().__init__(policy)
        self.spec: PolicySpec = policy.spec


class Explorers:
    """Explores by ``kind``."""

    def __init__(self) -> None:
        self.kind = "corners"

    def at(self, version: int) -> Answered:
        return Answered(Proposing(self.kind, version))


@dataclass(frozen=True)
class Outcome:
    """What was proposed, how its episode ended, what the controller's servos were told at most as a
    share of the limits (joint speed, tool's acceleration), the same of what was sent,
    interventions, what was wrong.
    """

    kind: str
    ended: str
    speed: float
    acceleration: float
    sent_speed: float
    sent_acceleration: float
    interventions: int
    wrong: str


class Exploring:
    """Rounds of a practice on one cell: the explorer, then the parent."""

    def __init__(
        self, cell: CellConfig, env: RealEnv, door: LabClient, store: EpisodeStore, root: Path
    ) -> None:
        self._cell, self._door, self._store = cell, door, store
        self._explorers, self._numbers = Explorers(), 0
        self._stack = contextlib.ExitStack()
        self._writer = self._stack.enter_context(store.writer())
        self.flights = CellFlights(
            env=env,
            cell=cell,
            parent=Source(Answered(Proposing("rest", 0)), "resting", "hash", "here"),
            parent_hash="hash",
            explorer=self._explorers,
            run_dir=root,
            drafts=self._writer.drafts,
            operator=Unattended(agreed=True),
            task="free",
            max_steps=STEPS,
            max_stops=10_000,
            execution=Execution(),
            instruction="",
            practice="trials",
            provenance={},
        )

    def close(self) -> None:
        self._stack.close()

    def trial(self, kind: str) -> Outcome:
        """A round whose explorer proposes that."""
        self._explorers.kind = kind
        begin_ns, flown, ended = time.monotonic_ns(), list[Flown](), ""
        self._numbers += 2
        number = self._numbers // 2
        drivers = ("explorer", "parent")
        # An odd round begins with the explorer.
        task = RoundTask(2 * number + 1, number, (START, START), drivers, 0, self._numbers, (0, 0))
        ids = list[str]()
        try:
            for one in self.flights(task):
                assert one.prepared is not None
                ids.append(self._writer.commit(one.prepared))
                flown.append(one)
        except InferenceError as error:
            ended = f"refused: {str(error)[:60]}"
        end_ns = time.monotonic_ns()
        return self._judged(kind, begin_ns, end_ns, flown, ids, ended)

    def _judged(
        self,
        kind: str,
        begin_ns: int,
        end_ns: int,
        flown: list[Flown],
        ids: list[str],
        refused: str,
    ) -> Outcome:
        wrong, peaks, sent, count = "", (0.0, 0.0), (0.0, 0.0), 0
        ended = refused or (flown[0].reason if flown else "nothing flown")
        log = self._door.log(begin_ns)
        spans = [(begin_ns, end_ns)]
        if ids:
            episode = self._store.open(self._store.path).read(ids[0])
            count = len(supervised(episode))
            spans = [(int(episode.tick_t_ns[0]), int(episode.tick_t_ns[-1]) + AFTER_NS)]
            sent = self._shares(episode.streams[JOINT_SETPOINT].value)
            wrong = self._unlike(kind, episode, flown)
            if max(sent) >= 1.0:
                wrong = wrong or f"{sent[0]:.3f} and {sent[1]:.3f} of the limits were sent"
        for first, last in spans if ids else []:
            peaks = self._peaks(first, last)
            lost = gaps(log, first, last)
            if max(peaks) > FACTOR and not lost:
                wrong = wrong or f"{peaks[0]:.2f} and {peaks[1]:.2f} times the limits"
        wait_until(lambda: not self._door.log(begin_ns).moving, 10.0)
        return Outcome(kind, ended, *peaks, *sent, count, wrong or out_of_limits(log))

    def _unlike(self, kind: str, episode: Episode, flown: list[Flown]) -> str:
        """What the record keeps quiet about, or ""."""
        asked = episode.action[TOOL]
        sent = episode.sent.action[TOOL]
        low, high = self._cell.limits.workspace_low, self._cell.limits.workspace_high
        margin = self._cell.limits.workspace_margin + 1e-6
        outside = bool(((asked < np.array(low)) | (asked > np.array(high))).any())
        if ((sent < np.array(low) - margin) | (sent > np.array(high) + margin)).any():
            return "something outside was sent"
        if kind in ("outside", "huge", "noise") and not outside:
            return "what was asked for is not in the record"
        if outside and not flown[0].effort.interventions:
            return "no intervention is told of what was asked for outside"
        return ""

    def _peaks(self, first_ns: int, last_ns: int) -> tuple[float, float]:
        """Largest joint speed and acceleration of the tool that the servos were told, as shares."""
        t_ns, q = self._door.reference(first_ns)
        return self._shares(q[t_ns <= last_ns])

    def _shares(self, q: Rows) -> tuple[float, float]:
        """Of a path ``[n, 6]``, one row per period."""
        limits = self._cell.limits
        speed = float(np.abs(np.diff(q, axis=0)).max(initial=0.0)) / PERIOD_S
        bend = np.diff(tool_path(q), n=2, axis=0) / PERIOD_S**2
        acceleration = float(np.linalg.norm(bend, axis=1).max(initial=0.0))
        return speed / limits.max_joint_speed, acceleration / limits.max_tool_acceleration


def run(count: int, last: int = 29) -> list[Outcome]:
    """So many rounds, one kind after the other."""
    kinds = list(PROPOSALS)
    with (
        tempfile.TemporaryDirectory() as name,
        prompt_lab(Path(name), last) as lab,
        lab.where.connect() as door,
    ):
        door.place("block", START.poses[BLOCK])
        cell = cell_at(lab.where.address)
        env = RealEnv(cell, place=lambda _: "", scorer=StillScorer())
        store = EpisodeStore.create(Path(name) / "store")
        with (
            contextlib.closing(env),
            contextlib.closing(Exploring(cell, env, door, store, Path(name))) as exploring,
        ):
            return [exploring.trial(kinds[k % len(kinds)]) for k in range(count)]


def text(outcomes: list[Outcome]) -> str:
    """One line per kind."""

    def figures(some: list[Outcome]) -> str:
        names = ("sent_speed", "sent_acceleration", "speed", "acceleration")
        told, bent, speed, bend = (max(getattr(o, n) for o in some) for n in names)
        return (
            f"joint speed {told:.3f}, tool's acceleration {bent:.3f} of the limits as sent,"
            f" {speed:.2f} and {bend:.2f} at the servos"
        )

    return outcome_text(outcomes, lambda o: o.kind, figures)


if __name__ == "__main__":
    load = os.getloadavg()[0]
    found = run(int(sys.argv[1]))
    for outcome in found:
        print(outcome)
    print(text(found))
    print(f"1-minute load {load:.1f} before, {os.getloadavg()[0]:.1f} after")
