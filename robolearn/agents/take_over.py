"""Lets a person correct a policy: the policy drives until the person touches the device.

    policy drives --(touched: 2 samples beyond the dead zone, or a button)--> person drives
    person drives --(let go: half a second below half of it, or a button)--> policy drives

Nothing jumps at either edge. A person's device is told where the arm was sent last, and goes on
from there; what still lies apart (a leader arm beside the arm, a policy that wants to be somewhere
else) is led there at a bounded speed (``robolearn/agents/easing.py``). A policy that gets the arm
back has no plan: what it had planned, asked or averaged before is void, what it saw meanwhile is
not.

``Command.source`` says who drove each step: ``policy``, ``human:<device>``, ``operator:<name>`` (a
program in a person's place), and ``hold`` where nobody did, be it that a policy has no plan yet or
that a person has let go (``robolearn.data.episode.drivers``).
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from robolearn.agents.actions import hold_action
from robolearn.agents.easing import Easing, EasingConfig
from robolearn.contracts import Agent, Interruptible
from robolearn.errors import ConfigError
from robolearn.spec import EmbodimentSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals

Wish = Literal["", "take_over", "hand_back"]
Driver = Literal["policy", "person"]


@dataclass(frozen=True, slots=True)
class Touch:
    """How a person holds the device at this tick.

    ``level`` in [0, 1]: how far it is deflected, for a device that springs back; 1 or 0 for one
    with a clutch, held or not; always 0 for one that cannot tell (a leader arm), which takes over
    by a ``wish`` alone: a button that was pressed since the last tick. ``aligned``: the device is
    near enough to the arm to go on from there. ``present``: somebody could touch it at all.
    """

    level: float = 0.0
    wish: Wish = ""
    aligned: bool = True
    present: bool = True


@runtime_checkable
class Person(Agent, Protocol):
    """An agent that can be asked whether it wants to drive."""

    def touched(self, observation: Observation) -> Touch:
        """How the device is held; asked once at every tick, whoever drives; never blocks."""
        ...

    def latch(self, observation: Observation, sent: Signals) -> None:
        """The person begins to drive, from where the arm was sent last: filters and whatever was
        latched before are void.
        """
        ...


@dataclass(frozen=True, slots=True)
class TakeOverConfig:
    """What counts as touching a device, and as letting it go."""

    # Deflection in [0, 1] beyond which a device counts as touched.
    dead_zone: float = 0.1
    # For so many samples in a row.
    samples: int = 2
    # Share of the dead zone below which it counts as let go.
    release: float = 0.5
    # For so long [s].
    hold_s: float = 0.5
    # How fast commands move from what one driver sent to what the other wants.
    easing: EasingConfig = field(default_factory=EasingConfig)
    # Ask the policy while the person drives, too, to see what it would have done.
    shadow: bool = False

    def __post_init__(self) -> None:
        if not 0.0 <= self.dead_zone < 1.0:
            raise ConfigError(f"take-over: dead_zone must be in [0, 1), got {self.dead_zone}")
        if not 0.0 < self.release <= 1.0:
            raise ConfigError(f"take-over: release must be in (0, 1], got {self.release}")
        if self.samples < 1:
            raise ConfigError(f"take-over: samples must be at least 1, got {self.samples}")
        if not (math.isfinite(self.hold_s) and self.hold_s >= 0):
            raise ConfigError(f"take-over: hold_s must be at least 0, got {self.hold_s}")


class TakeOver:
    """``policy`` drives, ``person`` takes over and hands back.

    Without a touch the commands are those of ``policy`` alone, bit for bit. A device that is lost
    while the person drives stops the arm: it does not hand back, nor does it once it is back and
    lies there. Only who touched it anew can let go of it.
    """

    def __init__(
        self,
        policy: Agent,
        person: Person,
        embodiment: EmbodimentSpec,
        config: TakeOverConfig = TakeOverConfig(),
    ) -> None:
        self._policy, self._person, self._config = policy, person, config
        self._embodiment = embodiment
        self._easing = Easing(embodiment.actions, 1.0 / embodiment.rate_hz, config.easing)
        self.reset(0)

    @property
    def name(self) -> str:
        """Both, for provenance."""
        return f"{self._policy.name} corrected by {self._person.name}"

    @property
    def driver(self) -> Driver:
        """Who drove the last step."""
        return self._driver

    @property
    def waiting(self) -> bool:
        """The person wants to drive, and the device is not where the arm is."""
        return self._wants and self._driver == "policy"

    @property
    def proposed(self) -> Signals | None:
        """With ``shadow``, while the person drives: what the policy would have sent."""
        return self._proposed

    def reset(self, seed: int) -> None:
        """The policy drives; both forget the last episode."""
        self._policy.reset(seed)
        self._person.reset(seed)
        self._easing.clear()
        self._driver: Driver = "policy"
        self._wants = self._by_wish = False
        self._neutral = True
        self._began = True
        self._beyond = 0
        self._let_go_ns: int | None = None
        # The device was lost while the person drove, and was not touched since.
        self._lost = False
        self._sent: Signals | None = None
        self._proposed: Signals | None = None
        self._seq = 0

    def request(self, observation: Observation) -> PolicyInput | None:
        """That of the policy, which sees what happens whoever drives."""
        asked = self._policy.request(observation)
        return asked if self._driver == "policy" or self._config.shadow else None

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        """The command of whoever drives."""
        touch = self._person.touched(observation)
        if self._driver == "policy":
            if self._takes_over(touch):
                self._begin("person", observation)
        elif self._hands_back(touch, observation.t_ns):
            self._begin("policy", observation)
            # It was asked while the person drove, if at all.
            reply = None
        if self._driver == "policy":
            command = self._policy.decide(observation, reply)
        else:
            command = self._of_person(observation, reply)
        if self._easing.active:
            # The plan says what follows what is wanted, which is not what is sent.
            action = self._easing.next(command.action)
            command = dataclasses.replace(command, action=action, plan=None)
            self._began |= command.source != "hold"
            if not self._began:
                # Holding is no motion yet: the way to the first one is still to come.
                self._easing.begin(action)
        self._sent = command.action
        self._seq += 1
        return dataclasses.replace(command, seq=self._seq - 1)

    def _takes_over(self, touch: Touch) -> bool:
        if touch.wish:
            self._wants = touch.wish == "take_over"
        self._neutral |= self._free(touch)
        held = self._held(touch) and self._neutral
        self._by_wish = self._wants
        return (held or self._wants) and touch.present and touch.aligned

    def _hands_back(self, touch: Touch, now_ns: int) -> bool:
        """A wish counts at once; who took over by one hands back by one alone."""
        held = self._held(touch)
        if not touch.present:
            self._let_go_ns, self._lost = None, not self._by_wish
            return False
        self._lost = self._lost and not held
        if touch.wish == "hand_back":
            return True
        if touch.wish == "take_over":
            self._by_wish, self._lost = True, False
        if self._by_wish or self._lost or not self._free(touch):
            self._let_go_ns = None
            return False
        if self._let_go_ns is None:
            self._let_go_ns = now_ns
        return now_ns - self._let_go_ns >= round(1e9 * self._config.hold_s)

    def _held(self, touch: Touch) -> bool:
        """Whether it is touched, and not by a tremble alone; asked once at every tick."""
        beyond = touch.present and touch.level > self._config.dead_zone
        self._beyond = self._beyond + 1 if beyond else 0
        return self._beyond >= self._config.samples

    def _free(self, touch: Touch) -> bool:
        return touch.level <= self._config.release * self._config.dead_zone

    def _begin(self, driver: Driver, observation: Observation) -> None:
        sent = self._sent
        if sent is None:
            sent = hold_action(self._embodiment.actions, observation)
        self._driver, self._wants, self._beyond = driver, False, 0
        # Who hands back by a button may still hold the device: that is no new touch.
        self._neutral = False
        self._let_go_ns = self._proposed = None
        self._lost = False
        self._easing.begin(sent)
        self._began = False
        if driver == "person":
            self._person.latch(observation, sent)
        elif isinstance(self._policy, Interruptible):
            self._policy.interrupt(sent)

    def _of_person(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        if self._config.shadow:
            self._proposed = self._policy.decide(observation, reply).action
        command = self._person.decide(observation, None)
        # Waiting for the hold to pass corrects nothing, and should not be learned from.
        waits = (self._lost and not self._beyond) or self._let_go_ns is not None
        source = "hold" if waits else command.source
        return dataclasses.replace(command, plan=None, source=source)
