"""Pushes the T to its goal: plans pushes with a model, looks, and corrects.

It reads ``tool/xy_table`` and ``block/pose`` and nothing else, so it works in every Push-T world.
What it does in an episode follows from the seed: among routes that take about as long, any may be
chosen. Its ``noise`` dial makes it clumsy in three ways at once (:class:`Clumsiness`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robolearn.geometry import XY, PlanarPose
from robolearn.pusht import (
    BLOCK,
    GOAL,
    TOOL,
    block_signal,
    goal_pose,
    target_action,
    tool_signal,
)
from robolearn.seeding import child_seed
from robolearn.spec import EmbodimentSpec, TaskSpace, require_compatible
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput
from sim.experts.pusht import model
from sim.experts.pusht.follow import STEP_S, Follower
from sim.experts.pusht.plan import PlanConfig, Planner, Push, way_round

# Plans that are slower by about this much are chosen as well, by the seed [s].
SPREAD_S = 0.5
# Corrections during a push: how many directions are tried, how far apart [rad], in which steps [m].
TRIED, TURN_RAD, STEP_M = 24, 0.12, 0.0015


@dataclass(frozen=True, slots=True)
class Clumsiness:
    """What ``noise`` 1 means; smaller values scale every number."""

    # Deviation of the target [m], correlated over this time [s].
    wobble_m: float = 0.03
    wobble_s: float = 0.5
    # Chance per second to pause, and the longest pause [s].
    pause_per_s: float = 0.4
    pause_s: float = 1.5
    # Chance that a push is any push on any face, and its longest length [m].
    wrong: float = 0.6
    wrong_m: float = 0.1
    # Relative error of a push's length; chance that a push is not corrected.
    length: float = 0.3
    blind: float = 1.0


class PushTExpert:
    """Agent: one push after the other, each corrected while it goes on."""

    def __init__(
        self,
        spec: EmbodimentSpec,
        noise: float = 0.0,
        plan: PlanConfig | None = None,
        clumsiness: Clumsiness | None = None,
        goal: Sequence[float] = GOAL,
    ) -> None:
        space = TaskSpace((tool_signal(), block_signal()), (target_action(),), spec.rate_hz)
        require_compatible(space, spec)
        (action,) = spec.task_space([], [TOOL]).actions
        self._goal = goal_pose(goal)
        self._noise, self._how = noise, clumsiness or Clumsiness()
        self._rate_hz = spec.rate_hz
        self._plan = plan or PlanConfig()
        self._planner = Planner(self._plan)
        self._follower = Follower(1.0 / spec.rate_hz, action.low, action.high)
        self.reset(0)

    @property
    def name(self) -> str:
        """Who decides, for provenance."""
        return f"scripted:pusht:noise={self._noise:g}" if self._noise else "scripted:pusht"

    def reset(self, seed: int) -> None:
        """A new episode; the routes come from ``seed``."""
        self._rng = np.random.default_rng(child_seed(seed, "expert"))
        self._seq, self._waited, self._pause, self._t_ns = 0, 0, 0, 0
        self._tick_s = 1.0 / self._rate_hz
        self._push: Push | None = None
        self._blind = False
        self._wobble = np.zeros(2)
        self.aim(np.array(self._goal))

    @property
    def goal(self) -> PlanarPose:
        """Where the block is pushed to ``[3]`` (as in ``block/pose``)."""
        return self._aim.copy()

    def aim(self, goal: PlanarPose) -> None:
        """From the next push on, push the block to ``goal`` ``[3]`` (as in ``block/pose``)."""
        self._aim = goal
        self._planner.goal = model.to_centre(goal)

    def request(self, observation: Observation) -> PolicyInput | None:
        """Nothing is inferred."""
        del observation
        return None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The next target of the tool."""
        del reply
        tool = np.asarray(observation.value(TOOL), dtype=np.float64)
        pose = model.to_centre(np.asarray(observation.value(BLOCK), dtype=np.float64))
        if self._seq == 0:
            self._follower.reset(tool)
        else:
            # As the clock says: a loop may be slower than promised.
            self._tick_s = max(STEP_S, (observation.t_ns - self._t_ns) * 1e-9)
        self._t_ns = observation.t_ns
        self._follower.see(tool, self._tick_s)
        target = self._clumsy(tool, pose) if self._noise else self._expert(tool, pose)
        target = self._follower.clip(target)
        self._follower.sent(target)
        self._seq += 1
        return Command(
            seq=self._seq - 1,
            action={TOOL: target},
            due_ns=observation.t_ns,
            source="scripted",
        )

    def _expert(self, tool: XY, pose: PlanarPose) -> XY:
        push = self._push
        if push is None or self._follower.left < 1e-4:
            # One tick for the tool to come to rest; what is planned starts from where it is.
            self._waited += 1
            if push is None or self._waited > 1:
                self._start(tool, pose)
        elif self._follower.left < push.length and not self._blind:
            self._correct(push, tool, pose)
        return self._follower.step()

    def _clumsy(self, tool: XY, pose: PlanarPose) -> XY:
        how, rng, dt = self._how, self._rng, self._tick_s
        if self._pause > 0:
            self._pause -= 1
            return self._follower.stay()
        if rng.uniform() < self._noise * how.pause_per_s * dt:
            self._pause = int(rng.integers(1, max(2, round(how.pause_s / dt))))
        keep = float(np.exp(-dt / how.wobble_s))
        size = self._noise * how.wobble_m * np.sqrt(1.0 - keep**2)
        self._wobble = keep * self._wobble + size * rng.normal(size=2)
        return self._expert(tool, pose) + self._wobble

    def _start(self, tool: XY, pose: PlanarPose) -> None:
        """Choose the next push and the way to it."""
        self._waited = 0
        self._blind = bool(self._rng.uniform() < self._noise * self._how.blind)
        for _ in range(3):
            push = self._choose(tool, pose)
            way = way_round(tool, push.start, pose) if push is not None else []
            if push is not None and way:
                self._push = push
                end = push.start + push.length * push.direction
                speeds = [self._plan.way_speed] * len(way)
                self._follower.go([*way, end], *speeds, self._plan.push_speed)
                return
        # Hemmed in: somewhere else there may be a way.
        self._push = None
        self._follower.go([self._follower.anywhere(self._rng)], self._plan.way_speed)

    def _choose(self, tool: XY, pose: PlanarPose) -> Push | None:
        if self._noise and self._rng.uniform() < self._noise * self._how.wrong:
            return self._planner.any_push(pose, self._rng, self._how.wrong_m)
        pushes = self._planner.plan(pose, tool, self._rng, SPREAD_S)
        if not pushes:
            return None
        push = pushes[0]
        if not self._noise:
            return push
        factor = 1.0 + self._noise * self._how.length * float(self._rng.normal())
        return Push(push.start, push.direction, push.length * max(0.1, factor), push.result)

    def _correct(self, push: Push, tool: XY, pose: PlanarPose) -> None:
        """Turn the rest of a push so that the block ends where it was meant to."""
        left = self._follower.left
        angle = np.concatenate([[0.0], self._rng.normal(0.0, TURN_RAD, TRIED - 1)])
        direction = model.rotate(np.tile(push.direction, (TRIED, 1)), angle)
        count = max(2, int(np.ceil((left + 0.012) / STEP_M)))
        poses, tools = np.tile(pose, (TRIED, 1)), np.tile(tool, (TRIED, 1))
        error = model.pose_error(model.push(poses, tools, direction * STEP_M, count), push.result)
        k, i = np.unravel_index(int(np.argmin(error)), error.shape)
        plain = min(count - 1, max(0, round(left / STEP_M) - 1))
        if error[k, i] < error[plain, 0] - 2e-4:
            self._push = Push(push.start, direction[i], push.length, push.result)
            self._follower.go([tool + direction[i] * STEP_M * (k + 1)], self._plan.push_speed)
