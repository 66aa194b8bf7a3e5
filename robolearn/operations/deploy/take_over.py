"""Lets a person take over from a deployed policy by a device, whose keys also judge and stop.

device --keys--> stop: the supervisor, at once | take over, hand back | solved, not solved
+-----hand--> TeleopAgent --+
policy ------------------------+--> TakeOver --> the arm
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from hardware.cell.config import CellConfig
from hardware.cell.spec import cell_spec
from hardware.env.real_env import RealEnv
from hardware.teleop.agent import TeleopAgent
from hardware.teleop.axes import Eye
from hardware.teleop.device import Key, Phase, Surroundings, TeleopDevice, unheard
from hardware.teleop.mapping import require_drivable, require_frame
from hardware.teleop.registry import (
    DEVICES,
    NO_TAKE_OVER,
    device_of,
    page_at,
    require_no_freedrive,
)
from hardware.teleop.session.attended import LoopTiming
from hardware.teleop.session.key_watch import KeyWatch
from hardware.teleop.session.seen import CameraWatch, view_of
from robolearn.agents.apart import ApartAgent
from robolearn.agents.scripted_person import ScriptedPerson
from robolearn.config import load_config, to_dict
from robolearn.contracts import Agent
from robolearn.data.episode import drivers
from robolearn.errors import (
    ConfigError,
    RobolearnError,
    RobotConnectionError,
    did_you_mean,
)
from robolearn.operations.builders import ExpertBuilder
from robolearn.operations.cell.driving import WholeCommand
from robolearn.operations.collect import CollectConfig
from robolearn.operations.deploy.operator import Operator
from robolearn.operations.deploy.options import TakeOverOptions
from robolearn.operations.pictures.eyes import cell_eye
from robolearn.operations.practice.correcting import SCRIPTED
from robolearn.types import EpisodeHeader, Observation, Outcome, Tick, TrialRecord

HELP = (
    "move the device: the arm is yours; let go: the policy drives on (or t and h); esc: emergency"
    " stop; 1 solved, 0 not solved, q ends the trial"
)
# What the keys of a device say of a trial, as those of the terminal do.
_VERDICTS: dict[Key, str] = {"success": "s", "failure": "f", "quit": "q"}
_POLL_S = 0.02
# Whoever waits sees the cell as it was so long ago at most [s].
_LOOK_S = 0.1


def _by_nothing() -> str:
    return ""


class DeviceOperator:
    """``inner``, whose keys and hand are those of a device from :meth:`listen` on; a subscriber of
    the trials. ``opened``: opens the device; ``clear``: makes room for a line of text where the
    device's own line may stand.
    """

    judges = True

    def __init__(
        self,
        inner: Operator,
        cell: CellConfig,
        config: CollectConfig,
        opened: Callable[[], TeleopDevice],
        *,
        trials: int,
        max_steps: int,
        clear: Callable[[], None],
    ) -> None:
        self._inner, self._cell, self._mapping = inner, cell, config.mapping
        self._eye = eye_of(cell, config)
        self._opened, self._clear = opened, clear
        self._trials, self._ended, self._max_steps = trials, 0, max_steps
        self._timing = LoopTiming(cell.rate_hz)
        self._device: TeleopDevice | None = None
        self._watch: KeyWatch | None = None
        self._person: TeleopAgent | None = None
        self._verdict = ""
        self._slowed: Callable[[], str] = _by_nothing
        self._look: Callable[[], Observation] | None = None
        self._cameras = CameraWatch(cell_spec(cell))

    @property
    def person(self) -> TeleopAgent:
        """Who takes over."""
        if self._person is None:
            raise ConfigError("the device is not open yet")
        return self._person

    @property
    def places(self) -> bool:
        """As ``inner``."""
        return self._inner.places

    def consent(self, what: str) -> None:
        """As ``inner``: the device is not open yet."""
        self._inner.consent(what)

    def listen(self, stop: Callable[[], None]) -> str:
        """Open the device; from now on its keys count."""
        self._device = self._opened()
        self._person = TeleopAgent(self._device, cell_spec(self._cell), self._mapping, self._eye)
        self._watch = KeyWatch(self._device, stop, _POLL_S)
        self._watch.__enter__()
        return HELP

    def place(self, text: str) -> None:
        """On the device, once it is open."""
        if self._watch is None or self._device is None:
            self._inner.place(text)
            return
        self._watch.forget()
        said = f"{text}, then press start."
        self.told("your turn", said)
        keys: tuple[Key, ...] = ("start", "quit", "stop")

        def show() -> None:
            self._show("placing", self._seen(), message=said, keys=keys)

        show()
        key = self._watch.wait(("start", "keep", "quit"), show, every_s=_LOOK_S)
        if key in ("quit", "stop"):
            raise ConfigError(f"not done: {text}")

    def sit(self, slowed: Callable[[], str], look: Callable[[], Observation]) -> TeleopAgent:
        """Who takes over takes a seat at the arm: ``slowed`` says what keeps that from doing all
        that is commanded, whoever drives; ``look``: what is there between two trials.
        """
        self._slowed, self._look = slowed, look
        return self.person

    def forget(self) -> None:
        """A new trial begins: keys of before are not meant."""
        self._verdict = ""
        if self._watch is not None:
            self._watch.forget()

    def verdict(self) -> str:
        """What a key said since then."""
        return self._verdict

    def told(self, what: str, text: str) -> None:
        """To ``inner``."""
        self._clear()
        self._inner.told(what, text)

    def ended(self, trial: TrialRecord) -> None:
        """To ``inner``."""
        self._ended += 1
        self._inner.ended(trial)

    def close(self) -> None:
        """Release the device; safe to call twice."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.__exit__(None, None, None)
        if self._device is not None:
            self._device.close()
        self._inner.close()

    # -- told by the loop ------------------------------------------------------------------------

    def on_start(self, episode: EpisodeHeader) -> None:
        """The loop begins."""
        del episode
        self._timing.restart()
        self._cameras.begin()

    def on_tick(self, tick: Tick) -> None:
        """Hand the keys on, and show how it goes."""
        if self._watch is None or self._device is None:
            return
        for key in self._watch.pressed():
            self._verdict = _VERDICTS.get(key, self._verdict)
            self.person.press(key)
        (driver,) = drivers((tick.command.source,))
        mine = driver == "human"
        seen = tick.observation
        self._timing.tick(time.monotonic_ns())
        self._cameras.add(tick.drained)
        self._show(
            "running",
            seen,
            engaged=mine,
            policy_drives=driver == "policy",
            progress=tick.outcome.progress,
            step=tick.index + 1,
            elapsed_s=(tick.index + 1) / self._cell.rate_hz,
            rate_hz=self._timing.hz,
            jitter_s=self._timing.jitter_s,
            input_age_s=self.person.input_age_s,
            note=self.person.note,
            slowed=self._slowed() or (self.person.limited if mine else ""),
            gripper=self.person.opening,
            keys=("handback" if mine else "takeover", "success", "failure", "quit", "stop"),
        )

    def on_end(self, outcome: Outcome) -> None:
        """The arm rests; the next start is made."""
        del outcome
        self._show("resetting", None, message="The trial is over.")

    def on_abort(self, error: BaseException) -> None:
        """Say it."""
        self._show("stopped", None, error=str(error) or "Stopped.")

    def _show(self, phase: Phase, seen: Observation | None, **more: Any) -> None:
        """``seen``: where tool and things are and what cameras saw; None: nobody looked."""
        if self._device is None:
            return
        view = dataclasses.replace(
            view_of(seen),
            phase=phase,
            wanted=self._trials,
            saved=self._ended,
            max_steps=self._max_steps,
            cameras=self._cameras.states(seen, time.monotonic_ns()),
            **{"keys": ("stop",)} | more,
        )
        self._device.show(view)

    def _seen(self) -> Observation | None:
        """Between two trials; None: nobody can tell now."""
        if self._look is None:
            return None
        try:
            return self._look()
        except RobotConnectionError:
            raise
        except RobolearnError:
            return None


