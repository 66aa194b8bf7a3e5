"""Writes a new store of episodes that were moved over the table, each checked by replay.

    recording --PlanarMove--> start and commands --the scene--> what really happens then
                     `------> where the object should be  <----------'  compared

Guided augmentation by rigid transforms (GuDA, Corrado et al. 2024), with the guide made physics:
whether a task is invariant is not assumed. The moved commands are carried out in the world, and
what is written is what it then showed, so that observations, pictures and rewards are true. An
episode that ends otherwise than the moved recording (a wall, a goal that stayed, a joint limit)
is dropped and counted.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from robolearn.agents.actions import clip_action
from robolearn.agents.replay import ReplayAgent
from robolearn.config import to_dict
from robolearn.data.episode import Episode, EpisodeKind
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.edit import Selection, origin, select
from robolearn.errors import DataError, SpecMismatchError
from robolearn.machine.interrupt import check
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.stores.augment_options import AugmentConfig
from robolearn.operations.stores.world_provenance import recorded_world, world_provenance
from robolearn.planar import PlanarMove, blend, kind_of
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.spec import SignalSpec, diff_task_spaces
from robolearn.types import Condition, EpisodeHeader, Outcome, Signals, Tick
from sim.contract import World
from sim.identification.replay import distances, moved_object, turns
from sim.perturbations.signals import is_object

# Why a moved episode was dropped: start or commands that the world refuses, another outcome than
# the recording's, the object elsewhere.
Dropped = Literal["refused", "outcome", "apart"]
# A success may come so much later than in the recording [s]: objects come to rest in their time.
LATER_S = 0.5
# A score in [0, 1] that is so far from the recording's is another outcome, too.
SCORE_APART = 0.1
ORIGIN = "origin"


@dataclass(frozen=True, slots=True)
class Replayed:
    """A moved episode that was replayed: where it comes from, how far the object ended from where
    the moved recording has it [m, rad], and why it was dropped; empty: it was kept.
    """

    origin: str
    position_m: float
    rotation_rad: float
    dropped: Dropped | Literal[""] = ""
    # In the world's own words, where it refused.
    why: str = ""


@dataclass(frozen=True, slots=True)
class Augmented:
    """The new store, and every replay."""

    store: Path
    world: str
    replays: tuple[Replayed, ...]
    # Ids in the new store.
    ids: tuple[str, ...] = field(default_factory=tuple)

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many were dropped, by reason."""
        return Counter(r.dropped for r in self.replays if r.dropped)


def augment(
    store: Path,
    out: Path,
    config: AugmentConfig,
    *,
    world: str = "",
    selection: Selection | None = None,
    on_replayed: Callable[[int, int], None] | None = None,
) -> Augmented:
    """Write moved copies of the chosen episodes of ``store`` into a new one, ``out``.

    ``world``: where they are replayed; empty: where they were recorded. ``on_replayed``: told how
    many of how many are done. The new store has the copies alone; a run trains on both by
    ``data.stores``.

    Errors: :class:`ConfigError` where nothing says which world it was, :class:`SpecMismatchError`
    for episodes or commands that the world cannot replay, :class:`DataError` where every copy was
    dropped; then nothing is left.
    """
    source = EpisodeStore.open(store)
    ids = select(source, selection or Selection())
    world = world or recorded_world(source, ids)
    replays: list[Replayed] = []
    kept: list[str] = []

    def fill(made: EpisodeStore) -> None:
        kinds: dict[EpisodeKind, None] = dict.fromkeys(source.meta(i).kind for i in ids)
        for kind in kinds:
            with EpisodeRecorder(made, spec=env.spec, kind=kind, autosave=False) as recorder:
                run = _Run(env, world, source, config, recorder)
                for name in (i for i in ids if source.meta(i).kind == kind):
                    for replayed in run.copies(name):
                        replays.append(replayed)
                        if on_replayed is not None:
                            on_replayed(len(replays), len(ids) * config.copies)
                kept.extend(recorder.saved)
        if not kept:
            counts = ", ".join(f"{v} {k}" for k, v in Counter(r.dropped for r in replays).items())
            raise DataError(
                f"no moved episode is as its recording in '{world}' ({counts} of {len(replays)})."
                " Is the task the same after these moves? A goal that is no object, walls and"
                f" joint limits stay. {_first_refusal(replays)}"
            )

    with contextlib.closing(make_world(world)) as env:
        made = EpisodeStore.create(out, fill)
    return Augmented(Path(str(made.path)), world, tuple(replays), tuple(kept))


def _first_refusal(replays: list[Replayed]) -> str:
    return next((f"The world: {r.why}" for r in replays if r.why), "")


def drawn_move(config: AugmentConfig, rng: np.random.Generator) -> PlanarMove:
    """One of the moves of a configuration."""
    turn = math.radians(config.turn_deg) * rng.uniform(-1.0, 1.0)
    x, y = (config.shift_m * rng.uniform(-1.0, 1.0, 2)).tolist()
    if config.mirror_deg is None:
        return PlanarMove(turn, config.centre, (x, y))
    move = PlanarMove.reflection(config.centre, config.mirror_deg, config.body_axis_deg)
    return dataclasses.replace(move, shift=(x, y))


