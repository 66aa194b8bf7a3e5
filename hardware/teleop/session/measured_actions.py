"""Records what an arm that a hand guides was meant to do: the action of a tick is the next pose.

    tick t:    observation t, command t
    recorded:  observation t, command t with the arm's action as measured at observation t + 1

Gripper and source stay the command's own.
"""

from __future__ import annotations

import dataclasses

from hardware.teleop.session.config import Recorder
from hardware.teleop.targets import find_target
from robolearn.spec import EmbodimentSpec
from robolearn.types import EpisodeHeader, Observation, Outcome, Sample, Tick

PROVENANCE = {"actions": "measured at the next tick"}
"""What such an episode says of its actions."""


class MeasuredActions:
    """A recorder whose ticks wait for the next one before ``recorder`` gets them."""

    def __init__(self, recorder: Recorder, embodiment: EmbodimentSpec) -> None:
        self._recorder = recorder
        self._target, _ = find_target(embodiment)
        self._waiting: Tick | None = None

    def on_start(self, episode: EpisodeHeader) -> None:
        """An episode begins."""
        self._waiting = None
        self._recorder.on_start(episode)

    def on_tick(self, tick: Tick) -> None:
        """Let it wait, and record the one before."""
        self._record(tick.observation)
        self._waiting = tick
        if tick.outcome.terminal or tick.outcome.truncated:
            self._record(None)

    def on_end(self, outcome: Outcome) -> None:
        """The episode is over."""
        self._recorder.on_end(outcome)

    def on_abort(self, error: BaseException) -> None:
        """What waits is as good as what came before it."""
        try:
            self._record(None)
        finally:
            self._recorder.on_abort(error)

    def spare(self) -> None:
        """The episode is to be kept."""
        self._recorder.spare()

    def keep(self) -> str:
        """Commit the finished episode; its id."""
        return self._recorder.keep()

    def discard(self) -> None:
        """Forget the finished episode."""
        self._recorder.discard()

    def _record(self, following: Observation | None) -> None:
        """``following``: what was seen next; None: the newest of what its own period brought."""
        tick, self._waiting = self._waiting, None
        if tick is None:
            return
        before = self._target.measured(tick.observation)
        after = self._target.measured(following or _newest(tick))
        value, _ = self._target.action(after, before)
        action = {**tick.command.action, self._target.spec.name: value}
        command = dataclasses.replace(tick.command, action=action)
        self._recorder.on_tick(dataclasses.replace(tick, command=command))


def _newest(tick: Tick) -> Observation:
    """The tick's observation with the newest samples of its period; pictures are left out."""
    samples = dict(tick.observation.samples)
    for name, block in tick.drained.signals.items():
        if len(block.t_ns) and block.value.ndim < 3:
            samples[name] = Sample(int(block.t_ns[-1]), block.value[-1])
    return Observation(tick.observation.t_ns, samples)
