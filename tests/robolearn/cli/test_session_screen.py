"""What a person sees while recording: every phase as text."""

from __future__ import annotations

import io
import math
from typing import get_args

import numpy as np
import pytest
from rich.console import Console

from hardware.teleop.device import CameraState, Curve, Key, Look, Phase, View
from hardware.teleop.devices.keyboard import KEYS
from robolearn.cli.shared.session_screen import (
    LABELS,
    TITLES,
    FullScreen,
    Lines,
    screen_of,
)
from tests.waiting import wait_until


def text_of(view: View, width: int = 80) -> str:
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=False)
    console.print(screen_of(view, "collect runs/own"))
    return console.export_text()


def test_while_recording_time_rate_jitter_and_keys_are_seen() -> None:
    view = View(
        phase="running", engaged=True, progress=0.4, best=0.5, step=100, max_steps=300,
        rate_hz=19.98, jitter_s=0.0012, input_age_s=0.0236, saved=3, wanted=10, elapsed_s=5.0,
        counts=(("discarded", 1), ("success", 3)), disk_free=120_000_000_000, gripper=1.0,
        keys=("keep", "discard", "redo", "quit", "stop"),
    )  # fmt: skip
    shown = text_of(view)
    for words in (
        "RECORDING", "5.0 s of 15.0", "20.0 Hz, jitter 1.2 ms", "frames lost   none", "3 of 10",
        "24 ms old at the command",
        "1 discarded, 3 success", "120.0 GB free", "100 % open", "the arm is yours",
        "enter", "same start again", "esc", "EMERGENCY STOP", "collect runs/own",
    ):  # fmt: skip
        assert words in shown, words


def test_what_is_wrong_is_seen_before_the_decision() -> None:
    view = View(
        phase="review",
        message="Best 20 %. Enter keeps this episode, X discards it.",
        warnings=("it is 0.4 s long: record it again",),
        error="the arm ran into something",
        lost_frames=7,
        disk_free=300_000_000,
        keys=("keep", "discard", "redo", "quit"),
    )
    shown = text_of(view)
    for words in (
        "KEEP IT?",
        "! it is 0.4 s long: record it again",
        "last error: the arm ran into something",
        "7: the disk cannot keep up",
        "0.30 GB free: make room",
    ):
        assert words in shown, words


@pytest.mark.parametrize("phase", get_args(Phase))
def test_every_phase_and_key_has_words_also_in_a_narrow_window(phase: Phase) -> None:
    assert phase in TITLES
    shown = text_of(View(phase=phase, keys=get_args(Key)), width=40)
    assert TITLES[phase][0] in shown
    assert max(len(line) for line in shown.splitlines()) <= 40


def test_labels_are_those_of_the_keyboard() -> None:
    pressed = {key: [name for name, k in KEYS.items() if k == key] for key in KEYS.values()}
    for key, (label, _) in LABELS.items():
        if key != "stop":
            assert label in pressed[key]


def test_driving_without_a_record_does_not_say_recording() -> None:
    shown = text_of(View(phase="running", recording=False, note="nobody holds the device"))
    assert "DRIVING" in shown
    assert "RECORDING" not in shown
    assert "saved" not in shown
    assert "the arm holds. nobody holds the device" in shown


def test_without_a_terminal_what_changes_is_a_line() -> None:
    said: list[str] = []
    lines = Lines(said.append)
    for step in range(3):
        lines.show(View(phase="running", step=step))
    lines.show(View(phase="review", message="Keep?", warnings=("too short",), error="late"))
    lines.show(View(phase="ready", message="Saved.", error="late"))
    assert said == ["recording", "keep it?: Keep?", "  ! too short", "  error: late",
                    "ready: Saved."]  # fmt: skip


def test_what_slows_the_arm_is_seen_while_it_does() -> None:
    bent = "slowed: near a singularity (wrist 2 at {} deg)"
    shown = text_of(View(phase="running", engaged=True, slowed=bent.format(4)))
    assert "! slowed: near a singularity (wrist 2 at 4 deg)" in shown
    assert "slowed" not in text_of(View(phase="running", engaged=True))
    said: list[str] = []
    lines = Lines(said.append)
    for slowed in ("", bent.format(6), bent.format(4), "", bent.format(5)):
        lines.show(View(phase="running", slowed=slowed))
    # Once each time: how far the joint is bent changes all the while.
    assert said == ["recording", f"  ! {bent.format(6)}", f"  ! {bent.format(5)}"]


