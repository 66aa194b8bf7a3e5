"""Makes many demonstrations out of a few: acted out from new starts, checked, and kept.

    demonstrations --own starts--> what is right        (a few flights: limits, who can repeat)
    starts --parted--> strata of equal probability      one episode from each, or none
    stratum --attempt: start, demonstration--> checks --all passed--> store, with provenance
                ^------------- again, another start of the stratum --'

Object-centric re-targeting (MimicGen, Mandlekar et al. 2023) by ``robolearn/retargeting``. What is
written is what the world then showed. An episode counts when the task is solved, still is after
``hold_s``, and nothing touched, moved or jerked that does not in the demonstrations. Demonstrations
are drawn among those whose objects lay nearest, with a cap for each, as otherwise few of them make
most episodes.

Episodes are committed one by one. Everything follows from the seed and the number of the attempt,
so that a call that was killed goes on when it is repeated, and ends with the same episodes. There
are no lanes: no network is asked, so lockstep would save nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from robolearn.config import config_hash, load_config, to_dict
from robolearn.data.recording.recorder import DraftRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.data.upkeep.edit import Selection, origin, select
from robolearn.errors import ConfigError, DataError
from robolearn.geometry import Pose, quat_from_rotation
from robolearn.machine.interrupt import check
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.stores.appended import appended
from robolearn.operations.stores.attempts import Flight, Limits, Stage, limits_of
from robolearn.operations.stores.demonstrations import Source, read_demonstrations
from robolearn.operations.stores.generate_options import GenerateConfig
from robolearn.operations.stores.world_provenance import recorded_world, world_provenance
from robolearn.retargeting.skills import TABLE, SkillRule
from robolearn.retargeting.strata import strata
from robolearn.seeding import child_seed
from robolearn.types import Condition

GENERATED = "generated"
# Draws of starts in a stratum.
_DRAWS = 16
# So many failures without one success in between from the first attempt on: it will not work.
HOPELESS = 30
# A turn of one radian counts as far as this [m] when demonstrations are compared with a start.
_RADIAN_M = 0.1
_ADVICE = {
    "refused": "the world refuses starts that it draws itself: check its scene",
    "reach": "commands leave the action's range or the arm cannot follow: draw starts from a"
    " smaller area (task.params), or record demonstrations that come from nearer",
    "collision": "bodies touch that touch in no demonstration: raise near_m so that the recorded"
    " approach is kept further out",
    "disturbed": "objects are pushed that stay in the demonstrations: raise near_m, or record"
    " demonstrations that keep away from them",
    "jerk": "the tool jerks more than in any demonstration: lower noise_m or raise jerk",
    "task": "the task is not solved: see which skills were found, name them in a file of skills,"
    " lower noise_m, or record demonstrations whose starts are more like the new ones",
    "held": "success does not last hold_s: the demonstrations let go too early",
    "diverged": "the physics break down: check the scene",
}


@dataclass(frozen=True, slots=True)
class SkillsFile:
    """What a person says the skills of the demonstrations are."""

    skills: tuple[SkillRule, ...]


@dataclass(frozen=True, slots=True)
class Generated:
    """The store, and what it took. ``failed``: attempts by the check that they did not pass."""

    store: Path
    world: str
    # Ids of all episodes that this generation has kept so far, earlier calls included.
    ids: tuple[str, ...]
    # Of these, how many are new.
    new: int
    attempts: int
    failed: Mapping[str, int]
    # Strata in which no attempt succeeded: starts like these are missing.
    missing: tuple[int, ...]
    # By demonstration: the episodes made from it.
    used: Mapping[str, int]
    # By demonstration: why it was not used.
    left_out: Mapping[str, str]
    # The skills as found in the first demonstration: object and what was held.
    skills: tuple[str, ...]
    # Whether the world can say what touches; where it cannot, collisions are not seen.
    sees_touches: bool
    # Why the last attempt of every check failed, in words.
    why: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def per_kept(self) -> float:
        """Attempts per episode that was kept."""
        return self.attempts / len(self.ids) if self.ids else math.inf


def generate(
    store: Path,
    out: Path,
    config: GenerateConfig,
    *,
    world: str = "",
    selection: Selection | None = None,
    skills: Path | None = None,
    on_kept: Callable[[int, int], None] | None = None,
) -> Generated:
    """Act the chosen demonstrations of ``store`` out from new starts, into the store ``out``.

    ``world``: where; empty: where they were recorded. ``skills``: a file that says what belongs to
    which object (:class:`SkillsFile`). ``on_kept``: told how many of how many strata are done.

    Errors: :class:`ConfigError` where ``out`` holds something else, :class:`SpecMismatchError` for
    a world in which this cannot be acted out, :class:`DataError` where no demonstration can be
    repeated or no attempt succeeds; then nothing is left.
    """
    source = EpisodeStore.open(store)
    ids = select(source, selection or Selection())
    world = world or recorded_world(source, ids)
    rules = () if skills is None else load_config(SkillsFile, skills).skills
    with contextlib.closing(make_world(world)) as env:
        stage = Stage(env, config)
        origins = {name: origin(source, name) for name in ids}
        told = {"config": to_dict(config), "world": world, "scene": env.scene_hash}
        run = config_hash(told, [to_dict(r) for r in rules], list(origins.values()))
        kept = _kept(out, run)
        read, left_out = read_demonstrations(source, ids, env, world, config.near_m, rules)
        sources, limits, unrepeated = _repeatable(stage, read)
        left_out |= unrepeated
        if not sources:
            raise DataError(
                f"none of the {len(ids)} demonstrations can be acted out in '{world}':"
                f" {'; '.join(f'{k}: {v}' for k, v in list(left_out.items())[:3])}. Record new ones"
                " there, or name another scene"
            )
        with appended(out) as made, made.writer() as writer:
            generation = _Generation(stage, world, run, sources, limits, origins, writer)
            generation.all(kept, on_kept)
    used = Counter(generation.used)
    first = sources[0].demonstration.skills
    return Generated(
        store=out,
        world=world,
        ids=tuple(generation.ids),
        new=generation.new,
        attempts=generation.attempts,
        failed=dict(generation.failed),
        missing=tuple(generation.missing),
        used={s.demonstration.id: used[s.demonstration.id] for s in sources},
        left_out=left_out,
        skills=tuple(_named(s.object, s.held) for s in first),
        sees_touches=stage.sees_touches,
        why=generation.why,
    )


def _named(target: str, held: str) -> str:
    where = "the table" if target == TABLE else target
    return f"{held} to {where}" if held else where


def _repeatable(
    stage: Stage, sources: Sequence[Source]
) -> tuple[tuple[Source, ...], Limits | None, dict[str, str]]:
    """Those that succeed from their own starts, what they keep to, and why the others do not."""
    flights = [(s, stage.act(s, s.condition)) for s in sources]
    good = [(s, f) for s, f in flights if f.failed is None]
    bad = {
        s.demonstration.id: f"it does not succeed from its own start ({f.failed}: {f.why})"
        for s, f in flights
        if f.failed is not None
    }
    return tuple(s for s, _ in good), limits_of(good) if good else None, bad


def _kept(out: Path, run: str) -> dict[int, tuple[str, dict[str, Any]]]:
    """By stratum: the episode that an earlier call kept, and what it says of its making."""
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return {}
    found: dict[int, tuple[str, dict[str, Any]]] = {}
    store = EpisodeStore.open(out)
    for name in store.ids():
        said: dict[str, Any] = store.meta(name).provenance.get(GENERATED, {})
        if said.get("run") != run:
            raise ConfigError(
                f"{out} holds episodes that are not from this generation (other demonstrations,"
                " scene, options or seed); repeat the call that made it, or choose a new folder"
            )
        found[int(said["stratum"])] = (name, said)
    return found


class _Generation:
    """The attempts of one generation, stratum by stratum."""

    def __init__(
        self,
        stage: Stage,
        world: str,
        run: str,
        sources: Sequence[Source],
        limits: Limits | None,
        origins: Mapping[str, dict[str, str]],
        writer: StoreWriter,
    ) -> None:
        self._stage, self._world, self._run = stage, world, run
        self._sources, self._limits, self._origins = tuple(sources), limits, origins
        self._writer, self._config = writer, stage.config
        self._recorder = DraftRecorder(
            writer.drafts, spec=stage.env.spec, kind="scripted", live=False
        )
        self._about = world_provenance(stage.env)
        share = self._config.cap * self._config.episodes / len(sources)
        self._cap = max(1, math.ceil(share))
        self.ids: list[str] = []
        self.used: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.why: dict[str, str] = {}
        self.missing: list[int] = []
        self.new = self.attempts = 0

    def all(
        self,
        kept: Mapping[int, tuple[str, dict[str, Any]]],
        on_kept: Callable[[int, int], None] | None,
    ) -> None:
        """Every stratum once; those that an earlier call has filled are taken from it."""
        parts = self._parts()
        for done, stratum in enumerate(parts, start=1):
            known = kept.get(stratum)
            if known is not None:
                name, said = known
                self.ids.append(name)
                self.used[said["demonstration"]] += 1
                self.failed.update(said["failed"])
                self.attempts += said["attempts"]
            elif not self._fill(stratum, parts[stratum]):
                self.missing.append(stratum)
            if on_kept is not None:
                on_kept(done, len(parts))
        if not self.ids:
            raise self._hopeless()

    def _parts(self) -> dict[int, list[int]]:
        """Seeds of starts by stratum, in an order in which the first ones already cover all."""
        env, config = self._stage.env, self._config
        seeds = [child_seed(config.seed, "start", k) for k in range(_DRAWS * config.episodes)]
        drawn = [_numbers(env.sample_condition(s)) for s in seeds]
        groups = strata(np.array(drawn).reshape(len(seeds), -1), config.episodes)
        order = np.random.default_rng(child_seed(config.seed, "order"))
        return {
            int(k): [seeds[int(row)] for row in order.permutation(groups[int(k)])]
            for k in order.permutation(config.episodes)
        }

    def _fill(self, stratum: int, seeds: Sequence[int]) -> bool:
        """Attempts until one is kept; False where none is."""
        failed: Counter[str] = Counter()
        for attempt in range(self._config.attempts):
            check()
            condition = self._stage.env.sample_condition(seeds[attempt % len(seeds)])
            own = child_seed(self._config.seed, "attempt", stratum, attempt)
            source = self._drawn(condition, child_seed(own, "demonstration"))
            condition = dataclasses.replace(condition, seed=child_seed(own, "episode") % 2**31)
            flight = self._stage.act(
                source, condition, limits=self._limits, noise=True, recorder=self._recorder
            )
            self.attempts += 1
            if flight.failed is None:
                said = {"stratum": stratum, "attempts": attempt + 1, "failed": dict(failed)}
                self._keep(source, flight, said)
                return True
            failed[flight.failed] += 1
            self.failed[flight.failed] += 1
            self.why[flight.failed] = flight.why
            if not self.ids and self.attempts >= HOPELESS:
                raise self._hopeless()
        return False

    def _drawn(self, condition: Condition, seed: int) -> Source:
        """One of the nearest demonstrations that have not given their most yet."""
        free = [s for s in self._sources if self.used[s.demonstration.id] < self._cap]
        away = sorted(free or self._sources, key=lambda s: _away(s, condition))
        return away[seed % min(self._config.nearest, len(away))]

    def _keep(self, source: Source, flight: Flight, said: dict[str, Any]) -> None:
        finished, name = self._recorder.finished(), source.demonstration.id
        generated = {
            "run": self._run,
            "demonstration": name,
            **said,
            "strata": self._config.episodes,
            "skills": list(_told(flight)),
        }
        provenance = {
            **finished.meta.provenance,
            "command": "robolearn data generate",
            "config": {"world": self._world, "generate": to_dict(self._config)},
            **self._about,
            "operator": "retargeted",
            "origin": [self._origins[name]],
            GENERATED: generated,
        }
        meta = dataclasses.replace(
            finished.meta,
            kind=source.kind,
            task_text=source.task_text,
            operator=source.operator,
            provenance=provenance,
        )
        finished = dataclasses.replace(finished, meta=meta)
        self.ids.append(self._writer.commit(finished.prepare()))
        self.used[name] += 1
        self.new += 1

    def _hopeless(self) -> DataError:
        worst = self.failed.most_common()
        counts = ", ".join(f"{n} {check} ({self.why[check]})" for check, n in worst)
        return DataError(
            f"no attempt of {self.attempts} succeeds in '{self._world}': {counts}."
            f" {_ADVICE[worst[0][0]]}"
        )


def _told(flight: Flight) -> Iterator[dict[str, Any]]:
    """What was done with every skill, as JSON values: poses as x y z qw qx qy qz."""
    for piece in flight.pieces:
        yield {
            **dataclasses.asdict(piece.skill),
            "moved": _seven(piece.transfer.M),
            "mended": _seven(piece.transfer.C),
            "bridge": piece.bridge,
        }


def _seven(T: Pose) -> list[float]:
    return [*T[:3, 3].tolist(), *quat_from_rotation(T[:3, :3]).tolist()]


def _numbers(condition: Condition) -> list[float]:
    return [float(v) for name in sorted(condition.poses) for v in condition.poses[name]]


def _away(source: Source, condition: Condition) -> float:
    """How far a start is from the demonstration's, over the objects of its skills [m]."""
    demonstration, total = source.demonstration, 0.0
    names = {n for s in demonstration.skills for n in (s.object, s.held)} - {TABLE}
    for name in names & set(condition.poses):
        start = np.asarray(demonstration.seen.objects[name][0])
        now = np.asarray(condition.poses[name], dtype=np.float64)
        if len(now) == 7:
            turn = 2.0 * math.acos(min(1.0, abs(float(start[3:] @ now[3:]))))
            total += float(np.linalg.norm(now[:3] - start[:3])) + _RADIAN_M * turn
        else:
            total += float(np.linalg.norm(now[:2] - start[:2]))
    return total
