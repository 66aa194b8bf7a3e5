"""Runs a scene package as an env (contract ``robolearn.contracts.Env``), in MuJoCo.

tick k                                     tick k + 1
observe  apply  advance: | substep | substep | ...      drain (samples from tick k on)
samples: ^ t_k           ^ t_k + 1/rate ...             the sample at t_k+1 comes next time
"""

from __future__ import annotations

import dataclasses
import functools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

from robolearn.errors import SceneError, did_you_mean
from robolearn.geometry import Pose, Vector, inverse
from robolearn.pusht import goal_pose
from robolearn.shapes import AnyArray, OwnFlags, Picture
from robolearn.spec import ActionSpec, EmbodimentSpec, SignalSpec
from robolearn.types import (
    SAFETY_STOP,
    Capabilities,
    Command,
    Condition,
    Observation,
    Outcome,
    Outline,
    ResetReport,
    SampleBatch,
)
from sim.control.delay import DelayedController
from sim.control.planar import build_controller
from sim.env.action_check import ActionCheck
from sim.env.contacts import force_on, touching
from sim.env.force_stop import force_stop
from sim.env.placement import placer
from sim.env.sensors import Sensors
from sim.rendering.cameras import Calibration, Cameras, camera_pose
from sim.rendering.renderer import Renderer, View, update_poses
from sim.scene.config import Scene, SceneConfig, TaskConfig, world_pose
from sim.scene.outlines import scene_outlines
from sim.scene.samples import SampleLog, check_poses
from sim.scene.signals import Reader, reader, signal_components, signal_size
from sim.tasks.any_goal import AnyGoal, split_goals
from sim.tasks.contract import Task
from sim.tasks.pusht import PushT
from sim.tasks.registry import build_task

_log = logging.getLogger(__name__)
# The engine's default handler writes MUJOCO_LOG.TXT into whatever folder the user works in. What a
# warning means for an episode is decided here, from the state (``physics_diverged``).
mujoco.set_mju_user_warning(_log.info)


def embodiment(config: SceneConfig) -> EmbodimentSpec:
    """What a scene offers to policies."""
    return EmbodimentSpec(
        name=config.name,
        signals=tuple(
            SignalSpec(
                name=s.name,
                shape=(signal_size(s),),
                unit=s.unit,
                rate_hz=s.rate_hz,
                components=signal_components(s),
                angular=s.angular,
                frame=s.frame,
            )
            for s in config.signals
        ),
        actions=tuple(
            ActionSpec(
                name=a.name,
                shape=(len(a.low),),
                unit=a.unit,
                rate_hz=config.rate_hz,
                mode=a.mode,
                frame=a.frame,
                low=a.low,
                high=a.high,
            )
            for a in config.actions
        ),
        rate_hz=config.rate_hz,
    )


def place_goal(model: mujoco.MjModel, task: TaskConfig) -> None:
    """Draw Push-T's goal where ``task.params.goal`` says; it is printed on the table only."""
    if task.name != PushT.name or "goal" not in task.params:
        return
    x, y, yaw = goal_pose(task.params["goal"])
    drawn = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, "goal")
    if drawn >= 0:
        model.body_pos[drawn][:2] = x, y
        model.body_quat[drawn] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)


