"""A person records an arm's episode: keys of a terminal in, a demonstration out."""

import os
import re
import sys
import termios

import pytest

from robolearn.data.store.store import EpisodeStore
from robolearn.operations.collect import CollectConfig, CollectListener, collect
from robolearn.operations.stores.collect_options import CollectOptions
from tests.hardware.teleop.terminals import EmulatedTerminal


def test_keys_drive_an_arm_that_is_commanded_by_its_tool(tmp_path, monkeypatch):
    with EmulatedTerminal(kitty=False) as terminal:
        stdin = os.fdopen(os.dup(terminal.slave))
        monkeypatch.setattr(sys, "stdin", stdin)
        seen, asked, warned = [], [], []

        def begin(*_):
            """A question may be answered as everywhere: the terminal is not taken yet."""
            asked.append(termios.tcgetattr(terminal.slave)[3] & termios.ICANON)

        def look(text):
            """Start, close the gripper and go forward by four steps, keep."""
            phase, moves = text[4:11].strip(), len(seen)
            if phase == "ready" and not seen:
                terminal.press("space")
            elif phase == "running":
                seen.append(text)
                if moves == 3:
                    terminal.press("w", "g", "w", "w", "w")
                if moves == 8:
                    terminal.press("enter")
            elif phase == "review":
                # Half a second teaches nothing, which is said before it is kept.
                warned.append(text)
                terminal.press("enter")

        found = collect(
            CollectConfig("pick_place"),
            tmp_path / "store",
            CollectOptions(agent="keyboard", episodes=1),
            listener=CollectListener(on_begin=begin, on_view=look),
        )
        stdin.close()
    # Who sees no picture drives by numbers.
    assert re.search(r"mm: tool 0 0 250  cube -?\d+ -?\d+ \d+ -?\d+ deg  goal", seen[0])
    assert len(warned) == 1
    assert all(asked)
    assert len(asked) == 1
    assert found.agent == "keyboard"
    episode = EpisodeStore.open(tmp_path / "store").read(found.saved[0])
    assert episode.meta.kind == "demonstration"
    assert episode.meta.provenance["config"]["mapping"]["translation_m_s"] == 0.25
    assert set(episode.source) == {"human:keyboard"}
    tool = episode.action["tool/xyz_yaw"]
    assert tool[-1, 0] == pytest.approx(tool[0, 0] + 0.02)
    assert tool[-1, 1:] == pytest.approx(tool[0, 1:], abs=1e-9)
    assert episode.action["gripper/width"][[0, -1], 0].tolist() == [0.08, 0.0]
