"""Pictures that do not come are seen while the person still stands there."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hardware.teleop.device import CameraState, View
from hardware.teleop.session.seen import CameraWatch
from robolearn.spec import SignalSpec
from robolearn.types import Observation, Sample, SampleBatch, SampleBlock, SentBlock
from tests.hardware.teleop.test_session import Cell, Reacts, session
from tests.mocks import SPEC

TOP, WRIST = "top/image", "wrist/image"
CAMERAS = tuple(SignalSpec(n, (4, 4, 3), rate_hz=10.0, dtype="uint8") for n in (TOP, WRIST))
DEPTH = SignalSpec("top/depth", (4, 4), "mm", 10.0, "uint16")
EYES = dataclasses.replace(SPEC, signals=(*SPEC.signals, *CAMERAS, DEPTH))
PICTURE = np.zeros((4, 4, 3), np.uint8)
NO_COMMANDS = SentBlock(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), {})


def drained(*times_s: float) -> SampleBatch:
    t_ns = np.array([round(1e9 * t) for t in times_s], dtype=np.int64)
    rows = np.repeat(PICTURE[None], len(t_ns), axis=0)
    return SampleBatch({TOP: SampleBlock(t_ns, rows, np.ones(len(t_ns), np.bool_))}, NO_COMMANDS)


def seen(at_s: float, **cameras_s: float) -> Observation:
    samples = {f"{n}/image": Sample(round(1e9 * t), PICTURE) for n, t in cameras_s.items()}
    return Observation(round(1e9 * at_s), samples)


def test_frames_that_did_not_come_are_counted_and_a_new_attempt_counts_anew() -> None:
    watch = CameraWatch(EYES)
    # Two together after a gap of three periods; none in a tick is none yet.
    for times in ((1.0,), (1.1,), (), (), (1.4, 1.5)):
        watch.add(drained(*times))
    top, wrist = watch.states(seen(1.5, top=1.5, wrist=1.5), 1_500_000_000)
    assert (top.missed, wrist.missed) == (2, 0)
    assert top.trouble == "top: 2 did not come"
    watch.begin()
    # What did not come between two attempts is nobody's.
    watch.add(drained(9.0))
    assert watch.states(seen(9.0, top=9.0), 9_000_000_000)[0].missed == 0


def test_a_camera_that_never_came_or_stopped_is_told() -> None:
    watch = CameraWatch(EYES)
    assert watch.states(None, 0) == ()
    top, wrist = watch.states(seen(5.0, top=4.9), 5_000_000_000)
    assert (top.trouble, wrist.trouble) == ("", "wrist: no picture")
    # Left out of what is seen as it is old: it counts on from its last one.
    top, _ = watch.states(seen(8.0), 8_000_000_000)
    assert top.age_s == pytest.approx(3.1)
    assert top.trouble == "top: newest picture is 3 s old"
    # A simulated clock begins anew.
    assert watch.states(seen(0.0, top=0.0), 0)[0] == CameraState("top", 0.0)


def test_a_slow_camera_is_not_old_between_two_pictures() -> None:
    slow = dataclasses.replace(CAMERAS[0], rate_hz=0.5)
    watch = CameraWatch(dataclasses.replace(EYES, signals=(*SPEC.signals, slow)))
    assert not watch.states(seen(3.9, top=0.0), 3_900_000_000)[0].old
    assert watch.states(seen(4.1, top=0.0), 4_100_000_000)[0].old


class BlindCell(Cell):
    """Its second camera gives one picture per second and a half, and none while one waits."""

    spec = dataclasses.replace(Cell.spec, signals=EYES.signals)

    def observe(self) -> Observation:
        return self._with(super().observe(), wrist=True)

    def look(self) -> Observation:
        return self._with(super().look(), wrist=False)

    def _with(self, observation: Observation, *, wrist: bool) -> Observation:
        names = (TOP, WRIST) if wrist else (TOP,)
        cameras = {name: Sample(self.t_ns, PICTURE) for name in names}
        return Observation(self.t_ns, {**observation.samples, **cameras})

    def now_ns(self) -> int:
        # Whoever waits sees time pass.
        self.t_ns += 200_000_000
        return self.t_ns


class Waits(Reacts):
    """Starts once the screen says what is wrong."""

    def show(self, view: View) -> None:
        super().show(view)
        if any(camera.old for camera in view.cameras) and view.phase == "ready":
            self.due = ("quit",)


def test_a_person_who_waits_sees_that_a_camera_stopped() -> None:
    hand = Waits()
    run, _ = session(BlindCell(), hand)
    assert run.run() == ()
    told = [c.trouble for v in hand.views if v.phase == "ready" for c in v.cameras if c.old]
    assert [text.partition(":")[0] for text in told] == ["wrist"]
