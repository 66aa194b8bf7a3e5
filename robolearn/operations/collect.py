"""Records episodes into a store: of a person, the task's expert (also at play), or a policy."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.trials.instruments import InstructedAgent
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import Surroundings, TeleopDevice, unheard
from hardware.teleop.mapping import require_drivable
from hardware.teleop.registry import DEVICES, make_device
from hardware.teleop.session import Corrected, SessionConfig, TeleopSession
from hardware.teleop.targets import XY_TABLE
from robolearn.agents.execution import Execution
from robolearn.agents.scripted_person import ScriptedPerson
from robolearn.agents.take_over import TakeOver
from robolearn.config import to_dict
from robolearn.contracts import Agent, Inference, Subscriber
from robolearn.data.episode import EpisodeKind
from robolearn.data.recording.recorder import EpisodeRecorder, RecorderLoad
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, did_you_mean
from robolearn.inference.local import BatchedInference
from robolearn.instructions import require_understood
from robolearn.machine.interrupt import check
from robolearn.operations.builders import env_builder, policy_builder
from robolearn.operations.stores.appended import appended
from robolearn.operations.stores.world_provenance import world_provenance
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.training.run_directory import policy_hash
from robolearn.types import Condition
from sim.contract import World
from sim.experts.registry import play_condition
from sim.worlds import build_operator, make_world

# Agents that need nobody.
UNATTENDED = ("scripted", "play")
# Who takes over from a policy and is no person at a device.
SCRIPTED = "scripted"


@dataclass(frozen=True, slots=True)
class CollectConfig:
    """What to record, and where it happens (``configs/collect/*.yaml``)."""

    # A packaged scene, a scene folder, or an adapter's name.
    world: str
    # Who acts where nobody says otherwise; auto: a person at the local page in Push-T, else the
    # task's scripted expert. Also scripted, play, or a device: keyboard, browser, ...
    agent: str = "auto"
    # Time limit of an episode [control steps]; 0: that of the task.
    max_steps: int = 0
    # The task in words, kept with every episode.
    task_text: str = ""
    # Starts are drawn from it.
    seed: int = 0
    # How cameras are stored, by name: zstd, png, jpeg or jpeg:QUALITY (others: zstd up to 256 KiB a
    # frame, else jpeg:95).
    codecs: dict[str, str] = field(default_factory=dict[str, str])
    # Settings of the device that a person drives by: ``kind`` and its own keys.
    device: dict[str, Any] = field(default_factory=dict[str, Any])
    # How the person's hand becomes commands.
    mapping: MappingConfig = field(default_factory=MappingConfig)

    def __post_init__(self) -> None:
        if self.max_steps < 0:
            raise ValueError(f"max_steps must be 0 (the task's) or more, got {self.max_steps}")


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


def collect(
    config: CollectConfig,
    out: Path,
    *,
    agent: str = "auto",
    policy: Path | None = None,
    corrected_by: str = "",
    noise: float = 0.0,
    episodes: int = 10,
    port: int = 0,
    host: str = "",
    operator: str = "",
    listener: CollectListener = CollectListener(),
) -> Collected:
    """Record ``episodes`` episodes into the store ``out``, which is made when the first is due.

    ``agent``: who acts, else as ``config`` says; ``policy``: a run directory, whose policy acts
    instead, and whose episodes are kept whether they succeed or not (kind ``rollout``);
    ``corrected_by``: who takes over from it when it is lost (``scripted``: the task's expert; else
    a person at this device; kind ``corrected``); ``noise``: clumsiness of the expert, 0 to 1;
    ``port`` and ``host``: where the page is, else on this computer alone; ``operator``: who is
    recording. Ctrl-C keeps what was saved.

    Errors: :class:`ConfigError`, :class:`SpecMismatchError` before anything is written.
    """
    if episodes < 1:
        raise ConfigError(f"episodes must be at least 1, got {episodes}")
    if policy is not None and agent != "auto":
        raise ConfigError(f"either a policy acts or the agent '{agent}': leave one of them out")
    with contextlib.closing(make_world(env_builder(config.world).world)) as env:
        wanted = config.agent if agent == "auto" else agent
        who = "policy" if policy is not None else choose_operator(wanted, env)
        _require_correctable(policy, corrected_by)
        if noise and who not in UNATTENDED and corrected_by != SCRIPTED:
            raise ConfigError(
                "noise is for the agents scripted and play; people and policies bring their own"
            )
        actor = None
        if policy is not None:
            actor = _policy(policy, env, config.task_text)
            if corrected_by == SCRIPTED:
                actor = _corrected(actor, env, noise)
        elif who in UNATTENDED:
            actor = _Actor(build_operator(env, "play" if who == "play" else "scripted", noise))
        hand = corrected_by if actor is not None else who
        who = "corrected" if corrected_by else who
        collection = _Collection(config, env, who, episodes, operator, listener)
        if actor is not None and hand in ("", SCRIPTED):
            with appended(out) as store:
                collection.begin(store)
                saved, load = collection.unattended(store, actor)
        else:
            require_drivable(env.spec)
            with appended(out) as store:
                # Whoever is asked something answers before the device takes the terminal.
                collection.begin(store)
                device = _device(config, hand, env, _place(port, host), listener)
                with contextlib.closing(device):
                    saved, load = collection.attended(store, device, actor)
    if not saved:
        return Collected(out, who, (), 0, len(store.ids()) if out.is_dir() else 0, load)
    found = {info.id: info for info in EpisodeStore.open(out).list()}
    good = sum(found[name].success for name in saved)
    return Collected(out, who, saved, good, len(found), load)


def choose_operator(wanted: str, env: World) -> str:
    """Who acts: a person at the page in Push-T, else the scripted expert.

    Raises ConfigError for somebody who is neither an agent nor a device.
    """
    if wanted == "auto":
        flat = [a.name for a in env.spec.actions] == [XY_TABLE]
        return "browser" if env.task == "pusht" and flat else "scripted"
    if wanted not in (*UNATTENDED, *DEVICES):
        raise ConfigError(
            f"nobody is called '{wanted}'.{did_you_mean(wanted, (*UNATTENDED, *DEVICES))} There"
            f" are: auto, {', '.join((*UNATTENDED, *DEVICES))}"
        )
    return wanted


@dataclass(frozen=True, slots=True)
class _Actor:
    """Who acts by itself; a policy with what computes it, and what episodes say of it."""

    agent: Agent
    inference: Inference | None = None
    watching: tuple[Subscriber, ...] = ()
    told: dict[str, Any] = field(default_factory=dict[str, Any])


def _policy(run: Path, env: World, text: str) -> _Actor:
    """The policy of a run, executed as it says itself."""
    policy = policy_builder(run)()
    require_understood(policy.spec.task_space, (text,))
    agent = Execution().agent(policy.spec, env.spec, run.resolve().name)
    if text:
        agent = InstructedAgent(agent, text)
    inference = BatchedInference(policy, 0, round(1e9 / env.spec.rate_hz))
    told = {"policy": str(run), "policy_hash": policy_hash(run)}
    return _Actor(agent, inference, told=told)


def _require_correctable(policy: Path | None, corrected_by: str) -> None:
    known = (SCRIPTED, *DEVICES)
    if corrected_by and corrected_by not in known:
        raise ConfigError(
            f"nobody is called '{corrected_by}' who corrects policies."
            f"{did_you_mean(corrected_by, known)} There are: {', '.join(known)}"
        )
    if corrected_by and policy is None:
        raise ConfigError("who is corrected? Name a run whose policy acts")


def _corrected(actor: _Actor, env: World, noise: float) -> _Actor:
    """``actor``, from whom the task's expert takes over when it is lost."""
    person = ScriptedPerson(build_operator(env, "scripted", noise))
    agent = TakeOver(actor.agent, person, env.spec)
    return dataclasses.replace(actor, agent=agent, watching=(person,))


def _device(
    config: CollectConfig, who: str, env: World, place: dict[str, Any], listener: CollectListener
) -> TeleopDevice:
    settings = dict(config.device)
    if settings.get("kind", who) != who:
        # The file's device is another one.
        settings = {}
    settings["kind"] = who
    if who == "browser":
        settings |= place
    around = Surroundings(
        write=listener.on_view or unheard,
        on_page=listener.on_page or unheard,
        task=env.task,
        task_params=env.task_params,
        spec=env.spec,
        outlines=env.outlines(),
        heading_rad=config.mapping.heading_rad,
    )
    return make_device(settings, around)


def _place(port: int, host: str) -> dict[str, Any]:
    """Where the page is, as far as it was said."""
    return {name: value for name, value in (("port", port), ("host", host)) if value}


@dataclass(frozen=True, slots=True)
class _Collection:
    """Who records what, and how many episodes of it."""

    config: CollectConfig
    env: World
    who: str
    episodes: int
    operator: str
    listener: CollectListener

    @property
    def kind(self) -> EpisodeKind:
        """What the episodes are, which decides what learns from them."""
        if self.who == "policy":
            return "rollout"
        if self.who == "corrected":
            return "corrected"
        return "scripted" if self.who in UNATTENDED else "demonstration"

    def begin(self, store: EpisodeStore) -> None:
        """Say who acts and what is there; whoever listens may refuse."""
        if self.listener.on_begin is not None:
            self.listener.on_begin(self.who, len(store.ids()))

    def unattended(
        self, store: EpisodeStore, actor: _Actor
    ) -> tuple[tuple[str, ...], RecorderLoad]:
        """Ids of the saved episodes, and the recorder's back-pressure."""
        env = self.env
        provenance = self._provenance() | {"operator": actor.agent.name} | actor.told
        with self._recorder(store) as recorder:
            # Later calls go on where earlier ones stopped, killed ones included.
            first = sum(i.kind == self.kind for i in store.list(strict=False))
            for number in range(first, first + self.episodes):
                check()
                run_episode(
                    env,
                    actor.agent,
                    actor.inference,
                    [recorder, *actor.watching],
                    self._start(number),
                    max_steps=self.config.max_steps or env.max_steps,
                    task=env.task,
                    env_name=env.spec.name,
                    provenance=provenance | {"number": number},
                )
                recorder.keep()
            return tuple(recorder.saved), recorder.total

    def attended(
        self, store: EpisodeStore, device: TeleopDevice, actor: _Actor | None
    ) -> tuple[tuple[str, ...], RecorderLoad]:
        """As :meth:`unattended`; ``actor``: the policy that the person corrects."""
        env = self.env
        session = SessionConfig(
            episodes=self.episodes,
            max_steps=self.config.max_steps or env.max_steps,
            # Another start for every episode of the store, the same ones in a repeated run.
            seed=self.config.seed + len(store.ids()),
            task=env.task,
            env_name=env.spec.name,
            condition=env.sample_condition,
            provenance=self._provenance() | ({} if actor is None else actor.told),
            mapping=self.config.mapping,
        )
        corrected = None
        if actor is not None and actor.inference is not None:
            corrected = Corrected(actor.agent, actor.inference)
        with self._recorder(store) as recorder:
            saved = TeleopSession(env, device, recorder, session, corrected).run()
            return saved, recorder.total

    def _start(self, number: int) -> Condition:
        # Corrections begin where no demonstration of the same configuration did.
        stream = "corrected" if self.kind == "corrected" else "unattended"
        seed = child_seed(self.config.seed, stream, number)
        condition = self.env.sample_condition(seed)
        return play_condition(condition) if self.who == "play" else condition

    def _recorder(self, store: EpisodeStore) -> EpisodeRecorder:
        return EpisodeRecorder(
            store,
            spec=self.env.spec,
            kind=self.kind,
            task_text=self.config.task_text,
            operator=self.operator,
            autosave=False,
            on_saved=self.listener.on_saved,
            codecs=self.config.codecs,
        )

    def _provenance(self) -> dict[str, Any]:
        return {
            "command": "robolearn collect",
            "config": to_dict(self.config),
            **world_provenance(self.env),
        }