def require_known(by: str) -> None:
    """ConfigError for somebody who takes over from no policy."""
    require_no_freedrive(by, NO_TAKE_OVER)
    known = (SCRIPTED, *DEVICES)
    if by and by != SCRIPTED and by not in DEVICES:
        raise ConfigError(
            f"nobody is called '{by}' who takes over.{did_you_mean(by, known)} There are:"
            f" {', '.join(known)}"
        )


def device_operator(
    options: TakeOverOptions,
    config: CollectConfig,
    inner: Operator,
    cell: CellConfig,
    task: str,
    *,
    trials: int,
    max_steps: int,
    write: Callable[[str], None] = unheard,
) -> DeviceOperator:
    """The person who drives ``cell`` by the device of ``options``, set as ``config`` says
    (:func:`settings_of`); nothing is opened yet.

    ConfigError, SpecMismatchError for a cell that no person can drive so.
    """
    spec = cell_spec(cell)
    require_drivable(spec)
    eye = eye_of(cell, config)
    require_frame(config.mapping, spec, eye)
    around = Surroundings(
        write=write,
        on_page=lambda url: inner.told("open this page", url),
        task=task,
        task_params=cell.task_params,
        spec=spec,
        heading_rad=config.mapping.heading_rad if eye is None else eye.heading_rad,
        camera=config.mapping.camera,
    )
    page = page_at(options.port, options.host)
    return DeviceOperator(
        inner,
        cell,
        config,
        lambda: device_of(config.device, options.by, page, around),
        trials=trials,
        max_steps=max_steps,
        clear=lambda: write("\r\x1b[K"),
    )


def eye_of(cell: CellConfig, config: CollectConfig) -> Eye | None:
    """Of the camera in whose axes the person drives; None: in other ones."""
    mapping = config.mapping
    return cell_eye(cell, mapping.camera) if mapping.by_camera else None


def expert_on(stack: ExitStack, env: RealEnv, task: str, noise: float = 0.0) -> Agent:
    """The task's expert, whose commands are those of the cell, and whose thinking the loop does not
    wait for; ``stack`` ends it.
    """
    builder = ExpertBuilder(task, noise, dict(env.config.task_params))
    expert = ApartAgent(functools.partial(builder, env.spec), env.spec)
    stack.callback(expert.close)
    return WholeCommand(expert, lambda: env.standing)


def scripted_person(stack: ExitStack, env: RealEnv, task: str) -> ScriptedPerson:
    """The task's expert, which takes over where the policy makes no progress."""
    return ScriptedPerson(expert_on(stack, env, task))


def settings_of(options: TakeOverOptions) -> CollectConfig:
    """The file whose device, mapping and take-over count, or else what is usual; ConfigError."""
    path = options.config
    return CollectConfig() if path is None else load_config(CollectConfig, path)


def recorded_settings(options: TakeOverOptions, config: CollectConfig) -> dict[str, Any]:
    """What episodes say of who may take over in them, and how."""
    if not options.by:
        return {"takeover": ""}
    told = {name: to_dict(getattr(config, name)) for name in ("mapping", "takeover")}
    return {"takeover": options.by, "takeover_config": {"device": config.device, **told}}
