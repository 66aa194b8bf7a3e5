"""Records episodes at one place, a simulated world or a cell: of a person, an expert, a policy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hardware.teleop.axes import Eye
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import TeleopDevice, View
from hardware.teleop.mapping import require_frame
from hardware.teleop.registry import FREEDRIVE
from hardware.teleop.session.attended import Arm, AttendedEnv
from hardware.teleop.session.config import Corrected, SessionConfig
from hardware.teleop.session.measured_actions import PROVENANCE, MeasuredActions
from hardware.teleop.session.seen import Wanted
from hardware.teleop.session.session import TeleopSession
from robolearn.agents.take_over import TakeOverConfig
from robolearn.contracts import Agent, Env, Inference, Subscriber
from robolearn.data.episode import EpisodeKind
from robolearn.data.insight.verdict import Verdict
from robolearn.data.recording.recorder import EpisodeRecorder, RecorderLoad
from robolearn.data.store.annotations import Annotation, default_author
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.repair import Recoverable, Recovered, find_recoverable, recover
from robolearn.errors import ConfigError
from robolearn.machine.interrupt import check
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.pictures.eyes import world_eye
from robolearn.operations.stores.appended import appended
from robolearn.operations.stores.quality import QualityWatch
from robolearn.operations.stores.world_provenance import world_provenance
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.types import Condition, Outline
from sim.contract import World
from sim.experts.registry import play_condition

# Agents that need nobody.
UNATTENDED = ("scripted", "play")


def _no_subscribers() -> tuple[Subscriber, ...]:
    return ()


def _by_nothing() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Place:
    """Where episodes are recorded. ``start``: one of its starts, by seed; ``max_steps`` 0: no time
    limit; ``arm``: of a cell.
    """

    env: Env
    task: str
    max_steps: int
    start: Callable[[int], Condition]
    provenance: Mapping[str, Any]
    task_params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arm: Arm | None = None
    # Clears the arm's stop when a person says so: why that may not be, "" once it may go on.
    clear: Callable[[], str] | None = None
    # What keeps the arm of a simulated world from its command, in words.
    slowed: Callable[[], str] = _by_nothing
    # What things look like from above, as far as it is known.
    outlines: tuple[Outline, ...] = ()
    # Where a camera looks, by its name; ConfigError for one that is not known.
    eye: Callable[[str], Eye] | None = None
    # Shows where things belong while they are placed.
    wanted: Wanted | None = None
    # Lets the person who holds the device place objects, once there is a session to ask by.
    on_session: Callable[[TeleopSession], None] | None = None

    @staticmethod
    def of(world: World) -> Place:
        """A simulated world."""
        return Place(
            env=world,
            task=world.task,
            max_steps=world.max_steps,
            start=world.sample_condition,
            provenance=world_provenance(world),
            task_params=world.task_params,
            slowed=lambda: world.slowed,
            outlines=world.outlines(),
            eye=functools.partial(world_eye, world),
        )

    def eye_of(self, mapping: MappingConfig) -> Eye | None:
        """Of the camera that ``mapping`` names, checked to be one that a person can drive by here;
        None where it names none. ConfigError says why not.
        """
        eye = self.eye(mapping.camera) if mapping.by_camera and self.eye is not None else None
        require_frame(mapping, self.env.spec, eye)
        return eye


@dataclass(frozen=True, slots=True)
class CollectListener:
    """Who wants to know how far it is, and has a say before episodes are appended."""

    # Who acts, and how many episodes the store has; may refuse by an error.
    on_begin: Callable[[str, int], None] | None = None
    # After the commit: whoever is told may rely on the episode.
    on_saved: Callable[[str], None] | None = None
    # Address of the page to open.
    on_page: Callable[[str], None] | None = None
    # The keyboard's view, as text for a terminal.
    on_view: Callable[[str], None] | None = None
    # A person's device is opened now, after all questions: its name. Returns whether the terminal's
    # other screen was taken for what ``on_status`` tells.
    on_device: Callable[[str], bool] | None = None
    # What the person should see now, as data.
    on_status: Callable[[View], None] | None = None
    # Recordings that were killed are in the store: whether to recover them now, and what became of
    # them.
    on_recoverable: Callable[[tuple[Recoverable, ...]], bool] | None = None
    on_recovered: Callable[[Recovered], None] | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """What was recorded: ids of the new episodes, how many of them are a success, how many episodes
    the store has now, and the recorder's back-pressure.
    """

    store: Path
    agent: str
    saved: tuple[str, ...]
    successes: int
    episodes: int
    recorder: RecorderLoad


@dataclass(frozen=True, slots=True)
class Actor:
    """Who acts by itself; a policy with what computes it, and what episodes say of it."""

    agent: Agent
    inference: Inference | None = None
    watching: tuple[Subscriber, ...] = ()
    told: dict[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Who records what where, and how many episodes of it.

    ``who``: ``policy``, ``corrected``, ``scripted``, ``play`` or a device; ``play``: the person at
    the device follows no task; ``watching``: told before the recorder.
    """

    place: Place
    who: str
    episodes: int
    operator: str
    listener: CollectListener
    provenance: Mapping[str, Any]
    max_steps: int
    seed: int
    task_text: str = ""
    codecs: Mapping[str, str] = field(default_factory=dict[str, str])
    mapping: MappingConfig = field(default_factory=MappingConfig)
    takeover: TakeOverConfig = field(default_factory=TakeOverConfig)
    play: bool = False
    watching: tuple[Subscriber, ...] = field(default_factory=_no_subscribers)

    @property
    def kind(self) -> EpisodeKind:
        """What the episodes are, which decides what learns from them."""
        if self.who == "policy":
            return "rollout"
        if self.who == "corrected":
            return "corrected"
        if self.play:
            return "play"
        return "scripted" if self.who in UNATTENDED else "demonstration"

    @property
    def guided(self) -> bool:
        """Whether a hand guides the arm, which is commanded nothing."""
        return self.who == FREEDRIVE

    def begin(self, store: EpisodeStore) -> None:
        """Say who acts and what is there, and offer what was killed; whoever listens may refuse."""
        listener = self.listener
        if listener.on_begin is not None:
            listener.on_begin(self.who, len(store.ids()))
        if listener.on_recoverable is None:
            return
        found = tuple(r for r in find_recoverable(store) if not r.problem)
        if found and listener.on_recoverable(found):
            done = recover(store, [r.name for r in found])
            if listener.on_recovered is not None:
                listener.on_recovered(done)

    def unattended(self, store: EpisodeStore, actor: Actor) -> tuple[tuple[str, ...], RecorderLoad]:
        """Ids of the saved episodes, and the recorder's back-pressure."""
        place = self.place
        provenance = {**self.provenance, "operator": actor.agent.name} | actor.told
        with self._recorder(store, AttendedEnv(place.env, place.arm)) as recorder:
            # Later calls go on where earlier ones stopped, killed ones included.
            first = sum(i.kind == self.kind for i in store.list(strict=False))
            for number in range(first, first + self.episodes):
                check()
                run_episode(
                    place.env,
                    actor.agent,
                    actor.inference,
                    [*self.watching, recorder, *actor.watching],
                    self._start(number),
                    max_steps=self.max_steps or place.max_steps,
                    task=place.task,
                    env_name=place.env.spec.name,
                    provenance=provenance | {"number": number},
                )
                recorder.keep()
            return tuple(recorder.saved), recorder.total

    def attended(
        self, store: EpisodeStore, device: TeleopDevice, actor: Actor | None
    ) -> tuple[tuple[str, ...], RecorderLoad]:
        """As :meth:`unattended`; ``actor``: the policy that the person corrects."""
        env = self._attended(play=self.play)
        corrected = None
        if actor is not None and actor.inference is not None:
            corrected = Corrected(actor.agent, actor.inference)
        with self._recorder(store, env) as recorder:
            path = Path(str(store.path))
            # An object store has no disk to fill.
            local = path.is_dir()
            # Another start for every episode of the store, the same ones in a repeated run.
            config = self._session(
                seed=self.seed + len(store.ids()),
                provenance={
                    **self.provenance,
                    **({} if actor is None else actor.told),
                    **(PROVENANCE if self.guided else {}),
                },
                disk_free=(lambda: shutil.disk_usage(path).free) if local else None,
            )
            session = TeleopSession(
                env,
                device,
                MeasuredActions(recorder, env.spec) if self.guided else recorder,
                config,
                corrected,
                reviewer=SessionQuality(store, recorder),
                watching=(HoldAtEnd(env), *self.watching),
                clear=self.place.clear,
            )
            saved = self._run(session)
            return saved, recorder.total

    def driven(self, device: TeleopDevice) -> None:
        """A person drives, and nothing is recorded."""
        env = self._attended(play=True)
        config = self._session(seed=self.seed, provenance={}, disk_free=None)
        watching = (HoldAtEnd(env), *self.watching)
        session = TeleopSession(
            env, device, None, config, watching=watching, clear=self.place.clear
        )
        self._run(session)

    def _attended(self, *, play: bool) -> AttendedEnv:
        place = self.place
        return AttendedEnv(place.env, place.arm, play=play, guided=self.guided, slowed=place.slowed)

    def _run(self, session: TeleopSession) -> tuple[str, ...]:
        place = self.place
        if place.on_session is not None:
            place.on_session(session)
        return session.run()

    def _session(
        self, *, seed: int, provenance: dict[str, Any], disk_free: Callable[[], int] | None
    ) -> SessionConfig:
        place, listener = self.place, self.listener
        limit = self.max_steps or (0 if self.play else place.max_steps)
        config = SessionConfig(
            episodes=self.episodes,
            max_steps=limit,
            seed=seed,
            task=place.task,
            env_name=place.env.spec.name,
            condition=place.start,
            provenance=provenance,
            mapping=self.mapping,
            takeover=self.takeover,
            eye=place.eye_of(self.mapping),
            wanted=place.wanted,
            disk_free=disk_free,
        )
        if listener.on_status is None:
            return config
        return dataclasses.replace(config, on_view=listener.on_status)

    def _start(self, number: int) -> Condition:
        # Corrections begin where no demonstration of the same configuration did.
        stream = "corrected" if self.kind == "corrected" else "unattended"
        condition = self.place.start(child_seed(self.seed, stream, number))
        return play_condition(condition) if self.who == "play" else condition

    def _recorder(self, store: EpisodeStore, env: AttendedEnv) -> EpisodeRecorder:
        return EpisodeRecorder(
            store,
            spec=env.spec,
            kind=self.kind,
            task_text=self.task_text,
            operator=self.operator,
            autosave=False,
            on_saved=self.listener.on_saved,
            codecs=self.codecs,
        )


