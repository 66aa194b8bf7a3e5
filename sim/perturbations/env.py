"""Wraps a world with perturbations (``sim.perturbations.kinds``), behind the same contract."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np

from robolearn.errors import DataError
from robolearn.geometry import Pose
from robolearn.seeding import child_seed
from robolearn.shapes import Picture
from robolearn.spec import EmbodimentSpec
from robolearn.types import (
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    Outline,
    ResetReport,
    SampleBatch,
    SampleBlock,
)
from sim.contract import World
from sim.env.action_check import check_action
from sim.env.scene_env import SceneEnv, embodiment
from sim.perturbations.during import During
from sim.perturbations.kinds import PERTURBATIONS, Perturbations
from sim.perturbations.model import Snapshot
from sim.perturbations.signals import ActionNoise, SensorNoise, move_objects
from sim.rendering.cameras import Calibration
from sim.scene.config import Scene
from sim.world_name import Pictures

# Magnitude 1 of an action's delay, and of an observation's [s].
DELAY_S = 0.1
# How much deeper than in the nominal start things may be in each other [m].
OVERLAP_M = 0.0005
DRAWS = 100


class ModelEdits:
    """Edits the model of a scene before every episode, and restores it before the next."""

    def __init__(self, env: SceneEnv, perturbations: Perturbations) -> None:
        self._env, self._perturbations = env, perturbations
        self._snapshot = Snapshot(env.model)
        self._going_on: list[During] = []

    def apply(self, condition: Condition) -> None:
        """The model of the episode that starts from ``condition``."""
        self._snapshot.restore()
        model = self._env.model
        for name, magnitude in self._perturbations.magnitudes.items():
            edit = PERTURBATIONS[name].model
            if edit is not None:
                draws = self._perturbations.draws(name, condition.seed)
                edit(model, self._env.scene, magnitude, draws)
        if self._perturbations.get("mass") or self._perturbations.get("mass_shift"):
            mujoco.mj_setConst(model, self._env.data)
            self._snapshot.restore_statistics()
        self._going_on = [
            begin(
                model, self._env.scene, magnitude, self._perturbations.draws(name, condition.seed)
            )
            for name, magnitude in self._perturbations.magnitudes.items()
            if (begin := PERTURBATIONS[name].during) is not None
        ]

    def step(self) -> None:
        """Let go on what goes on during an episode, before a tick."""
        seconds = 1.0 / self._env.scene.config.rate_hz
        for each in self._going_on:
            each.step(self._env.data, seconds)

    def gap(self) -> float:
        """Smallest distance in a contact [m], negative where things overlap."""
        return float(self._env.data.contact.dist.min(initial=np.inf))


class PerturbedEnv:
    """``inner`` with other starts, delays, noisy sensors and, in scenes, an edited model.

    What policies are told (``spec``) is ``told``, the nominal world under the new name: a policy
    does not know that its world is perturbed. The verdict is of the true state.
    """

    def __init__(
        self,
        inner: World,
        perturbations: Perturbations,
        told: EmbodimentSpec | None = None,
        edits: ModelEdits | None = None,
    ) -> None:
        told = told or inner.spec
        self._inner, self._perturbations, self._edits = inner, perturbations, edits
        self._spec = dataclasses.replace(told, name=told.name + perturbations.suffix)
        self._delay = _ticks(perturbations.get("action_delay"), told.rate_hz)
        self._queue: deque[Command] = deque()
        self._age = _ticks(perturbations.get("observation_delay"), told.rate_hz)
        self._seen: deque[Observation] = deque(maxlen=self._age + 1)
        self._under_way: deque[Mapping[str, SampleBlock]] = deque()
        noise = perturbations.get("sensor_noise")
        self._noise = SensorNoise(told, noise) if noise else None
        wander = perturbations.get("action_noise")
        self._wander = ActionNoise(told, wander) if wander else None

    @property
    def inner(self) -> World:
        """The world inside."""
        return self._inner

    @property
    def spec(self) -> EmbodimentSpec:
        """Signals and actions of the nominal world; the name says what is perturbed."""
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        """As the world inside; what is observed is not the true state when sensors are noisy."""
        return dataclasses.replace(self._inner.capabilities, true_state=self._noise is None)

    @property
    def engine(self) -> str:
        """As the world inside."""
        return self._inner.engine

    @property
    def scene_hash(self) -> str:
        """Digest of the nominal world and of its perturbations."""
        return self._perturbations.hash(self._inner.scene_hash)

    @property
    def task(self) -> str:
        """As the world inside."""
        return self._inner.task

    @property
    def task_params(self) -> dict[str, Any]:
        """As the world inside."""
        return self._inner.task_params

    @property
    def max_steps(self) -> int:
        """As the world inside [control steps]."""
        return self._inner.max_steps

    @property
    def slowed(self) -> str:
        """As the world inside."""
        return self._inner.slowed

    def calibrations(self) -> dict[str, Calibration]:
        """As the world inside, before its cameras are moved."""
        return self._inner.calibrations()

    def camera_pose(self, camera: str, frame: str) -> Pose:
        """As the world inside, where its cameras were moved to."""
        return self._inner.camera_pose(camera, frame)

    def outlines(self) -> tuple[Outline, ...]:
        """As the world inside."""
        return self._inner.outlines()

    def sample_condition(self, seed: int) -> Condition:
        """A nominal start."""
        return self._inner.sample_condition(seed)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Start from ``condition``, perturbed; the report says what was achieved."""
        self._queue.clear()
        if self._noise is not None:
            self._noise.reset(child_seed(self._perturbations.seed, condition.seed))
        if self._wander is not None:
            self._wander.reset(self._perturbations.draws("action_noise", condition.seed))
        report = self._start(condition, rng)
        self._under_way.clear()
        self._seen.clear()
        if self._age:
            self._seen.append(self._inner.observe())
        return dataclasses.replace(report, requested=condition)

    def now_ns(self) -> int:
        """As the world inside."""
        return self._inner.now_ns()

    def observe(self) -> Observation:
        """What the sensors say, or said ``age`` ticks ago; before that, what they said first.

        Samples keep their capture times.
        """
        noise = self._noise
        if not self._age:
            observation = self._inner.observe()
        else:
            if not self._seen:
                raise DataError(f"{self._spec.name}: call reset() before the first tick")
            observation = Observation(self._inner.now_ns(), self._seen[0].samples)
        if noise is None:
            return observation
        return Observation(
            observation.t_ns, {n: noise.sample(n, s) for n, s in observation.samples.items()}
        )

    def apply(self, command: Command) -> None:
        """Pass on the command of ``delay`` ticks ago; before that, the world keeps still."""
        check_action(command, self._spec)
        self._queue.append(command)
        if len(self._queue) > self._delay:
            due = self._queue.popleft()
            self._inner.apply(due if self._wander is None else self._wander.disturbed(due))

    def advance(self) -> None:
        """As the world inside."""
        if self._edits is not None:
            self._edits.step()
        self._inner.advance()
        if self._age:
            self._seen.append(self._inner.observe())

    def drain(self) -> SampleBatch:
        """The samples as observed, when they arrive; commands when they were really sent."""
        batch, noise = self._inner.drain(), self._noise
        if self._age:
            batch = dataclasses.replace(batch, signals=self._arrived(batch.signals))
        if noise is None:
            return batch
        blocks = {n: noise.block(n, b) for n, b in batch.signals.items()}
        return dataclasses.replace(batch, signals=blocks)

    def outcome(self) -> Outcome:
        """The verdict on the true state."""
        return self._inner.outcome()

    def render(self, width: int, height: int) -> Picture:
        """As the world inside, without sensors' noise."""
        return self._inner.render(width, height)

    def close(self) -> None:
        """Close the world inside."""
        self._inner.close()

    def _start(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        if self._edits is not None:
            self._edits.apply(condition)
        magnitude = self._perturbations.get("object_pose")
        nominal = self._inner.reset(condition, rng)
        if not magnitude:
            return nominal
        # A start may overlap as much as the nominal one (feet press on the table).
        allowed = min(self._gap(), 0.0) - OVERLAP_M
        draws = self._perturbations.draws("object_pose", condition.seed)
        for _ in range(DRAWS):
            try:
                report = self._inner.reset(move_objects(condition, magnitude, draws), rng)
            except DataError:
                # The task refuses starts in which objects overlap; another draw.
                continue
            if self._gap() >= allowed:
                return report
        raise DataError(
            f"condition '{condition.id}': no start without overlap found in {DRAWS} draws of"
            f" object_pose={magnitude:g}; lower the magnitude"
        )

    def _arrived(self, fresh: Mapping[str, SampleBlock]) -> Mapping[str, SampleBlock]:
        self._under_way.append(fresh)
        if len(self._under_way) > self._age:
            return self._under_way.popleft()
        return {
            name: SampleBlock(block.t_ns[:0], block.value[:0], block.valid[:0])
            for name, block in fresh.items()
        }

    def _gap(self) -> float:
        return self._edits.gap() if self._edits is not None else 0.0


def _ticks(magnitude: float, rate_hz: float) -> int:
    """A delay in whole control ticks."""
    return int(np.ceil(magnitude * DELAY_S * rate_hz - 1e-9))


def perturbed_scene(
    scene: Scene, perturbations: Perturbations, pictures: Pictures | None = None
) -> PerturbedEnv:
    """A scene, perturbed in memory."""
    edited = scene
    for name, magnitude in perturbations.magnitudes.items():
        edit = PERTURBATIONS[name].scene
        if edit is not None:
            edited = edit(edited, magnitude, perturbations.draws(name, "scene"))
    asked = pictures or Pictures()
    env = SceneEnv(edited, cameras=asked.cameras, size=asked.size)
    # The slower world of 'control_rate' is told as the nominal one.
    state, nominal, slow = embodiment(scene.config), scene.config.rate_hz, edited.config.rate_hz
    cameras = tuple(
        dataclasses.replace(s, rate_hz=nominal) if s.rate_hz == slow else s
        for s in env.spec.signals[len(state.signals) :]
    )
    spec = dataclasses.replace(state, signals=state.signals + cameras)
    return PerturbedEnv(env, perturbations, spec, ModelEdits(env, perturbations))
