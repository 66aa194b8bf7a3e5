"""Acts one demonstration out from one start, and checks what happens.

    reset --refused--> tick by tick: reach, collision, disturbed, task --> end --> held, jerk

What is right is measured on the demonstrations themselves, acted out from their own starts: which
bodies touch, how far the tool lags, how hard it jerks, which objects stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from robolearn.data.recording.recorder import DraftRecorder
from robolearn.errors import DataError
from robolearn.operations.stores.demonstrations import Commanded, Source
from robolearn.operations.stores.generate_options import GenerateConfig
from robolearn.retargeting.commands import poses_of
from robolearn.runtime import EpisodeRun
from robolearn.shapes import FloatRows, Floats
from robolearn.types import Condition, Observation
from sim.contract import World
from sim.env.contacts import TouchingEnv
from sim.experts.retarget import Piece, RetargetAgent
from sim.tasks.registry import build_task

Check = Literal["refused", "reach", "collision", "disturbed", "jerk", "task", "held", "diverged"]
Touch = tuple[str, str]

# The tool may lag so many times as far as in the demonstrations, so much more [m], for this [s].
_LAG, _LAG_M, _LAG_S = 2.0, 0.02, 0.5
# An object that moves less in a demonstration [m] is one that stays.
_STAYS_M = 0.005
# The end state is judged anew over so many ticks, as tasks look for rest.
_JUDGED = 3


@dataclass(frozen=True, slots=True)
class Limits:
    """What the demonstrations keep to. ``touches``: bodies that may touch; ``lag_m``, ``jerk``
    [m/s^3]: of the tool; ``still``: objects that stay.
    """

    touches: frozenset[Touch]
    lag_m: float
    jerk: float
    still: frozenset[str]


@dataclass(frozen=True, slots=True)
class Flight:
    """One attempt. ``failed``: the check that it did not pass (None: it passed all), ``why`` in
    words; the rest is what was measured.
    """

    failed: Check | None
    why: str
    pieces: tuple[Piece, ...] = ()
    touches: frozenset[Touch] = frozenset()
    lag_m: float = 0.0
    jerk: float = 0.0


def limits_of(flights: Iterable[tuple[Source, Flight]]) -> Limits:
    """The limits that demonstrations acted out from their own starts set."""
    every = list(flights)
    ways = [s.demonstration.seen.objects for s, _ in every]
    still = {
        name
        for name in ways[0]
        if all(np.abs(w[name][:, :3] - w[name][:1, :3]).max() < _STAYS_M for w in ways)
    }
    return Limits(
        touches=frozenset[Touch]().union(*(f.touches for _, f in every)),
        lag_m=max(f.lag_m for _, f in every),
        jerk=max(f.jerk for _, f in every),
        still=frozenset(still),
    )


class Stage:
    """A world in which demonstrations are acted out, one after the other.

    ``touches`` is False where the world cannot say what touches: collisions are not seen there.
    """

    def __init__(self, env: World, config: GenerateConfig) -> None:
        self.env, self.config = env, config
        self.commanded = Commanded.of(env.spec)
        self._touching = env if isinstance(env, TouchingEnv) else None
        # A verdict of its own: success stays within an episode, and the end state must have it too.
        self._judge = build_task(env.task, env.task_params, f"'{env.spec.name}'")
        tool = self.commanded.tool
        self._axes = 2 if tool.size < 4 else 3

    @property
    def sees_touches(self) -> bool:
        """Whether the world can say what touches."""
        return self._touching is not None

    def act(
        self,
        source: Source,
        condition: Condition,
        *,
        limits: Limits | None = None,
        noise: bool = False,
        recorder: DraftRecorder | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Flight:
        """One attempt; ``limits``: None measures them. A recorder holds the finished episode if all
        checks pass, and nothing else.
        """
        env, config, rate = self.env, self.config, self.env.spec.rate_hz
        agent = RetargetAgent(
            source.demonstration,
            env.spec.actions,
            self.commanded.tool,
            self.commanded.tool_signal,
            self.commanded.objects,
            rate,
            noise_m=config.noise_m if noise else 0.0,
            noise_rad=config.noise_rad if noise else 0.0,
        )
        try:
            run = EpisodeRun(
                env,
                agent,
                None,
                [] if recorder is None else [recorder],
                condition,
                max_steps=env.max_steps,
                task=env.task,
                env_name=env.spec.name,
                provenance=provenance,
            )
        except DataError as error:
            return Flight("refused", str(error))
        watch = _Watch(self, limits, agent)
        try:
            flight = self._through(run, agent, watch)
        except BaseException as error:
            run.abort(error)
            raise
        if flight.failed is not None and recorder is not None:
            recorder.discard()
        return flight

    def _through(self, run: EpisodeRun, agent: RetargetAgent, watch: _Watch) -> Flight:
        later = round(self.config.later_s * self.env.spec.rate_hz)
        while not run.done:
            run.ask()
            run.act()
            if watch.failed is None:
                watch.look(self.env.observe())
            if watch.failed is not None:
                return watch.flight()
            if agent.finished > later:
                return watch.flight("task", run.outcome.trouble or "not solved at the end")
        outcome = run.outcome
        if outcome.reason in ("physics_diverged", "not_finite"):
            return watch.flight("diverged", outcome.reason)
        if not outcome.success:
            return watch.flight("task", outcome.reason)
        return self._held(agent, watch)

    def _held(self, agent: RetargetAgent, watch: _Watch) -> Flight:
        """The rest of the commands and then stillness, after which the task is judged anew."""
        env = self.env
        for _ in range(round(self.config.hold_s * env.spec.rate_hz)):
            self._tick(agent)
            watch.look(env.observe(), moving=False)
            if watch.failed is not None:
                return watch.flight()
        self._judge.reset()
        success = False
        for _ in range(_JUDGED):
            self._tick(agent)
            view = env.observe()
            values = {name: np.asarray(view.value(name)) for name in view.samples}
            success = self._judge.judge(values).success
        if not success:
            return watch.flight("held", "success did not last")
        return watch.flight()

    def _tick(self, agent: RetargetAgent) -> None:
        self.env.apply(agent.decide(self.env.observe(), None))
        self.env.advance()
        self.env.drain()

    def contacts(self) -> frozenset[Touch]:
        """What touches now; nothing where the world cannot say it."""
        return frozenset() if self._touching is None else self._touching.contacts()

    def tool_at(self, view: Observation) -> Floats:
        """Where the tool is seen, as far as it is commanded [m]."""
        spec = self.commanded.tool_signal
        values = np.asarray(view.value(spec.name), dtype=np.float64)
        return poses_of(spec, values[None])[0, : self._axes]

    def object_at(self, view: Observation, name: str) -> Floats:
        """Where an object is seen [m]."""
        values = np.asarray(view.value(name), dtype=np.float64)
        return poses_of(self.commanded.objects[name], values[None])[0, :3]


class _Watch:
    """Measures an attempt tick by tick, and says which limit it does not keep."""

    def __init__(self, stage: Stage, limits: Limits | None, agent: RetargetAgent) -> None:
        self._stage, self._limits, self._agent = stage, limits, agent
        view = stage.env.observe()
        self._first = {n: stage.object_at(view, n) for n in stage.commanded.objects}
        self._path = [stage.tool_at(view)]
        self._touches: set[Touch] = set()
        self._lag, self._lagging = 0.0, 0
        self.failed: Check | None = None
        self._why = ""

    def look(self, view: Observation, *, moving: bool = True) -> None:
        """What is seen after a tick; ``moving``: of the episode itself, not of what follows."""
        stage, limits = self._stage, self._limits
        if self._agent.trouble:
            self._fail("reach", self._agent.trouble)
            return
        touches = stage.contacts()
        self._touches |= touches
        if moving:
            self._path.append(stage.tool_at(view))
        lag = float(
            np.linalg.norm(stage.tool_at(view) - self._agent.commanded[: len(self._path[0])])
        )
        self._lag = max(self._lag, lag)
        if limits is None:
            return
        new = touches - limits.touches
        if stage.sees_touches and new:
            first, second = min(new)
            self._fail("collision", f"{first} touches {second}, as in no demonstration")
        for name in limits.still:
            moved = float(np.linalg.norm(stage.object_at(view, name) - self._first[name]))
            if moved > stage.config.bystander_m:
                self._fail("disturbed", f"{name} was moved by {moved:.3f} m")
        self._lagging = self._lagging + 1 if lag > _LAG * limits.lag_m + _LAG_M else 0
        if self._lagging > _LAG_S * stage.env.spec.rate_hz:
            self._fail("reach", f"the tool stays {lag:.3f} m behind its command")

    def flight(self, failed: Check | None = None, why: str = "") -> Flight:
        """The attempt as a whole."""
        jerk = _jerk(np.array(self._path), self._stage.env.spec.rate_hz)
        if failed is not None:
            self._fail(failed, why)
        limits = self._limits
        if (
            self.failed is None
            and limits is not None
            and jerk > self._stage.config.jerk * limits.jerk
        ):
            self._fail("jerk", f"{jerk:.0f} m/s^3, in the demonstrations at most {limits.jerk:.0f}")
        return Flight(
            self.failed,
            self._why,
            tuple(self._agent.pieces),
            frozenset(self._touches),
            self._lag,
            jerk,
        )

    def _fail(self, check: Check, why: str) -> None:
        if self.failed is None:
            self.failed, self._why = check, why


def _jerk(path: FloatRows, rate_hz: float) -> float:
    """The largest third difference of places ``[T, k]`` [m/s^3]."""
    if len(path) < 4:
        return 0.0
    return float(np.linalg.norm(np.diff(path, 3, axis=0), axis=1).max()) * rate_hz**3
