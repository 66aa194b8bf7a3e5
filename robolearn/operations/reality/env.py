"""Runs the lab's workcell as an env: physics that is hidden and drawn from a seed, behind all that
a deployment has between policy and table, but the wires and the clock.

What differs from ``deploy --start-lab``: no network and no late ticks; the first observation is of
an arm that stands exactly at the start; supervisor checks besides speed, force and workspace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.motion import JOINT_POSITION, JOINT_SETPOINT, JOINT_VELOCITY, WRENCH
from hardware.cell.spec import cell_spec
from hardware.cell.start import objects_of
from hardware.devices.gripper_config import WIDTH
from hardware.devices.tracker import object_of
from hardware.emulators.drivetrain import DrivetrainConfig
from hardware.emulators.tracker import Captures
from hardware.supervisor.link import Target
from robolearn.config import config_hash, to_dict
from robolearn.errors import StaleSignalError
from robolearn.operations.code_hash import reality_hash
from robolearn.operations.lab.view import lab_view
from robolearn.operations.lab.workcell import LabConfig
from robolearn.operations.reality.aligned import Aligned
from robolearn.operations.reality.cameras import RealityCameras, Seen
from robolearn.operations.reality.driven_arm import DrivenArm
from robolearn.seeding import child_seed
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    SAFETY_STOP,
    Condition,
    Observation,
    Outcome,
    ResetReport,
    SampleBatch,
    Signals,
)
from sim.adapters.stepped import Poses, SteppedEnv
from sim.tasks.contract import Task

# The arm rests so long before an episode: a reset's, with the tracker on.
_REST_NS, _LONGEST_NS = 250_000_000, 1_500_000_000
# Emulators take 0 for "never".
_FIRST_NS = 1_000_000_000


class RealityEnv(SteppedEnv):
    """One cell of a hardware config with a virtual lab; the hidden physics comes from ``seed``."""

    def __init__(
        self,
        cell: CellConfig,
        lab: LabConfig,
        task: Task,
        *,
        drivetrain: DrivetrainConfig,
        params: dict[str, Any],
        engine: str,
        seed: int,
    ) -> None:
        self._cameras = RealityCameras(cell, lab, seed)
        spec = _spec(cell, lab, self._cameras)
        made = (JOINT_SETPOINT, WRENCH)
        settable = [s.name for s in spec.signals if not s.is_image and s.name not in made]
        super().__init__(spec, settable)
        self._cell, self._lab, self._drivetrain, self._seed = cell, lab, drivetrain, seed
        self._task, self._params, self._engine = task, params, engine
        rate_hz = lab.devices.controller.rate_hz
        self._follower = cell.follower().build(rate_hz)
        self._cell_motion = cell.motion()
        self._periods = round(rate_hz / cell.rate_hz)
        self._period_ns = round(1e9 / rate_hz)
        self._objects = {name: t.object(name) for name, t in cell.trackers.items()}
        tagged = self._cameras.tracked
        self._signals = {name: s for s, name in self._objects.items() if s not in tagged}
        self._aligned = _aligned(cell, spec) if cell.align else None
        self._arm: DrivenArm | None = None
        self._captures: Captures | None = None
        self._begun: dict[str, Any] = {}
        self._clock_ns = self._origin_ns = _FIRST_NS
        self._view: Any = None

    @property
    def engine(self) -> str:
        """Physics engine and version."""
        return self._engine

    @property
    def scene_hash(self) -> str:
        """Digest of cell, lab, what is hidden, the seed, and the code of the lab's parts."""
        parts = (to_dict(self._cell), to_dict(self._lab), to_dict(self._drivetrain), reality_hash())
        return config_hash(*parts, self._seed, self._engine, self._params)

    @property
    def task(self) -> str:
        """Name of the task."""
        return self._task.name

    @property
    def task_params(self) -> dict[str, Any]:
        """Parameters of the task that are not its defaults."""
        return dict(self._params)

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        return self._task.max_steps

    def sample_condition(self, seed: int) -> Condition:
        """A start from the task's reset distribution."""
        return self._task.sample_condition(seed)

    def render(self, width: int, height: int) -> Picture:
        """The workcell from above, drawn by a view of its own."""
        self._samples.require()
        if self._view is None:
            self._view = lab_view(self._lab)
        arm = self._running
        poses = {name: arm.plant.true_pose(name) for name in arm.plant.object_names}
        q = arm.plant.joint_positions()
        return self._view.draw("top", width, height, q, poses, arm.opening_m)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start as the condition says; what trackers told of it is as exact as the cell says."""
        report = super().reset(condition, rng)
        return dataclasses.replace(report, standard_errors=self._cell.standard_errors)

    def observe(self) -> Observation:
        """The newest samples; of a cell with ``align`` as of that camera's newest picture."""
        newest = super().observe()
        return newest if self._aligned is None else self._aligned.shown(newest)

    def drain(self) -> SampleBatch:
        """The samples of the last tick; those of the current one come next time."""
        batch = super().drain()
        return batch if self._aligned is None else self._aligned.drained(batch)

    def close(self) -> None:
        """Release the engines; safe to call twice."""
        for engine in (self._arm, self._view, self._cameras):
            if engine is not None:
                engine.close()
        self._arm = self._view = None

    # -- inside ----------------------------------------------------------------------------------

    @property
    def _running(self) -> DrivenArm:
        if self._arm is None:
            self._arm = DrivenArm(
                self._cell, self._lab, self._drivetrain, self._follower, self._seed
            )
        return self._arm

    def _start(self, condition: Condition, poses: Poses) -> None:
        if self._arm is not None:
            self._arm.close()
            self._arm = None
        arm = self._running
        way = self._cell_motion.start(condition)
        q = way[-1] if way else np.array(self._cell.rest)
        gripper = self._cell.gripper
        start_m = 0.0 if gripper is None else gripper.start
        arm.put(q, float(poses[WIDTH][0]) if WIDTH in poses else start_m)
        for signal, pose in objects_of(condition).items():
            arm.plant.place_object(self._objects.get(signal, object_of(signal)), np.array(pose))
        self._task.reset()
        rng = np.random.default_rng(child_seed(self._seed, "tracker", condition.seed))
        self._captures = Captures(arm.plant, self._lab.devices.tracker, rng)
        self._cameras.begin(arm, condition.seed)
        if self._aligned is not None:
            self._aligned.clear()
        self._begun = {goal.name: goal.value(condition) for goal in self._cell.goals}
        self._begun[JOINT_SETPOINT] = arm.told
        self._rest(arm)

    def _rest(self, arm: DrivenArm) -> None:
        """Time passes before the episode; what trackers and cameras tell meanwhile is its first
        observation.
        """
        self._clock_ns = _FIRST_NS
        passed_ns = 0
        missing = {*self._objects, *(s.name for s in self._cameras.signals)}
        while passed_ns < _REST_NS or (passed_ns < _LONGEST_NS and (missing or not arm.ready)):
            for seen in self._pass(arm):
                self._begun[seen.signal] = seen.value
                missing.discard(seen.signal)
            passed_ns += self._period_ns
        if missing:
            raise StaleSignalError(
                f"{self._spec.name}: nothing was seen of {sorted(missing)} within"
                f" {_LONGEST_NS * 1e-9:g} s before the episode; is it hidden from the camera, or is"
                " every picture lost?"
            )
        self._origin_ns = self._clock_ns

    def _pass(self, arm: DrivenArm) -> list[Seen]:
        """One period of the controller; what arrived of trackers and cameras."""
        self._clock_ns += self._period_ns
        arm.step(self._clock_ns)
        packets = [] if self._captures is None else self._captures.tick(self._clock_ns)
        found = [
            Seen(self._signals[p.name], p.t_ns, np.array(p.pose))
            for p in packets
            if p.name in self._signals
        ]
        return [*found, *self._cameras.tick(self._clock_ns)]

    def _follow(self, action: Poses) -> None:
        name, now_ns = self._cell_motion.action.name, self._clock_ns
        value = action[name]
        plan = np.zeros((0, len(value)))
        self._running.follow(Target(self._ticks, now_ns, value, plan), now_ns)
        if WIDTH in action:
            self._running.grip(float(action[WIDTH][0]))

    def _step(self) -> None:
        arm, states = self._running, list[Signals]()
        for _ in range(self._periods):
            # Poses and pictures are of when they were captured; what was before the start is known.
            told_ns = self._clock_ns - self._origin_ns
            arrived = [
                (s.signal, s.t_ns - self._origin_ns, s.value)
                for s in self._pass(arm)
                if s.t_ns > self._origin_ns
            ]
            if told_ns > 0:
                arrived.append((JOINT_SETPOINT, told_ns, arm.told))
            self._samples.arrive(self.now_ns(), arrived)
            if self._aligned is not None:
                for signal, t_ns, value in arrived:
                    self._aligned.add(t_ns, {signal: value})
            states.append(self._state())
        self._between(states[:-1])

    def _between(self, states: Sequence[Signals]) -> None:
        """Keep what the controller told between two ticks; the newest belongs to the tick."""
        if not states:
            return
        derived = self._cell_motion.derived(np.array([s[JOINT_POSITION] for s in states]))
        first_ns = self.now_ns() - len(states) * self._period_ns
        for i, state in enumerate(states):
            t_ns = first_ns + i * self._period_ns
            values = {**{name: rows[i] for name, rows in derived.items()}, **state}
            self._samples.add(t_ns, values)
            if self._aligned is not None:
                self._aligned.add(t_ns, values)

    def _state(self) -> Signals:
        """What the controller tells in every period."""
        arm = self._running
        q, qd = arm.joints()
        state: dict[str, Any] = {JOINT_POSITION: q, JOINT_VELOCITY: qd}
        if self._cell.wrench:
            state[WRENCH] = np.concatenate([arm.force, np.zeros(3)])
        return state

    def _read(self) -> Signals:
        arm, state = self._running, self._state()
        derived = self._cell_motion.derived(state[JOINT_POSITION][None])
        values: dict[str, Any] = {**{n: v[0] for n, v in derived.items()}, **state}
        if arm.width_m is not None:
            values[WIDTH] = np.array([arm.width_m])
        begun, self._begun = self._begun, {}
        values |= begun
        if self._aligned is not None:
            self._aligned.add(self.now_ns(), values)
        return values

    def _judge(self) -> Outcome:
        arm = self._running
        true = {signal: arm.plant.true_pose(name) for signal, name in self._objects.items()}
        found = self._task.judge({**self._samples.values(), **true})
        if arm.stopped and not found.terminal:
            return dataclasses.replace(found, truncated=True, reason=SAFETY_STOP)
        return found


