"""While things are placed the picture shows where they belong; while it is recorded not."""

from __future__ import annotations

import dataclasses

import numpy as np

from hardware.teleop.device import View
from hardware.teleop.session.seen import START_COLUMNS, with_start
from robolearn.shapes import Picture
from robolearn.spec import SignalSpec
from robolearn.types import Condition, Observation, ResetReport, Sample
from tests.hardware.teleop.test_session import Cell, Reacts, session, starts
from tests.mocks import CONDITION

GREY = np.full((30, 40, 3), 90, np.uint8)


class Red:
    """Paints the picture red; knows for which start."""

    camera, note = "top", "Red shows it."

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []

    def over(self, condition: Condition, seen: Picture) -> Picture:
        self.asked.append((condition.id, seen.shape[1]))
        mixed = seen.copy()
        mixed[..., 0] = 255
        return mixed


class Seeing(Cell):
    """A cell with a camera, and whose person places things."""

    spec = dataclasses.replace(
        Cell.spec, signals=(*Cell.spec.signals, SignalSpec("top/image", (30, 40, 3), dtype="uint8"))
    )

    def reset(self, condition: Condition, rng: np.random.Generator) -> ResetReport:
        report = super().reset(condition, rng)
        self.run.place("place the cube")
        return report

    def observe(self) -> Observation:
        seen = super().observe()
        picture = Sample(seen.t_ns, GREY, file=b"the camera's own")
        return Observation(seen.t_ns, {**seen.samples, "top/image": picture})

    def look(self) -> Observation:
        return self.observe()


def test_the_start_is_shown_until_it_is_recorded() -> None:
    cell, red = Seeing(), Red()
    hand = Reacts(placing=["", "start"], ready=["", "start"], review=["keep"])
    cell.run, _ = session(cell, hand, config={"wanted": red})
    assert len(cell.run.run()) == 1
    shown = {p: [v for v in hand.views if v.phase == p] for p in ("placing", "ready", "running")}
    for view in (*shown["placing"], *shown["ready"]):
        assert (view.pictures["top"][..., 0] == 255).all()
        # Not what the camera compressed itself, which shows no start.
        assert not view.jpegs
        assert view.start is not None
        assert view.start[1].shape == (30, 40, 3)
    assert shown["placing"][0].message == "place the cube, then press start. Red shows it."
    assert shown["running"]
    for view in shown["running"]:
        assert (view.pictures["top"] == GREY).all()
        assert view.jpegs == {"top": b"the camera's own"}
        assert view.start is None
    # What is recorded is what was seen.
    assert (GREY == 90).all()


def test_the_same_start_again_shows_the_same_start_and_the_next_one_another() -> None:
    cell, red = Seeing(), Red()
    hand = Reacts(placing=["start"] * 3, ready=["start"] * 3, running=["redo"], review=["keep"] * 2)
    cell.run, _ = session(cell, hand, config={"wanted": red}, episodes=2)
    assert len(cell.run.run()) == 2
    assert len(starts(cell)) == 3
    order = [name for k, (name, _) in enumerate(red.asked) if k == 0 or red.asked[k - 1][0] != name]
    assert len(order) == len(set(order)) == 2


def test_a_camera_that_sees_nothing_shows_nothing() -> None:
    view = View("ready", pictures={"side": GREY}, message="m")
    assert with_start(view, Red(), CONDITION) is view
    wide = np.zeros((480, 640, 3), np.uint8)
    found = with_start(dataclasses.replace(view, pictures={"top": wide}), Red(), CONDITION)
    assert found.start is not None
    assert found.start[1].shape == (36, START_COLUMNS, 3)