def record(
    collection: Collection,
    out: Path,
    actor: Actor | None,
    device: Callable[[], TeleopDevice] | None,
    *,
    answered: Callable[[], None] | None = None,
) -> Collected:
    """Record into the store ``out``; ``device``: opens what a person drives by, where one does;
    ``answered``: called when all questions were.
    """
    with appended(out) as store:
        # Whoever is asked something answers before the device takes the terminal.
        collection.begin(store)
        if answered is not None:
            answered()
        if device is not None:
            with contextlib.closing(device()) as hand:
                saved, load = collection.attended(store, hand, actor)
        elif actor is not None:
            saved, load = collection.unattended(store, actor)
        else:
            raise ConfigError("nobody acts: give an agent or a device")
    if not saved:
        return Collected(out, collection.who, (), 0, len(store.ids()) if out.is_dir() else 0, load)
    found = {info.id: info for info in EpisodeStore.open(out).list()}
    good = sum(found[name].success for name in saved)
    return Collected(out, collection.who, saved, good, len(found), load)


class SessionQuality:
    """Judges what a session recorded before it is kept: a reviewer of
    :class:`hardware.teleop.session.session.TeleopSession`.
    """

    def __init__(self, store: EpisodeStore, recorder: EpisodeRecorder) -> None:
        self._watch, self._recorder = QualityWatch(store), recorder
        self._verdict: Verdict | None = None

    def judge(self) -> tuple[str, ...]:
        """What is wrong with the episode that waits, and what to do."""
        self._verdict = self._watch.judge(self._recorder.waiting())
        return tuple(f"{r.text}: {r.advice}" for r in self._verdict.remarks)

    def kept(self, episode: str, solved: bool | None) -> None:
        """It is an earlier one from now on; what the person says of it is an annotation."""
        if solved is not None:
            self._recorder.annotate(Annotation((episode,), default_author(), success=solved))
        if self._verdict is not None:
            self._watch.keep(self._verdict)
            self._verdict = None

    @property
    def lost_frames(self) -> int:
        """Of the kept episodes, and of the one that runs or waits."""
        return self._recorder.lost_frames
