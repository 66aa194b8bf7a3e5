"""Plays a recorded episode on an arm, under its supervisor, and measures how it was followed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from hardware.cell.config import CellConfig
from hardware.cell.limits import RunLimits
from hardware.cell.load import load_cell
from hardware.cell.motion import JOINT_POSITION
from hardware.cell.spec import cell_spec
from hardware.env.real_env import RealEnv
from robolearn.agents.replay import ReplayAgent
from robolearn.data.episode import Episode
from robolearn.data.store.store import EpisodeStore
from robolearn.data.view.cameras import read_without_pictures
from robolearn.errors import ConfigError, DataError, RobolearnError, SpecMismatchError
from robolearn.operations.cell.driving import HoldAtEnd, WholeCommand
from robolearn.operations.cell.opened import CellChoice, open_cell
from robolearn.operations.cell.placing import objects_of
from robolearn.operations.cell.recorded_path import (
    RecordedPath,
    TrackingError,
    recorded_path,
    tracking_error,
)
from robolearn.operations.deploy.operator import Operator
from robolearn.runtime import run_episode
from robolearn.shapes import AnyFloats
from robolearn.spec import TaskSpace, diff_task_spaces
from robolearn.types import Condition, EpisodeHeader, Outcome, Tick

log = logging.getLogger(__name__)

TOOL_POSE = "tool/pose"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmReplayOptions:
    """Which episode on which cell, and how fast."""

    # Store with the episode.
    store: Path
    # A file of configs/hardware/.
    robot: Path
    # Id of the episode; "": the newest.
    episode: str = ""
    # Share of the recorded speed, above 0 and at most 1.
    speed: float = 1.0
    # Farthest that one command may be from the one before [m], [rad]; the supervisor limits speed
    # whatever is asked, but a jump is no motion that anybody showed.
    jump_m: float = 0.15
    jump_rad: float = 0.8
    # Take joint positions that were recorded on an arm of another name.
    another_arm: bool = False
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # Tighter limits for this run.
    limits: RunLimits = field(default_factory=RunLimits)

    def __post_init__(self) -> None:
        if not 0.0 < self.speed <= 1.0:
            raise ConfigError(f"speed must be above 0 and at most 1, got {self.speed}")
        for name in ("jump_m", "jump_rad"):
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class ArmReplay:
    """How an episode was followed.

    ``tracking``: by signal, how far the arm was from where it was in the recording at the same
    moment; ``interventions``: of the supervisor, by cause; ``ended``: of the ``steps`` recorded
    ticks all were played, or why not.
    """

    episode: str
    robot: str
    speed: float
    steps: int
    start: str
    ended: str
    tracking: tuple[TrackingError, ...]
    interventions: Mapping[str, int]


def replay_on_arm(options: ArmReplayOptions, operator: Operator) -> ArmReplay:
    """Guide the arm to the start of the episode, command what was commanded, and hold.

    ConfigError, DataError, SpecMismatchError before anything is connected; RobotError and its kin
    for devices, and what the supervisor stops; the arm holds then.
    """
    cell = options.limits.on(load_cell(options.robot))
    chosen = CellChoice(cell, options.robot, options.start_lab, options.lab_seed)
    chosen.require_possible()
    store = EpisodeStore.open(options.store)
    ids = store.ids()
    if not ids:
        raise DataError(f"'{store.path}' holds no episodes")
    episode = read_without_pictures(store, options.episode or ids[-1])
    path, condition = prepare_replay(episode, cell, options)
    with ExitStack() as stack:
        env = open_cell(stack, chosen, None, operator).env
        state = env.supervisor.state()
        operator.told("robot", f"{state.mode.name.lower()}, {np.round(state.joint_position, 2)}")
        operator.told(
            "episode", f"{episode.id}, {path.duration_s:.1f} s at speed {options.speed:g}"
        )
        operator.consent("the arm will move")
        stack.callback(operator.close)
        operator.told("keys", operator.listen(env.estop))
        return _play(env, episode, path, condition, options)


def _play(
    env: RealEnv,
    episode: Episode,
    path: RecordedPath,
    condition: Condition,
    options: ArmReplayOptions,
) -> ArmReplay:
    seen = _Seen(tuple(path.seen))
    agent = ReplayAgent(path.actions, path.specs, name=f"replay of {episode.id}")
    result = run_episode(
        env,
        WholeCommand(agent, lambda: env.standing),
        None,
        [HoldAtEnd(env), seen],
        condition,
        max_steps=path.steps,
        task=episode.meta.task,
        env_name=env.spec.name,
    )
    events = Counter(e.cause.name.lower() for e in env.interventions)
    env.home()
    whole = result.steps == path.steps
    return ArmReplay(
        episode=episode.id,
        robot=env.config.name,
        speed=options.speed,
        steps=result.steps,
        start=result.reset.note,
        ended="whole" if whole else result.outcome.reason,
        tracking=tuple(
            tracking_error(env.spec.signal(name), wanted[: result.steps], seen.rows(name))
            for name, wanted in path.seen.items()
        ),
        interventions=dict(events),
    )


def prepare_replay(
    episode: Episode, cell: CellConfig, options: ArmReplayOptions
) -> tuple[RecordedPath, Condition]:
    """What is commanded, and where it starts; everything that can be refused before connecting."""
    spec, recorded = cell_spec(cell), episode.meta.embodiment
    wanted = TaskSpace((), recorded.actions, recorded.rate_hz)
    lines = diff_task_spaces(wanted, spec)
    moved = cell.motion().action.name
    if moved not in [a.name for a in recorded.actions]:
        lines.append(f"- action {moved}: '{spec.name}' is commanded by it, the recording has none")
    if lines:
        raise SpecMismatchError(
            f"{episode.id} of '{recorded.name}' cannot be played on '{spec.name}':\n"
            + "\n".join(lines)
        )
    if moved == JOINT_POSITION and recorded.name != spec.name and not options.another_arm:
        raise SpecMismatchError(
            f"{episode.id} holds joint positions of '{recorded.name}', this is '{spec.name}': the"
            " same numbers may be another posture. If they are the same arm, say another_arm"
        )
    path = recorded_path(episode, spec, options.speed)
    path.require_smooth(episode.id, options.jump_m, options.jump_rad)
    condition = _start(episode, cell, path)
    return path, condition


def _start(episode: Episode, cell: CellConfig, path: RecordedPath) -> Condition:
    """Where the arm really was at the first tick, and where the objects were asked to be."""
    signals = {s.name: s.shape for s in cell_spec(cell).signals}
    poses: dict[str, tuple[float, ...]] = {}
    asked = {**episode.meta.condition.poses, **dict(episode.meta.achieved)}
    for name, value in asked.items():
        if name in signals and int(np.prod(signals[name])) == len(value):
            poses[name] = tuple(value)
    placed = set(objects_of(Condition(episode.id, 0, poses)))
    goals = {goal.name for goal in cell.goals}
    poses = {n: v for n, v in poses.items() if n in goals or (n in placed and n in cell.trackers)}
    motion = cell.motion()
    action = motion.action
    # A tool that is commanded by place and heading starts at a pose.
    signal = action.name if action.name in path.seen else TOOL_POSE
    if signal not in path.seen:
        raise DataError(f"{episode.id} does not say where '{action.name}' was: no start is known")
    start = tuple(float(v) for v in np.ravel(path.seen[signal][0]))
    bounded = len(start) if signal == action.name else 3
    _require_within(episode.id, signal, start[:bounded], action.low, action.high)
    poses[signal] = start
    condition = Condition(episode.id, episode.meta.condition.seed, poses)
    try:
        motion.start(condition)
    except RobolearnError as error:
        raise DataError(f"the start of {episode.id} cannot be reached: {error}") from error
    for goal in cell.goals:
        goal.value(condition)
    return condition


def _require_within(
    name: str, signal: str, value: Sequence[float], low: Sequence[float], high: Sequence[float]
) -> None:
    v = np.asarray(value)
    if not np.isfinite(v).all():
        raise DataError(f"the start of {name} is not a number: {signal} {list(value)}")
    # As measured, an arm at its limit may be a little beyond.
    slack = 0.01
    low, high = low[: len(v)], high[: len(v)]
    if low and high and bool(((v < np.subtract(low, slack)) | (v > np.add(high, slack))).any()):
        raise DataError(
            f"the start of {name} is outside of what this cell may do: '{signal}'"
            f" {np.round(v, 3).tolist()}, allowed {list(low)} to {list(high)}"
        )


class _Seen:
    """A subscriber that keeps what was observed at every tick."""

    def __init__(self, names: Sequence[str]) -> None:
        self._rows: dict[str, list[AnyFloats]] = {name: [] for name in names}

    def on_start(self, episode: EpisodeHeader) -> None:
        """Nothing."""

    def on_tick(self, tick: Tick) -> None:
        """Keep it."""
        for name, rows in self._rows.items():
            rows.append(np.asarray(tick.observation.value(name), dtype=np.float64))

    def on_end(self, outcome: Outcome) -> None:
        """Nothing."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing."""

    def rows(self, name: str) -> AnyFloats:
        """``[T, *shape]``."""
        return np.stack(self._rows[name])