class SceneEnv:
    """Deterministic: the same condition and commands give the same bits.

    ``render`` asks for nothing now; pictures are drawn by :meth:`render` on demand. ``cameras``
    names those that are observed, with pictures of ``size`` [px] a side; without it those are that
    have a ``signal`` in ``scene.yaml``.
    """

    def __init__(
        self,
        scene: Scene,
        render: bool = False,
        cameras: Sequence[str] | None = None,
        size: int | None = None,
    ) -> None:
        config = scene.config
        self.scene, self.model = scene, scene.compile()
        place_goal(self.model, config.task)
        self.data = mujoco.MjData(self.model)
        # Views of the state, as every access through ``data`` makes a new one.
        self._qpos, self._qvel = self.data.qpos, self.data.qvel
        self._max_speed = config.physics.max_speed
        self._cameras = Cameras(scene, self.model, cameras, size)
        state = embodiment(config)
        self._spec = dataclasses.replace(state, signals=state.signals + self._cameras.signals)
        self._check_action = ActionCheck(self._spec)
        self._build_task = functools.partial(build_task, config.task.name, config.task.params)
        self._nominal_task = self._build_task()
        self._task: Task = self._nominal_task
        self._controller = build_controller(config, self.model)
        late = round(config.control_delay_s / config.physics.timestep_s)
        lag = config.control_smoothing_s / config.physics.timestep_s
        if late or lag:
            self._controller = DelayedController(self._controller, late, lag)
        self._sensors = Sensors(config)
        # The newest values as they are; samples may be noisy or late.
        self._true: dict[str, AnyArray] = {}
        self._placers = {
            s.name: placer(self.model, config, s)
            for s in config.signals
            if s.name in config.reset.settable and s.name not in self._controller.places
        }
        step = config.physics.timestep_s
        self._periods = {s.name: round(1 / (s.rate_hz * step)) for s in config.signals}
        self._periods |= self._cameras.periods
        every = self._controller.every
        self._stop = force_stop(config, self.model)
        looks = [] if self._stop is None else [self._stop.every]
        self._chunk = int(np.gcd.reduce([config.substeps, every, *looks, *self._periods.values()]))
        self._chunks, self._control_chunks = config.substeps // self._chunk, every // self._chunk
        self._schedule = self._plan()
        self._step_ns = round(step * 1e9)
        self._tick_ns = round(1e9 / config.rate_hz)
        self._pictures = Renderer(self.model)
        # T_frame_world, by the frame's name; frames do not move.
        self._frames: dict[str, Pose] = {}
        self._now_ns, self._done = 0, 0
        self._diverged = False
        self._samples = SampleLog(self._spec.name, self._spec.signals)
        self._outcome: Outcome | None = None
        if render:
            self._pictures.open()

    @property
    def spec(self) -> EmbodimentSpec:
        """Signals, action semantics, control rate."""
        return self._spec

    @property
    def capabilities(self) -> Capabilities:
        """A simulator: everything."""
        return Capabilities(settable_poses=True, true_state=True, faster_than_real_time=True)

    @property
    def engine(self) -> str:
        """Physics engine and version."""
        return f"mujoco {mujoco.__version__}"

    @property
    def scene_hash(self) -> str:
        """Content hash of the scene package."""
        return self.scene.content_hash

    @property
    def task(self) -> str:
        """Name of the scene's task."""
        return self._task.name

    @property
    def task_params(self) -> dict[str, Any]:
        """``task.params`` of the scene."""
        return dict(self.scene.config.task.params)

    @property
    def max_steps(self) -> int:
        """Time limit of the task's protocol [control steps]."""
        return self._task.max_steps

    @property
    def slowed(self) -> str:
        """What keeps an arm with limits from its command, in words; "" for nothing."""
        return self._controller.slowed

    def calibrations(self) -> dict[str, Calibration]:
        """How the camera of every image signal sees, and where it is."""
        return self._cameras.calibrations()

    def camera_pose(self, camera: str, frame: str) -> Pose:
        """``T_frame_camera [4, 4]`` [m] of a camera as it stands now, also of one that rides on the
        arm or was moved; :class:`SceneError` for names that the scene lacks.
        """
        cameras, frames = [c.name for c in self.scene.config.cameras], self.scene.config.frames
        for name, known, what in ((camera, cameras, "camera"), (frame, frames, "frame")):
            if name not in known:
                raise SceneError(
                    f"{self._spec.name} has no {what} '{name}'.{did_you_mean(name, known)}"
                    f" It has: {sorted(known)}"
                )
        if frame not in self._frames:
            self._frames[frame] = inverse(world_pose(self.model, frames[frame]))
        return self._frames[frame] @ camera_pose(self.model, self.data, camera)

    def outlines(self) -> tuple[Outline, ...]:
        """Of the bodies whose poses are signals."""
        return scene_outlines(self.scene.config.signals, self.model)

    def sample_condition(self, seed: int) -> Condition:
        """A start from the scene's reset distribution."""
        return self._task.sample_condition(seed)

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        """Place what the condition names; the rest stays where ``scene.xml`` puts it.

        ``rng`` only feeds the noise of sensors. Raises :class:`DataError` for a pose that is not
        settable here, or objects that overlap.
        """
        placed, goals = split_goals(condition)
        self._task = AnyGoal(self._build_task, goals) if goals else self._nominal_task
        poses = check_poses(placed, self.scene.config.reset.settable, self._spec)
        self._task.check(poses)
        mujoco.mj_resetData(self.model, self.data)
        for name, place in self._placers.items():
            if name in poses:
                place(self.model, self.data, poses[name])
        self._controller.reset(
            self.model, self.data, {n: tuple(map(float, p)) for n, p in poses.items()}
        )
        self._controller.sent()
        mujoco.mj_forward(self.model, self.data)
        self._task.reset()
        self._now_ns, self._done, self._diverged, self._outcome = 0, 0, False, None
        if self._stop is not None:
            self._stop.reset()
        self._samples.clear()
        self._sensors.reset(rng)
        self._sample(self._schedule[0], 0)
        achieved = {name: self._true[name] for name in poses}
        return ResetReport(requested=condition, achieved=achieved)

    def now_ns(self) -> int:
        """Simulated time since the reset."""
        return self._now_ns

    def observe(self) -> Observation:
        """Newest sample of every signal."""
        self._samples.require()
        return Observation(t_ns=self._now_ns, samples=dict(self._samples.newest))

    def apply(self, command: Command) -> None:
        """Hand a command to the scene's controller."""
        self._samples.require()
        self._check_action(command)
        self._controller.set_target(command, self._now_ns)

    def advance(self) -> None:
        """Step the physics to the next tick."""
        self._samples.require()
        model, data, cycle = self.model, self.data, self._schedule
        substep, integrate, every = self._controller.substep, self._integrate, self._control_chunks
        stop = self._stop
        look = 0 if stop is None else stop.every // self._chunk
        for k in range(self._chunks):
            if k % every == 0:
                substep(model, data)
            integrate()
            self._done += 1
            if stop is not None and self._done % look == 0:
                stop.look(self._force_on, self._now_ns + (k + 1) * self._chunk * self._step_ns)
            due = cycle[self._done % len(cycle)]
            if due is not None:
                last = k + 1 == self._chunks
                passed = self._tick_ns if last else (k + 1) * self._chunk * self._step_ns
                self._sample(due, self._now_ns + passed)
        self._now_ns += self._tick_ns
        self._outcome = None

    def drain(self) -> SampleBatch:
        """Samples from the last tick on; the sample of the current tick comes next time."""
        signals = self._samples.drain(self._now_ns)
        return SampleBatch(signals=signals, sent=self._controller.sent())

    def outcome(self) -> Outcome:
        """The task's verdict, ``safety_stop``, or ``physics_diverged``."""
        self._samples.require()
        if self._outcome is None:
            judged = self._task.judge(self._true)
            if self._diverged:
                judged = _diverged(judged)
            elif self._stop is not None and self._stop.stopped and not judged.terminal:
                judged = dataclasses.replace(judged, truncated=True, reason=SAFETY_STOP)
            self._outcome = judged
        return self._outcome

    def contacts(self) -> frozenset[tuple[str, str]]:
        """Pairs of bodies that touch now, by name, each in alphabetical order."""
        self._samples.require()
        update_poses(self.model, self.data)
        mujoco.mj_collision(self.model, self.data)
        return touching(self.model, self.data)

    def render(self, width: int, height: int) -> Picture:
        """Picture ``[height, width, 3]`` of the camera ``top``, or of the first one without it;
        :class:`RenderError` without OpenGL.
        """
        self._samples.require()
        names = [c.name for c in self.scene.config.cameras]
        camera = "top" if "top" in names else next(iter(names), "top")
        update_poses(self.model, self.data)
        return self._pictures.image(self.data, View(camera, width, height))

    def close(self) -> None:
        """Release the renderers; safe to call twice."""
        self._pictures.close()
        self._cameras.close()

    def _integrate(self) -> None:
        """One chunk of physics steps (another engine may do them)."""
        mujoco.mj_step(self.model, self.data, self._chunk)

    def _force_on(self, geoms: OwnFlags) -> Vector:
        """Force ``[3]`` on these geoms [N] in the last step (another engine may know it)."""
        return force_on(self.model, self.data, geoms)

    def _plan(self) -> list[_Due | None]:
        """What is sampled after each chunk of physics steps, until the pattern repeats."""
        config = self.scene.config
        signals = {s.name: s for s in config.signals}
        readers: dict[tuple[str, ...], Reader] = {}
        steps = int(np.lcm.reduce([self.scene.config.substeps, *self._periods.values()]))
        plan: list[_Due | None] = []
        for done in range(0, steps, self._chunk):
            names = tuple(n for n, period in self._periods.items() if done % period == 0)
            state = tuple(n for n in names if n in signals)
            if state not in readers:
                readers[state] = reader(self.model, self.data, config, [signals[n] for n in state])
            pictures = tuple(n for n in names if n not in signals)
            plan.append(_Due(names, readers[state], pictures) if names else None)
        return plan

    def _sample(self, due: _Due | None, t_ns: int) -> None:
        if due is None:
            return
        if self._check_divergence():
            # The last finite values are repeated, so that no policy sees NaN.
            self._samples.repeat(t_ns, due.names)
            return
        data = self.data
        mujoco.mj_kinematics(self.model, data)
        values: Mapping[str, AnyArray] = due.read()
        if due.pictures:
            values = {**values, **self._cameras.draw(data, due.pictures)}
        self._true.update(values)
        if self._sensors.ideal:
            self._samples.add(t_ns, values)
        else:
            self._samples.arrive(t_ns, self._sensors.measure(t_ns, values))

    def _check_divergence(self) -> bool:
        qpos, qvel, most = self._qpos, self._qvel, self._max_speed
        # The sums are NaN or infinite when any term is; only then, or when fast, look closer.
        if not (qvel.dot(qvel) < most * most and math.isfinite(qpos.dot(qpos))):
            speed = float(np.abs(qvel).max(initial=0.0))
            sane = np.isfinite(qpos).all() and speed < most
            self._diverged = self._diverged or not sane
        return self._diverged


@dataclass(frozen=True, slots=True)
class _Due:
    """Signals that are sampled together: all names, what reads the state, and pictures."""

    names: tuple[str, ...]
    read: Reader
    pictures: tuple[str, ...]


def _diverged(judged: Outcome) -> Outcome:
    metrics: dict[str, Any] = dict(judged.metrics)
    return Outcome(
        success=judged.success,
        progress=judged.progress,
        reward=0.0,
        terminal=False,
        truncated=True,
        reason="physics_diverged",
        metrics=metrics,
    )
