"""Episodes of an arm that a hand guides: the action of a tick is the next measured pose."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hardware.teleop.session.measured_actions import MeasuredActions
from robolearn.data.episode import no_sent
from robolearn.spec import ActionSpec
from robolearn.types import Command, Observation, Outcome, Sample, SampleBatch, SampleBlock, Tick
from tests.mocks import SPEC, TOOL, Listener

WIDTH = "gripper/width"
BOTH = dataclasses.replace(
    SPEC, actions=(*SPEC.actions, ActionSpec(WIDTH, (1,), "m", 10.0, low=(0.0,), high=(0.08,)))
)
GOING_ON = Outcome(success=False, progress=0.0, reward=0.0)
OVER = Outcome(success=False, progress=0.0, reward=0.0, truncated=True, reason="operator")


class Kept(Listener):
    """A recorder that remembers."""

    def spare(self) -> None:
        """It is kept anyway."""

    def keep(self) -> str:
        return "kept"

    def discard(self) -> None:
        self.ticks.clear()


def tick(k: int, xy: tuple[float, float], newest: tuple[float, float], outcome=GOING_ON) -> Tick:
    """At ``xy``; by its end the arm is at ``newest``."""
    t_ns = 1000 * k
    block = SampleBlock(np.array([t_ns + 900]), np.array([newest]), np.array([True]))
    action = {TOOL: np.array(xy), WIDTH: np.array([0.01 * k])}
    return Tick(
        k,
        Observation(t_ns, {TOOL: Sample(t_ns, np.array(xy))}),
        Command(k, action, t_ns, source="human:freedrive"),
        SampleBatch({TOOL: block}, no_sent(action)),
        outcome,
    )


@pytest.fixture
def recorded() -> tuple[MeasuredActions, Kept]:
    kept = Kept()
    return MeasuredActions(kept, BOTH), kept


def test_the_action_is_where_the_next_tick_finds_the_arm(recorded):
    guided, kept = recorded
    places = [(0.1, 0.2), (0.11, 0.21), (0.13, 0.22)]
    for k, xy in enumerate(places):
        last = k == len(places) - 1
        guided.on_tick(tick(k, xy, (0.2, 0.2 + 0.01 * k), OVER if last else GOING_ON))
    guided.on_end(OVER)
    assert [t.index for t in kept.ticks] == [0, 1, 2]
    actions = [t.command.action[TOOL].tolist() for t in kept.ticks]
    # At the end there is no next observation, but what came since the last one.
    assert actions == [[0.11, 0.21], [0.13, 0.22], [0.2, 0.22]]
    # What is no pose of the arm is as it was commanded, and so is who commanded it.
    assert [t.command.action[WIDTH].tolist() for t in kept.ticks] == [[0.0], [0.01], [0.02]]
    assert {t.command.source for t in kept.ticks} == {"human:freedrive"}
    assert guided.keep() == "kept"


def test_an_episode_that_breaks_off_loses_no_tick(recorded):
    guided, kept = recorded
    guided.on_tick(tick(0, (0.1, 0.2), (0.12, 0.2)))
    assert kept.ticks == []
    guided.on_abort(RuntimeError("the cell is gone"))
    assert [t.command.action[TOOL].tolist() for t in kept.ticks] == [[0.12, 0.2]]
