"""Plays recordings of robosuite (states and actions) again in the version at hand.

States are exact: they are set, read back and judged. Actions depend on controller and physics of
the version that recorded them, so their replay is a measurement: how far the tool ends from where
it was, one tick and many ticks later, and whether the task still succeeds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.geometry import (
    VectorRows,
    rotation_from_quat,
    rotation_from_rotvec,
    rotvec_from_rotation,
)
from robolearn.types import Command
from sim.adapters.robosuite.env import TOOL_DELTA, RobosuiteEnv
from sim.shapes import Ticks, Values

# Between the ticks of a recording.
Steps = Float64[NDArray[np.float64], " steps"]
# As recorded: the engine's states, and the actions between them.
States = Float64[NDArray[np.float64], "n state"]
Actions = Float64[NDArray[np.float64], "_ action"]

STATES, ACTIONS = "sim/states", "obs/action"


@dataclass(frozen=True, slots=True)
class StateReplay:
    """One recording, replayed twice.

    By states: ``state_error`` is the largest difference between a state that was set and read
    back; ``states_succeed`` whether the last one is a success here. By actions: ``tool_m [T]`` is
    the distance between the tool in the open-loop replay and in the recording, ``one_step_m [T-1]``
    the same one tick after each recorded state; ``actions_succeed`` whether the task was solved.
    """

    episode: str
    rate_hz: float
    state_error: float
    states_succeed: bool
    one_step_m: Steps
    tool_m: Ticks
    actions_succeed: bool

    def tool_after(self, seconds: float) -> float:
        """Distance ``seconds`` after the start [m]; NaN if the recording is shorter."""
        tick = round(seconds * self.rate_hz)
        return float(self.tool_m[tick]) if tick < len(self.tool_m) else float("nan")


def replay_recording(
    env: RobosuiteEnv, episode: Episode, *, hold_orientation: bool = True
) -> StateReplay:
    """Replay an imported episode that has ``sim/states`` and normalised actions.

    ``hold_orientation``: before 1.5 a zero rotation kept the last goal of the orientation; since
    then it makes the measured one the goal. The old rule is imitated by commanding what is missing
    to the old goal. Raises :class:`DataError` for recordings of another task, robot or format.
    """
    if STATES not in episode.streams or ACTIONS not in episode.action:
        raise DataError(
            f"episode {episode.id}: a robosuite replay needs '{STATES}' and '{ACTIONS}', it has"
            f" {sorted(episode.streams)} and {sorted(episode.action)}"
        )
    states = np.asarray(episode.observed(STATES), dtype=np.float64)
    actions = np.clip(np.asarray(episode.action[ACTIONS], dtype=np.float64), -1.0, 1.0)
    width = sum(a.size for a in env.spec.actions)
    if actions.shape[1] != width or len(states) < 2:
        raise DataError(
            f"episode {episode.id}: {env.spec.name} takes {width} numbers per action and 2 steps,"
            f" got {actions.shape}"
        )
    reference, error, solved = _by_states(env, states)
    one_step = _one_step(env, states, actions, reference)
    tool, succeeded = _by_actions(
        env, states[0], actions, reference, hold_orientation=hold_orientation
    )
    return StateReplay(
        episode=episode.id,
        rate_hz=env.spec.rate_hz,
        state_error=error,
        states_succeed=solved,
        one_step_m=one_step,
        tool_m=tool,
        actions_succeed=succeeded,
    )


def _restart(env: RobosuiteEnv, state: Values) -> None:
    env.reset(env.sample_condition(0), np.random.default_rng(0))
    env.set_state(state)


def _by_states(env: RobosuiteEnv, states: States) -> tuple[VectorRows, float, bool]:
    _restart(env, states[0])
    reference, error = np.empty((len(states), 3)), 0.0
    for k, state in enumerate(states):
        env.set_state(state)
        error = max(error, float(np.abs(env.state() - state).max()))
        reference[k] = env.signals()["tool/pose"][:3]
    return reference, error, env.solved()


def _one_step(env: RobosuiteEnv, states: States, actions: Actions, reference: VectorRows) -> Steps:
    distances = np.empty(len(states) - 1)
    for k, state in enumerate(states[:-1]):
        _restart(env, state)
        _act(env, k, actions[k])
        distances[k] = np.linalg.norm(env.signals()["tool/pose"][:3] - reference[k + 1])
    return distances


def _by_actions(
    env: RobosuiteEnv,
    start: Values,
    actions: Actions,
    reference: VectorRows,
    *,
    hold_orientation: bool,
) -> tuple[Ticks, bool]:
    _restart(env, start)
    turn = env.turn_limit_rad
    goal = rotation_from_quat(env.signals()["tool/pose"][3:])
    distances, solved = np.zeros(len(reference)), False
    for k in range(len(reference) - 1):
        action = actions[k].copy()
        if hold_orientation:
            R_world_tool = rotation_from_quat(env.signals()["tool/pose"][3:])
            if np.abs(action[3:6]).max() > 0:
                goal = rotation_from_rotvec(action[3:6] * turn) @ R_world_tool
            else:
                missing = rotvec_from_rotation(goal @ R_world_tool.T)
                action[3:6] = np.clip(missing / turn, -1.0, 1.0)
        _act(env, k, action)
        distances[k + 1] = np.linalg.norm(env.signals()["tool/pose"][:3] - reference[k + 1])
        solved = solved or env.solved()
    return distances, solved


def _act(env: RobosuiteEnv, seq: int, normalised: Values) -> None:
    """Carry out a recorded action (each number in [-1, 1])."""
    values, start = {}, 0
    for spec in env.spec.actions:
        part = normalised[start : start + spec.size]
        values[spec.name] = part * np.array(spec.high)
        start += spec.size
    if TOOL_DELTA not in values:
        raise DataError(f"{env.spec.name}: recordings are replayed with control=osc")
    env.apply(Command(seq=seq, action=values, due_ns=env.now_ns(), source="replay"))
    env.advance()
    env.drain()