@dataclass(frozen=True, slots=True)
class _Run:
    """What moved episodes are replayed with."""

    env: World
    world: str
    source: EpisodeStore
    config: AugmentConfig
    recorder: EpisodeRecorder

    def copies(self, name: str) -> list[Replayed]:
        """All moved copies of one episode."""
        found: list[Replayed] = []
        episode = self.source.read(name)
        self._require_replayable(episode)
        for copy in range(self.config.copies):
            check()
            rng = np.random.default_rng(child_seed(self.config.seed, "augment", name, copy))
            found.append(self._replay(episode, drawn_move(self.config, rng)))
        return found

    def _require_replayable(self, episode: Episode) -> None:
        recorded = episode.meta.embodiment
        names = [s.name for s in recorded.signals if not s.is_image]
        lines = diff_task_spaces(recorded.task_space(names), self.env.spec)
        if lines:
            raise SpecMismatchError(
                f"episode {episode.id} of '{recorded.name}' cannot be replayed in '{self.world}':\n"
                + "\n".join(lines)
            )

    def _replay(self, episode: Episode, move: PlanarMove) -> Replayed:
        """Carry out one moved episode, and keep or drop what was recorded."""
        env, name = self.env, moved_object(episode)
        spec = env.spec.signal(name)
        condition = _moved_start(episode, move, env)
        actions = _moved_actions(episode, move, self._ramp(condition, episode))
        for action in env.spec.actions:
            beyond = clip_action((action,), actions)[action.name] - actions[action.name]
            if np.abs(beyond).max(initial=0.0) > 1e-6:
                why = f"'{action.name}' is commanded beyond its range"
                return Replayed(episode.id, math.inf, math.inf, "refused", why)
        later = round(LATER_S * env.spec.rate_hz) if episode.success else 0
        watched = _Watched(name)
        try:
            result = run_episode(
                env,
                ReplayAgent(actions, env.spec.actions, name="augment"),
                None,
                [self.recorder, watched],
                condition,
                max_steps=episode.steps + later,
                task=env.task,
                env_name=env.spec.name,
                provenance=self._provenance(episode, move),
            )
        except DataError as error:
            self.recorder.discard()
            return Replayed(episode.id, math.inf, math.inf, "refused", str(error))
        wanted = move.apply(spec, np.asarray(episode.observed(name), dtype=np.float64))
        # The longer of the two only waits for the end.
        path, last = np.array(watched.path), wanted[-1:]
        position, rotation = float(distances(path[-1:], last)[0]), float(turns(path[-1:], last)[0])
        dropped: Dropped | Literal[""] = ""
        scored = abs(result.score - episode.score) > SCORE_APART
        if result.outcome.success != episode.success or scored:
            dropped = "outcome"
        elif position > self.config.within_m or rotation > math.radians(self.config.within_deg):
            dropped = "apart"
        self.recorder.discard() if dropped else self.recorder.keep()
        return Replayed(episode.id, position, rotation, dropped)

    def _ramp(self, condition: Condition, episode: Episode) -> int:
        """Ticks in which commands go over to the moved ones."""
        specs = {s.name: s for s in self.env.spec.signals}
        placed = [n for n in condition.poses if not is_object(n) and kind_of(specs[n]) != "still"]
        rate_hz = episode.meta.embodiment.rate_hz
        return 0 if placed else round(self.config.ramp_s * rate_hz)

    def _provenance(self, episode: Episode, move: PlanarMove) -> dict[str, Any]:
        earlier = episode.meta.provenance.get(ORIGIN, [])
        return {
            "command": "robolearn data augment",
            "config": {"world": self.world, "augment": to_dict(self.config)},
            **world_provenance(self.env),
            "operator": episode.meta.provenance.get("operator", episode.meta.agent),
            ORIGIN: [*earlier, origin(self.source, episode.id)],
            "move": to_dict(move),
        }


class _Watched:
    """Where one object was seen at every tick."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.path: list[Any] = []

    def on_start(self, episode: EpisodeHeader) -> None:
        """A new episode."""
        del episode
        self.path = []

    def on_tick(self, tick: Tick) -> None:
        """Where it is before the command."""
        self.path.append(np.asarray(tick.observation.value(self._name), dtype=np.float64))

    def on_end(self, outcome: Outcome) -> None:
        """Nothing."""

    def on_abort(self, error: BaseException) -> None:
        """Nothing."""


def _moved_start(episode: Episode, move: PlanarMove, env: World) -> Condition:
    condition = episode.meta.condition
    specs: dict[str, SignalSpec] = {s.name: s for s in env.spec.signals}
    placed = dict(condition.poses) or _seen_at_first(episode)
    poses = {
        name: tuple(move.apply(specs[name], np.array(values, dtype=np.float64)).tolist())
        for name, values in placed.items()
        if name in specs
    }
    return Condition(f"{condition.id}+moved", condition.seed, poses)


def _seen_at_first(episode: Episode) -> dict[str, tuple[float, ...]]:
    """Imported recordings say where things were, not where they were asked to be."""
    names = [s.name for s in episode.meta.embodiment.signals if kind_of(s) in ("xy", "xy_yaw")]
    return {
        n: tuple(np.asarray(episode.observed(n)[0], dtype=np.float64).tolist())
        for n in names
        if n in episode.view
    }


def _moved_actions(episode: Episode, move: PlanarMove, ramp: int) -> Signals:
    out: dict[str, Any] = {}
    share = np.minimum(np.arange(episode.steps) / max(ramp, 1), 1.0)
    for spec in episode.meta.embodiment.actions:
        before = np.asarray(episode.action[spec.name], dtype=np.float64)
        after = move.apply(spec, before)
        out[spec.name] = after if not ramp else blend(kind_of(spec), before, after, share)
    return out
