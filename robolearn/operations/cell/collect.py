"""Records episodes on a cell, or lets a person drive it: by a device, or the task's expert.

open the cell --> look at it --> consent --> session of the person | expert --> home
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval.trials.suites import Suite
from hardware.cell.config import CellConfig
from hardware.cell.load import load_cell
from hardware.cell.spec import cell_spec
from hardware.env.real_env import RealEnv
from hardware.teleop.mapping import require_drivable, require_frame
from hardware.teleop.registry import DEVICES, FREEDRIVE, page_at
from hardware.teleop.session.session import TeleopSession
from robolearn.agents.chunk import ticks_per_action
from robolearn.agents.execution import Execution
from robolearn.agents.scripted_person import ScriptedPerson
from robolearn.config import to_dict
from robolearn.errors import ConfigError, DataError
from robolearn.instructions import require_understood
from robolearn.operations.cell.driving import HoldAtEnd
from robolearn.operations.cell.look import look_at
from robolearn.operations.cell.opened import CellChoice, open_cell
from robolearn.operations.cell.placing import require_starts
from robolearn.operations.cell.release import why_not_cleared
from robolearn.operations.collect import (
    CollectConfig,
    choose_operator,
    collection_of,
    open_device,
    require_correctable,
    require_hands,
)
from robolearn.operations.deploy.opened import policy_agent
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.policy import Source, open_policy
from robolearn.operations.deploy.preflight import Checks
from robolearn.operations.deploy.take_over import expert_on, eye_of
from robolearn.operations.deploy.task import recorded_params, task_of
from robolearn.operations.pictures.eyes import cell_eye
from robolearn.operations.pictures.overlay import StartOverlay
from robolearn.operations.stores.collect_options import CellOptions, CollectOptions
from robolearn.operations.stores.collection import (
    UNATTENDED,
    Actor,
    Collected,
    CollectListener,
    Place,
    record,
)
from robolearn.operations.suites import open_suite
from robolearn.timing.latencies import KEY as LATENCIES
from robolearn.types import Condition
from sim.tasks.contract import Task

# How the plans of a policy that is corrected become commands: as in a deployment.
EXECUTION = Execution(lead_ticks=1, realtime_chunking=True)
# Without a suite somebody ends every episode.
_DRIVEN = "free"


def collect_on_cell(
    config: CollectConfig,
    out: Path,
    cell: CellOptions,
    attendant: Operator,
    options: CollectOptions = CollectOptions(),  # noqa: B008 (frozen)
    *,
    listener: CollectListener = CollectListener(),  # noqa: B008 (frozen)
) -> Collected:
    """As :func:`robolearn.operations.collect.collect`, on the cell that ``config`` names;
    ``attendant``: agrees to the arm moving. A policy acts only where somebody corrects it.

    Errors: ConfigError, SpecMismatchError before anything is connected; RobotError and its kin for
    devices. What was kept until then is saved.
    """
    options.check()
    policy, corrected_by, noise = options.policy, options.corrected_by, options.noise
    require_correctable(policy, corrected_by)
    if policy is not None and not corrected_by:
        raise ConfigError(
            "a policy that nobody corrects acts on a cell by 'robolearn deploy', which scores it"
        )
    chosen = _Chosen.of(config, cell, corrected_by or options.agent)
    require_hands(chosen.who, play=options.play)
    if noise and chosen.who not in UNATTENDED:
        raise ConfigError("noise is for the agent scripted; people bring their own")
    with ExitStack() as stack:
        overlay = _overlay(stack, chosen, options.overlay, out)
        source = None
        if policy is not None:
            source = open_policy(policy, "")
            stack.callback(source.inference.close)
            ticks_per_action(source.inference.spec.task_space, cell_spec(chosen.cell.cell))
            require_understood(source.inference.spec.task_space, (config.task_text,))
        env, place = chosen.open(stack, attendant, source)
        if overlay is not None:
            place = dataclasses.replace(place, wanted=overlay, outlines=overlay.outlines)
        actor = _actor(stack, env, chosen, source, config, noise)
        collection = collection_of(
            config,
            place,
            "corrected" if source is not None else chosen.who,
            episodes=options.episodes,
            operator=options.operator,
            play=options.play,
            listener=listener,
            watching=(HoldAtEnd(env),) if chosen.who in UNATTENDED else (),
        )
        if chosen.who in UNATTENDED:
            # Whoever watches an expert has the keys of a deployment, once the terminal is free.
            stack.callback(attendant.close)
            listen = functools.partial(_listen, env, attendant)
            found = record(collection, out, actor, None, answered=listen)
            env.home()
            return found
        page = page_at(options.port, options.host)
        device = functools.partial(open_device, config, chosen.who, place, page, listener)
        return record(collection, out, actor, device)


def teleoperate_on_cell(
    config: CollectConfig,
    cell: CellOptions,
    attendant: Operator,
    *,
    agent: str = "auto",
    port: int = 0,
    host: str = "",
    listener: CollectListener = CollectListener(),  # noqa: B008 (frozen)
) -> None:
    """Let a person drive the cell that ``config`` names until they quit; nothing is recorded."""
    chosen = _Chosen.of(config, cell, agent)
    require_hands(chosen.who, play=True)
    with ExitStack() as stack:
        _, place = chosen.open(stack, attendant)
        collection = collection_of(config, place, chosen.who, play=True, listener=listener)
        hand = open_device(config, chosen.who, place, page_at(port, host), listener)
        with contextlib.closing(hand):
            collection.driven(hand)


@dataclass(slots=True)
class AtTheDevice:
    """The person at the device, who judges and places by its keys: the session asks."""

    attendant: Operator
    session: TeleopSession | None = None
    # The session's own keys end an episode, and say whether it is solved.
    judges = False

    @property
    def places(self) -> bool:
        """Unless asked not to ask."""
        return self.attendant.places

    def place(self, text: str) -> None:
        """On the screen."""
        if self.session is None:
            raise ConfigError(f"nobody can be asked yet: {text}")
        self.session.place(text)

    def told(self, what: str, text: str) -> None:
        """Before the session begins."""
        self.attendant.told(what, text)

    def forget(self) -> None:
        """Nothing is said here."""

    def verdict(self) -> str:
        """Nothing is said here."""
        return ""

    def join(self, session: TeleopSession) -> None:
        """From now on it can ask."""
        self.session = session


@dataclass(frozen=True, slots=True)
class _Chosen:
    """What is known before anything is connected."""

    cell: CellChoice
    suite: Suite | None
    task: Task | None
    who: str
    max_steps: int

    @staticmethod
    def of(config: CollectConfig, options: CellOptions, agent: str) -> _Chosen:
        """Checked, as far as that can be done without the cell."""
        if not config.robot:
            raise ConfigError("say which cell: robot of the configuration")
        robot = Path(config.robot)
        cell: CellConfig = options.limits.on(load_cell(robot))
        choice = CellChoice(cell, robot, options.start_lab, options.lab_seed)
        choice.require_possible()
        suite = open_suite(Path(config.suite)) if config.suite else None
        task = None
        if suite is not None:
            task = task_of(suite, cell, robot, Path(config.suite))
        wanted = config.agent if agent == "auto" else agent
        spec = cell_spec(cell)
        who = choose_operator("keyboard" if wanted == "auto" else wanted, _DRIVEN, spec)
        if who in DEVICES:
            require_drivable(spec)
            require_frame(config.mapping, spec, eye_of(cell, config))
        elif who == "play" or task is None or suite is None:
            raise ConfigError(
                f"on a cell the agent '{who}' cannot act without a task of its own: give a suite"
                " and the agent scripted, or a device"
            )
        limit = 0 if suite is None else suite.config.max_steps
        found = _Chosen(choice, suite, task, who, limit)
        start = found.start(0)
        if suite is not None:
            require_starts([start], cell, Path(config.suite))
        try:
            cell.motion().start(start)
        except DataError as error:
            raise ConfigError(
                f"{robot}: it is not said where an episode starts ({error}); give a suite"
            ) from error
        return found

    def start(self, seed: int) -> Condition:
        """A start of the suite's task; without one the arm is at home and nothing is placed."""
        if self.suite is None:
            return Condition(f"driven-{seed}", seed, {})
        return self.suite.starts.draw(seed, [0])[0]

    def open(
        self, stack: ExitStack, attendant: Operator, policy: Source | None = None
    ) -> tuple[RealEnv, Place]:
        """Connected, looked at and agreed to, also with ``policy``; ``stack`` closes it."""
        seated = AtTheDevice(attendant)
        by_hand = self.who in DEVICES
        opened = open_cell(stack, self.cell, self.task, seated if by_hand else attendant)
        env, cell = opened.env, self.cell.cell
        by_guiding = self.who == FREEDRIVE
        if by_guiding:
            env.supervisor.require_freedrive()
        if policy is None:
            ids = look_at(env, attendant.told)
        else:
            checks = Checks(cell, policy, attendant.told)
            ids = checks.run(
                env, lead_ticks=EXECUTION.lead_ticks, agent_real_time=opened.agent_real_time
            ).devices
        giving_way = ", and give way to your hand: stand by it" if by_guiding else ""
        attendant.consent(f"the arm will move{giving_way}")
        provenance: dict[str, Any] = {
            "robot": to_dict(cell),
            LATENCIES: cell.latencies.to_json(),
            "devices": {name: dict(found) for name, found in ids.items()},
            "lab_seed": self.cell.lab_seed if self.cell.start_lab else None,
            **({"films": list(opened.films)} if opened.films else {}),
            **({} if self.task is None else recorded_params(self.task)),
        }
        place = Place(
            env=env,
            task=_DRIVEN if self.task is None else self.task.name,
            max_steps=self.max_steps,
            start=self.start,
            provenance=provenance,
            task_params=cell.task_params,
            arm=env,
            clear=functools.partial(why_not_cleared, env, cell),
            eye=functools.partial(cell_eye, cell),
            on_session=seated.join,
        )
        return env, place


