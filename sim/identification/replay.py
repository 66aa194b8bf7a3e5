"""Replays recorded actions open loop in a simulated world, and compares with the recording.

recorded state k is the one *before* action k:
s0 -a0-> s1 -a1-> ... s(T-2) -a(T-2)-> s(T-1)      the last action has no recorded effect
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float64
from numpy.typing import NDArray

from robolearn.contracts import Env
from robolearn.data.episode import Episode
from robolearn.errors import DataError
from robolearn.pusht import BLOCK, TOOL, wrap_angle
from robolearn.shapes import Floats
from robolearn.types import Command, Condition
from sim.shapes import Ticks

Path = Float64[NDArray[np.float64], "t numbers"]


@dataclass(frozen=True, slots=True)
class ReplayError:
    """How far a replayed object is from the recorded one at each of ``T`` ticks.

    ``position_m [T]``, ``rotation_rad [T]`` (absolute); ``path [T, n]`` replayed and ``recorded
    [T, n]`` poses, planar (n = 3) or of 7 numbers; ``reason`` is non-empty when the physics
    diverged (the rest repeats).
    """

    episode: str
    rate_hz: float
    position_m: Ticks
    rotation_rad: Ticks
    path: Path
    recorded: Path
    reason: str = ""


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """Median and 90th percentile of position [mm] and rotation [deg] errors over episodes."""

    episodes: int
    position_p50_mm: float
    position_p90_mm: float
    rotation_p50_deg: float
    rotation_p90_deg: float


def replay_episode(
    env: Env, episode: Episode, block: str | None = None, tool: str = TOOL
) -> ReplayError:
    """Replay one episode from its recorded start, and compare ``block`` (:func:`moved_object`).

    On a table the signals ``tool`` and ``block`` are placed where they were recorded, elsewhere
    what the episode's condition says; every recorded action is commanded at its tick, also beyond
    the end of the task (a measurement, not an episode of the loop).
    """
    block = block or moved_object(episode)
    recorded = np.asarray(episode.observed(block), dtype=np.float64)
    if recorded.shape[0] < 2:
        raise DataError(f"episode {episode.id}: {recorded.shape[0]} steps; a replay needs 2")
    rate_hz = episode.meta.embodiment.rate_hz
    if rate_hz != env.spec.rate_hz:
        raise DataError(
            f"episode {episode.id} was recorded at {rate_hz:g} Hz, {env.spec.name} runs at"
            f" {env.spec.rate_hz:g} Hz; replay needs one rate"
        )
    env.spec.signal(block)
    env.reset(_start(episode, block, tool), np.random.default_rng(0))
    path = np.empty_like(recorded)
    path[0] = env.observe().value(block)
    reason = ""
    for k in range(recorded.shape[0] - 1):
        action = {name: values[k] for name, values in episode.action.items()}
        env.apply(Command(seq=k, action=action, due_ns=env.now_ns(), source="replay"))
        env.advance()
        env.drain()
        path[k + 1] = env.observe().value(block)
        outcome = env.outcome()
        if outcome.truncated:
            reason = outcome.reason
            path[k + 2 :] = path[k + 1]
            break
    return ReplayError(
        episode=episode.id,
        rate_hz=env.spec.rate_hz,
        position_m=distances(path, recorded),
        rotation_rad=turns(path, recorded),
        path=path,
        recorded=recorded,
        reason=reason,
    )


def moved_object(episode: Episode) -> str:
    """The object to compare: the block of a table, else the pose (x, y, z, qw, qx, qy, qz) that
    moved farthest and is not the tool's.
    """
    if BLOCK in episode.view:
        return BLOCK
    found = {
        s.name: np.asarray(episode.observed(s.name), dtype=np.float64)[:, :3]
        for s in episode.meta.embodiment.signals
        if s.name.endswith("/pose") and s.shape == (7,) and not s.name.endswith("tool/pose")
    }
    if not found:
        raise DataError(
            f"episode {episode.id} has no object's pose to compare; it has: {sorted(episode.view)}"
        )
    return max(found, key=lambda n: float(np.linalg.norm(found[n] - found[n][:1], axis=1).max()))


def _start(episode: Episode, block: str, tool: str) -> Condition:
    if block != BLOCK:
        return episode.meta.condition
    start = {name: episode.observed(name)[0] for name in (tool, block)}
    poses = {name: tuple(float(v) for v in value) for name, value in start.items()}
    return Condition(id=f"replay-{episode.id}", seed=0, poses=poses)


def distances(path: Path, recorded: Path) -> Ticks:
    """How far poses ``[T, n]`` are from others, planar (n = 3) or of 7 numbers [m]."""
    axes = 2 if recorded.shape[1] == 3 else 3
    return np.linalg.norm(path[:, :axes] - recorded[:, :axes], axis=1)


def turns(path: Path, recorded: Path) -> Ticks:
    """How far they are turned against others [rad], at least 0."""
    if recorded.shape[1] == 3:
        return np.abs(wrap_angle(path[:, 2] - recorded[:, 2]))
    # Twice the angle between the quaternions; the chord is accurate near zero, where the cosine is
    # not, and of q and -q the nearer counts.
    a, b = path[:, 3:7], recorded[:, 3:7]
    chord = np.minimum(np.linalg.norm(a - b, axis=1), np.linalg.norm(a + b, axis=1))
    return 4.0 * np.arcsin(np.clip(0.5 * chord, 0.0, 1.0))


def summarize_final(errors: Sequence[ReplayError]) -> ErrorSummary:
    """Errors at the last recorded state."""
    return _summary(
        np.array([e.position_m[-1] for e in errors]), np.array([e.rotation_rad[-1] for e in errors])
    )


def summarize_after(errors: Sequence[ReplayError], after_s: float) -> ErrorSummary:
    """Errors ``after_s`` seconds from the start, over the episodes that are long enough."""
    rows = [(e, round(after_s * e.rate_hz)) for e in errors]
    rows = [(e, k) for e, k in rows if k < len(e.position_m)]
    return _summary(
        np.array([e.position_m[k] for e, k in rows]),
        np.array([e.rotation_rad[k] for e, k in rows]),
    )


def _summary(position_m: Floats, rotation_rad: Floats) -> ErrorSummary:
    if position_m.size == 0:
        return ErrorSummary(0, float("nan"), float("nan"), float("nan"), float("nan"))
    position, rotation = position_m * 1e3, np.degrees(rotation_rad)
    return ErrorSummary(
        episodes=int(position.size),
        position_p50_mm=float(np.median(position)),
        position_p90_mm=float(np.percentile(position, 90)),
        rotation_p50_deg=float(np.median(rotation)),
        rotation_p90_deg=float(np.percentile(rotation, 90)),
    )