def _aligned(cell: CellConfig, spec: EmbodimentSpec) -> Aligned:
    """What a cell shows as of its picture: no other pictures, nor what was told at the start."""
    told = {goal.name for goal in cell.goals}
    shown = [s for s in spec.signals if not s.is_image and s.name not in told]
    return Aligned(shown, f"{cell.align}/image")


def _spec(cell: CellConfig, lab: LabConfig, cameras: RealityCameras) -> EmbodimentSpec:
    """The cell's, without what only its processes tell; the gripper once per tick."""
    whole = cell_spec(cell)
    arm = [s.name for s in cell.motion().signals(cell.rate_hz)]
    own = [*arm, JOINT_POSITION, JOINT_VELOCITY, JOINT_SETPOINT, WRENCH]
    rates = dict.fromkeys(own, lab.devices.controller.rate_hz)
    rates |= dict.fromkeys([WIDTH] if cell.gripper is not None else [], cell.rate_hz)
    rates |= dict.fromkeys(cell.trackers, lab.devices.tracker.rate_hz)
    rates |= {s.name: s.rate_hz for s in whole.signals if s.name in cameras.tracked}
    rates |= {s.name: s.rate_hz for s in cameras.signals}
    rates |= {goal.name: 0.0 for goal in cell.goals}
    signals = tuple(
        dataclasses.replace(s, rate_hz=rates[s.name]) for s in whole.signals if s.name in rates
    )
    return dataclasses.replace(whole, signals=signals)