def _overlay(stack: ExitStack, chosen: _Chosen, text: str, out: Path) -> StartOverlay | None:
    """What shows the person at the device where things belong; ``stack`` closes it. ConfigError
    before anything is connected, also where the scene does not have the suite's starts.
    """
    if not text:
        return None
    if chosen.suite is None or chosen.who not in DEVICES:
        raise ConfigError(
            "overlay: it shows a person at a device where things belong at the start of an episode,"
            " which a suite says: give a suite, and a device (keyboard, browser, ...)"
        )
    path = out.with_name(f"{out.name}-start.png")
    overlay = StartOverlay.of(text, cell_spec(chosen.cell.cell), path)
    if overlay is None:
        return None
    stack.callback(overlay.close)
    try:
        overlay.require(chosen.start(0))
    except DataError as error:
        raise ConfigError(f"overlay: '{text}' does not have the suite's starts: {error}") from error
    return overlay


def _listen(env: RealEnv, attendant: Operator) -> None:
    attendant.told("keys", attendant.listen(env.estop))


def _actor(
    stack: ExitStack,
    env: RealEnv,
    chosen: _Chosen,
    policy: Source | None,
    config: CollectConfig,
    noise: float,
) -> Actor | None:
    """Who acts by itself: the expert, or a policy that it or a person corrects."""
    expert = _expert(stack, env, chosen, noise) if chosen.who in UNATTENDED else None
    if policy is None:
        return expert
    person = None if expert is None else ScriptedPerson(expert.agent)
    return Actor(
        policy_agent(policy, env, EXECUTION, config.task_text, person, config.takeover),
        policy.inference,
        watching=() if person is None else (person,),
        told={"policy": policy.where, "policy_hash": policy.hash},
    )


def _expert(stack: ExitStack, env: RealEnv, chosen: _Chosen, noise: float) -> Actor:
    """The expert of the suite's task."""
    task = chosen.task
    if task is None:
        raise ConfigError("the agent scripted acts for a task: give a suite")
    return Actor(expert_on(stack, env, task.name, noise))
