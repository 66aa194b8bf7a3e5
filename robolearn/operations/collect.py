"""Records episodes into a store: of a person, the task's expert (also at play), or a policy."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval.trials.instruments import InstructedAgent
from hardware.teleop.config import MappingConfig
from hardware.teleop.device import Surroundings, TeleopDevice, unheard
from hardware.teleop.mapping import require_drivable
from hardware.teleop.registry import (
    DEVICES,
    NO_TAKE_OVER,
    device_of,
    page_at,
    require_no_freedrive,
)
from hardware.teleop.targets import XY_TABLE
from robolearn.agents.execution import Execution
from robolearn.agents.take_over import TakeOverConfig
from robolearn.config import to_dict
from robolearn.contracts import Subscriber
from robolearn.errors import ConfigError, did_you_mean
from robolearn.inference.local import BatchedInference
from robolearn.instructions import require_understood
from robolearn.operations.builders import env_builder, policy_builder
from robolearn.operations.practice.correcting import SCRIPTED, corrected_by_expert
from robolearn.operations.reality.worlds import make_world
from robolearn.operations.stores.collect_options import CollectOptions
from robolearn.operations.stores.collection import (
    UNATTENDED,
    Actor,
    Collected,
    Collection,
    CollectListener,
    Place,
    record,
)
from robolearn.spec import EmbodimentSpec
from robolearn.training.run_directory import policy_hash
from sim.contract import World
from sim.worlds import build_operator

NO_ARM = "needs an arm to guide, and a simulated world has none"


@dataclass(frozen=True, slots=True)
class CollectConfig:
    """What to record, and where it happens (``configs/collect/*.yaml``)."""

    # A packaged scene, a scene folder, or an adapter's name; "" with ``robot``.
    world: str = ""
    # A cell instead: a file of configs/hardware/.
    robot: str = ""
    # On a cell: the task that judges, its starts and its time limit (configs/eval/); "": the
    # person's keys judge, objects lie as they lie, and nothing ends an episode but a key.
    suite: str = ""
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
    # What counts as touching the device and as letting it go, where a person corrects a policy.
    takeover: TakeOverConfig = field(default_factory=TakeOverConfig)

    def __post_init__(self) -> None:
        if self.max_steps < 0:
            raise ValueError(f"max_steps must be 0 (the task's) or more, got {self.max_steps}")
        if self.world and self.robot:
            raise ConfigError(f"either world '{self.world}' or robot '{self.robot}': leave one out")
        if self.suite and not self.robot:
            raise ConfigError(f"suite '{self.suite}' is for a robot; a world has starts of its own")


def collect(
    config: CollectConfig,
    out: Path,
    options: CollectOptions = CollectOptions(),  # noqa: B008 (frozen)
    *,
    listener: CollectListener = CollectListener(),  # noqa: B008 (frozen)
) -> Collected:
    """Record episodes into the store ``out``, which is made when the first is due. Ctrl-C keeps
    what was saved.

    Errors: :class:`ConfigError`, :class:`SpecMismatchError` before anything is written.
    """
    options.check()
    policy, corrected_by, noise = options.policy, options.corrected_by, options.noise
    if not config.world:
        raise ConfigError("say where: the world of a configuration, or one of your own")
    if options.overlay:
        raise ConfigError(
            "overlay: a simulated world puts things where a start wants them by itself; it is for a"
            " person at a cell"
        )
    with contextlib.closing(make_world(env_builder(config.world).world)) as env:
        wanted = config.agent if options.agent == "auto" else options.agent
        who = "policy" if policy is not None else choose_operator(wanted, env.task, env.spec)
        require_correctable(policy, corrected_by)
        require_no_freedrive(who, NO_ARM)
        require_hands(who, play=options.play)
        if noise and who not in UNATTENDED and corrected_by != SCRIPTED:
            raise ConfigError(
                "noise is for the agents scripted and play; people and policies bring their own"
            )
        actor = None
        if policy is not None:
            actor = _policy(policy, env, config.task_text)
            if corrected_by == SCRIPTED:
                actor = _corrected(actor, env, noise, config.takeover)
        elif who in UNATTENDED:
            actor = Actor(build_operator(env, "play" if who == "play" else "scripted", noise))
        hand = corrected_by if actor is not None else who
        place = Place.of(env)
        collection = collection_of(
            config,
            place,
            "corrected" if corrected_by else who,
            episodes=options.episodes,
            operator=options.operator,
            play=options.play,
            listener=listener,
        )
        if actor is not None and hand in ("", SCRIPTED):
            return record(collection, out, actor, None)
        require_drivable(env.spec)
        place.eye_of(config.mapping)
        page = page_at(options.port, options.host)
        device = functools.partial(open_device, config, hand, place, page, listener)
        return record(collection, out, actor, device)


def teleoperate(
    config: CollectConfig,
    *,
    agent: str = "auto",
    port: int = 0,
    host: str = "",
    listener: CollectListener = CollectListener(),  # noqa: B008 (frozen)
) -> None:
    """Let a person drive in the world of ``config`` until they quit; nothing is recorded."""
    if not config.world:
        raise ConfigError("say where: the world of a configuration, or one of your own")
    with contextlib.closing(make_world(env_builder(config.world).world)) as env:
        wanted = config.agent if agent == "auto" else agent
        who = choose_operator("keyboard" if wanted == "auto" else wanted, env.task, env.spec)
        require_no_freedrive(who, NO_ARM)
        require_hands(who, play=True)
        require_drivable(env.spec)
        place = Place.of(env)
        collection = collection_of(config, place, who, play=True, listener=listener)
        hand = open_device(config, who, place, page_at(port, host), listener)
        with contextlib.closing(hand):
            collection.driven(hand)


def collection_of(
    config: CollectConfig,
    place: Place,
    who: str,
    *,
    episodes: int = 1,
    operator: str = "",
    play: bool = False,
    listener: CollectListener,
    watching: tuple[Subscriber, ...] = (),
) -> Collection:
    """What ``config`` says of a collection at ``place``."""
    return Collection(
        place=place,
        who=who,
        episodes=episodes,
        operator=operator,
        listener=listener,
        provenance={
            "command": "robolearn collect",
            "config": to_dict(config),
            **place.provenance,
        },
        max_steps=config.max_steps,
        seed=config.seed,
        task_text=config.task_text,
        codecs=config.codecs,
        mapping=config.mapping,
        takeover=config.takeover,
        play=play,
        watching=watching,
    )


def require_hands(who: str, *, play: bool) -> None:
    """A person's play needs a person."""
    if play and who not in DEVICES:
        raise ConfigError(
            f"a person plays at a device ({', '.join(DEVICES)}), and '{who}' is none; the expert at"
            " play is the agent 'play'"
        )


def choose_operator(wanted: str, task: str, spec: EmbodimentSpec) -> str:
    """Who acts: a person at the page in Push-T, else the scripted expert.

    Raises ConfigError for somebody who is neither an agent nor a device.
    """
    if wanted == "auto":
        flat = [a.name for a in spec.actions] == [XY_TABLE]
        return "browser" if task == "pusht" and flat else "scripted"
    if wanted not in UNATTENDED and wanted not in DEVICES:
        raise ConfigError(
            f"nobody is called '{wanted}'.{did_you_mean(wanted, (*UNATTENDED, *DEVICES))} There"
            f" are: auto, {', '.join((*UNATTENDED, *DEVICES))}"
        )
    return wanted


def _policy(run: Path, env: World, text: str) -> Actor:
    """The policy of a run, executed as it says itself."""
    policy = policy_builder(run)()
    require_understood(policy.spec.task_space, (text,))
    agent = Execution().agent(policy.spec, env.spec, run.resolve().name)
    if text:
        agent = InstructedAgent(agent, text)
    inference = BatchedInference(policy, 0, round(1e9 / env.spec.rate_hz))
    told = {"policy": str(run), "policy_hash": policy_hash(run)}
    return Actor(agent, inference, told=told)


def require_correctable(policy: Path | None, corrected_by: str) -> None:
    """Who corrects is known, and somebody is there to be corrected; ConfigError otherwise."""
    require_no_freedrive(corrected_by, NO_TAKE_OVER)
    known = (SCRIPTED, *DEVICES)
    if corrected_by and corrected_by != SCRIPTED and corrected_by not in DEVICES:
        raise ConfigError(
            f"nobody is called '{corrected_by}' who corrects policies."
            f"{did_you_mean(corrected_by, known)} There are: {', '.join(known)}"
        )
    if corrected_by and policy is None:
        raise ConfigError("who is corrected? Name a run whose policy acts")


def _corrected(actor: Actor, env: World, noise: float, takeover: TakeOverConfig) -> Actor:
    """``actor``, from whom the task's expert takes over when it is lost."""
    agent, person = corrected_by_expert(actor.agent, env, noise, takeover)
    return dataclasses.replace(actor, agent=agent, watching=(person,))


def open_device(
    config: CollectConfig,
    who: str,
    place: Place,
    page: Mapping[str, Any],
    listener: CollectListener,
) -> TeleopDevice:
    """The device ``who``, which shows what happens at ``place``."""
    eye = place.eye_of(config.mapping)
    full_screen = listener.on_device is not None and listener.on_device(who)
    around = Surroundings(
        write=listener.on_view or unheard,
        full_screen=full_screen,
        on_page=listener.on_page or unheard,
        task=place.task,
        task_params=place.task_params,
        spec=place.env.spec,
        outlines=place.outlines,
        heading_rad=config.mapping.heading_rad if eye is None else eye.heading_rad,
        camera=config.mapping.camera,
    )
    return device_of(config.device, who, page, around)