def test_a_camera_without_pictures_is_seen_at_once() -> None:
    good = CameraState("top", 0.03)
    assert "every picture came" in text_of(View("running", cameras=(good,)))
    assert "cameras" not in text_of(View("running"))
    gone, late = CameraState("wrist", None, old=True), CameraState("wrist", 3.4, old=True)
    assert "wrist: no picture" in text_of(View("ready", cameras=(good, gone)))
    assert "wrist: newest picture is 3 s old" in text_of(View("ready", cameras=(good, late)))
    thin = CameraState("top", 0.03, missed=12)
    assert "top: 12 did not come; wrist: no picture" in text_of(View("ready", cameras=(thin, gone)))
    said: list[str] = []
    lines = Lines(said.append)
    # Once each time, and not how old it is now.
    for cameras in ((good, gone), (good, late), (good, good), (good, late)):
        lines.show(View("ready", cameras=cameras))
    assert said == ["  ! wrist: no picture", "ready", "  ! wrist: newest picture is 3 s old"]


def test_a_path_with_brackets_and_an_error_with_codes_are_shown_as_they_are() -> None:
    console = Console(record=True, width=80, file=io.StringIO(), force_terminal=False)
    view = View(phase="stopped", error="no \x1b[2Jscene")
    console.print(screen_of(view, "collect runs/a[/b]"))
    shown = console.export_text(styles=False)
    assert "collect runs/a[/b]" in shown
    assert "\x1b" not in shown


def test_the_bell_rings_where_the_person_is_needed() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=80, height=24)
    screen = FullScreen("collect", console)
    screen.explain("arrow keys move\n")
    screen.start()
    try:
        for phase in ("ready", "running", "running"):
            screen.show(View(phase=phase))
        assert "\a" not in out.getvalue()
        screen.show(View(phase="review"))
        screen.show(View(phase="review"))
        wait_until(lambda: "\a" in out.getvalue())
        screen.show(View(phase="review"))
        assert out.getvalue().count("\a") == 1
        wait_until(lambda: "KEEP IT?" in out.getvalue() and "arrow keys move" in out.getvalue())
    finally:
        screen.stop()
        screen.stop()
    # The other screen was taken, and given back.
    assert out.getvalue().index("\x1b[?1049h") < out.getvalue().rindex("\x1b[?1049l")


def test_the_attempt_that_is_over_is_seen_in_small_and_fits() -> None:
    dark, light = np.zeros((8, 12, 3), np.uint8), np.full((8, 12, 3), 255, np.uint8)
    rising, still = tuple(0.1 * k for k in range(17)), (0.08,) * 18
    curves = [Curve(f"joint {k}", (*rising, math.nan)) for k in range(1, 8)]
    look = Look((*curves, Curve("fingers", still)), (("top", (dark,) * 4 + (light,)),))
    keys: tuple[Key, ...] = ("keep", "discard", "redo", "quit")
    shown = text_of(View(phase="review", message="Solved!", look=look, keys=keys))
    for words in ("joint 7", "▁▁▂▂▃", "▇██", "0.08, still", "top, from start"):
        assert words in shown, words
    rows = shown.splitlines()
    # Nothing is wrapped: a row per curve, four of the strip.
    assert sum("0.00 to 1.60" in row for row in rows) == 7
    assert sum("▀" * 12 in row for row in rows) == 4
    # A terminal of 24 rows shows all of it.
    assert len(rows) <= 24


def test_while_things_are_placed_the_start_is_seen_in_small_instead_of_the_last_attempt() -> None:
    picture = np.zeros((36, 48, 3), np.uint8)
    look = Look((), (("top", (picture[:8, :12],) * 5),))
    view = View(phase="placing", message="place the cube", look=look, start=("top", picture))
    rows = text_of(view).splitlines()
    assert sum("▀" * 48 in row for row in rows) == 18
    assert any("in red where things belong" in row for row in rows)
    assert not any("from start to end" in row for row in rows)
