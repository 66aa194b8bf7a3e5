"""``robolearn trial`` of served policies on two fake cells, by its commands: pairs that somebody
compares, sessions that take turns, and what is edited, cut or taken away between them.
"""

from __future__ import annotations

import dataclasses
import json
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import cv2
import pytest
import yaml

from eval.blinded.interim import Interim
from eval.blinded.votes import FILE_NAME as VOTES
from eval.trials.table import read_trials
from hardware.emulators.tracker import TrackerPacket, encode_packet
from robolearn.cli.deploy import terminal
from robolearn.cli.main import main
from robolearn.data.store.store import EpisodeStore
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.operations.cell import opened
from robolearn.operations.trial import on_cell
from tests.hardware.lab import CONFIG, HOME, address
from tests.mocks import WalkPolicy
from tests.robolearn.operations.trial.toy import Person, forget_count

TOKEN = "a-token-for-tests-only"
CELLS = ("left", "right")
BLOCK = (0.3, 0.2, 0.5)
# Small, as all of these pictures are made for a test alone.
SIZE = (64, 48)
PORT = 30121
# Nothing here is about lateness: a busy machine must not stop the arm.
PATIENT = {
    "late_s": 2.0,
    "heartbeat_s": 2.0,
    "frozen_s": 5.0,
    "state_late_s": 1.0,
    "state_stale_s": 2.0,
    "goto_speed": 1.5,
    "goto_acceleration": 6.0,
}


class Judge(Person):
    """Prefers the first trial of a pair, and may do something when a trial is announced."""

    def __init__(self, on_trial: Callable[[], None] | None = None) -> None:
        super().__init__(0)
        self.on_trial, self.finished = on_trial, 0

    places = False

    def told(self, what: str, text: str) -> None:
        super().told(what, text)
        if what == "trial" and self.on_trial is not None:
            self.on_trial()

    def ended(self, trial) -> None:
        super().ended(trial)
        self.finished += 1


class Block:
    """A tracking system that sees one block, which lies still, for every cell."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            seq = 0
            while not self._over.wait(0.02):
                seq += 1
                data = encode_packet(TrackerPacket(seq, time.monotonic_ns(), "block", BLOCK))
                out.sendto(data, (address(33), PORT))

    def close(self) -> None:
        self._over.set()
        self._thread.join()


def write_cell(folder: Path, name: str, camera: bool = True) -> None:
    robot = yaml.safe_load(CONFIG.read_text())["robot"]
    robot |= {"name": name, "supervisor": PATIENT, "cameras": []}
    robot["driver"] = {"kind": "fake", "joint_position": list(HOME), "watchdog_s": 5.0}
    where = {"address": address(33), "port": PORT, "max_age_s": 2.0}
    robot["trackers"]["block/pose"]["udp"] |= where
    robot["trackers"]["block/pose"]["standard_error"] = {"position_m": 0.002, "rotation_rad": 0.01}
    if camera:
        stream = {"name": "top", "width": SIZE[0], "height": SIZE[1], "rate_hz": 20.0}
        stream |= {"max_age_s": 2.0, "frozen_s": 30.0, "black_s": 10.0}
        robot["cameras"] = [{"driver": {"kind": "fake"}, "stream": stream}]
    (folder / f"{name}.yaml").write_text(yaml.safe_dump({"robot": robot}))


@pytest.fixture(scope="module")
def block() -> Generator[None]:
    seen = Block()
    yield
    seen.close()


@pytest.fixture
def served(tmp_path, monkeypatch, block) -> Generator[tuple[str, ...]]:
    """Two policies on servers, two cells, and a suite of two starts."""
    monkeypatch.setenv("ROBOLEARN_TOKEN", TOKEN)
    monkeypatch.setattr(opened, "take_real_time", lambda *_, **__: False)
    monkeypatch.chdir(tmp_path)
    for name in CELLS:
        write_cell(tmp_path, name)
    suite = yaml.safe_load((CONFIG.parents[1] / "eval" / "pusht.yaml").read_text())
    suite["conditions"] = [
        {**c, "poses": {**c["poses"], "block/pose": list(BLOCK)}} for c in suite["conditions"][:2]
    ]
    suite["subset"] = 2
    (tmp_path / "suite.yaml").write_text(yaml.safe_dump(suite))
    with ExitStack() as stack:
        urls: list[str] = []
        for name, step in (("gull", 0.001), ("tern", 0.002)):
            server = PolicyServer(WalkPolicy(step), ServeConfig(token=TOKEN), name, f"of-{name}")
            stack.callback(server.close)
            urls.append(server.url)
        yield tuple(urls)


@dataclasses.dataclass
class Commands:
    """The command line, with somebody at the terminal."""

    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *words: str, person: Judge | None = None) -> tuple[int, str]:
        someone = person or Judge()
        self.monkeypatch.setattr(terminal, "TerminalOperator", lambda **_: someone)
        code = main(list(words))
        said = self.capsys.readouterr()
        return code, said.out + said.err + "\n".join(someone.heard)


@pytest.fixture
def command(monkeypatch, capsys) -> Commands:
    return Commands(monkeypatch, capsys)


def plan(urls: tuple[str, ...], *more: str) -> tuple[str, ...]:
    words = ("trial", "--out", "out", "--robot", "left.yaml", "--cells", "right.yaml", "--yes")
    words += ("--policies", *urls, "--suite", "suite.yaml", "--max-steps", "2", "--lead-ticks", "1")
    return (*words, "--operator", "me", *more)


GO_ON = ("trial", "--out", "out", "--yes", "--robot")


def test_pairs_of_served_policies_on_two_cells_are_run_compared_and_ranked(served, command):
    begin = ("--ab", "--at-most", "1", "--overlay", "top=pusht_ur5e")
    code, said = command(*plan(served, *begin))
    assert code == 0, said
    assert "2 conditions: not every pair comes" in said
    assert "1 left on left: 'robolearn trial --out out --robot " in said
    assert "2 left on right: 'robolearn trial --out out --robot " in said
    assert "start.png shows where things belong" in said
    picture = cv2.imread("out/start.png")
    assert picture.shape == (SIZE[1], SIZE[0], 3)
    # Outlines of what is wanted are red, over a fake camera's grey.
    assert (picture == (40, 40, 255)).all(axis=2).any()

    code, said = command("trial", "--out", "out", "--yes")
    assert code == 2
    assert "say which one" in said
    assert "left.yaml'" in said
    assert "right.yaml'" in said
    edited_between_sessions(command)

    # While one cell is at work nobody runs the plan's trials on the other one.
    beside: list[int] = []

    def meanwhile() -> None:
        beside.append(main([*GO_ON, "right.yaml"]))

    code, said = command(*GO_ON, "left.yaml", person=Judge(meanwhile))
    assert code == 0, said
    assert "not every pair comes" not in said
    assert beside == [2]
    assert "the trials in 'out'" in said
    assert "2 left on right" in said
    assert "on left" not in said
    code, said = command(*GO_ON, "right.yaml")
    assert code == 0, said
    assert "all done" in said

    rows = read_trials(Path("out/blind"))
    assert sorted(r.env for r in rows) == ["left", "left", "right", "right"]
    assert {(r.kind, r.status, r.steps) for r in rows} == {("lab", "finished", 2)}
    # How exact the start was measured is what each cell says of its tracker.
    assert all(r.standard_errors == {"block/pose": (0.002, 0.01)} for r in rows)
    store = EpisodeStore.open(Path("out/store"))
    assert [store.meta(r.episode).provenance["trial"]["slot"] for r in rows] == [
        r.slot for r in rows
    ]
    assert not any(name in json.dumps([str(r) for r in rows]) for name in ("gull", "tern"))
    preferences_are_cut(command)


def edited_between_sessions(command: Commands) -> None:
    """A cell that is edited, moved, or whose kept description is gone."""
    right, kept = Path("right.yaml"), Path("out/kept/right.json")
    before, known = right.read_text(), kept.read_text()
    right.write_text(before.replace("lift_m: 0.1", "lift_m: 0.2"))
    code, said = command(*GO_ON, "right.yaml")
    assert (code, "lift_m: now 0.2" in said) == (2, True), said
    for broken in (None, "[]", "{"):
        kept.unlink() if broken is None else kept.write_text(broken)
        code, said = command(*GO_ON, "right.yaml")
        assert code == 2, said
        assert "'right.json' would say, which cannot be read" in said
    kept.write_text(known)
    right.unlink()
    code, said = command(*GO_ON, "right.yaml")
    assert (code, "no config file 'right.yaml'" in said) == (2, True), said
    right.write_text(before)
    write_cell(Path(), "third")
    for words, what in (
        ([*GO_ON, "third.yaml"], "is the cell 'third'; the plan has left ('"),
        ([*GO_ON, "left.yaml", "--cells", "third.yaml"], "cells: now also third, planned left, r"),
        ([*GO_ON, "left.yaml", "--overlay", "side=pusht_ur5e"], "overlay: expected CAMERA=SCENE"),
        ([*GO_ON, "left.yaml", "--overlay", "top=pick_place_ur5e"], "does not have the suite's st"),
    ):
        code, said = command(*words)
        assert (code, what in said) == (2, True), said


def preferences_are_cut(command: Commands) -> None:
    """Which is missed; in the middle of a line that nobody counted, so that the pair is asked about
    again; and after unblinding.
    """
    votes = Path("out") / VOTES
    whole = votes.read_bytes()
    assert whole.count(b"\n") == 2
    votes.write_bytes(whole[:-20])
    for words in (
        ("trial", "report", "out"),
        ("trial", "void", "1", "--out", "out", "--reason", "x"),
    ):
        code, said = command(*words)
        assert (code, "has 1 preferences, 2 were cast" in said) == (2, True), said
    # As if its process had died over it.
    forget_count(Path("out"))
    code, said = command("compare", "--preferences", "out")
    assert (code, "are blinded" in said) == (2, True), said
    code, said = command("trial", "report", "out", "--unblind")
    assert (code, "1 of 2 pairs are not compared; go on" in said) == (2, True), said
    # The pair belongs to the cell where it was tried, and nobody else is asked.
    cells = [json.loads(line)["block"] for line in whole.splitlines()]
    cut = {r.slot: r.env for r in read_trials(Path("out/blind"))}
    where = list(cut.values())[-1]
    other = next(c for c in CELLS if c != where)
    assert len(cells) == 2
    code, said = command(*GO_ON, f"{other}.yaml")
    assert f"1 pair(s) to compare on {where}: 'robolearn trial --out out --robot" in said, said
    person = Judge()
    code, said = command(*GO_ON, f"{where}.yaml", person=person)
    assert (code, "all done" in said, len(person.asked)) == (0, True, 1), said
    code, said = command("trial", "report", "out", "--unblind")
    assert code == 0, said
    code, said = command("compare", "--preferences", "out", "--json")
    ranking = json.loads(said)
    assert {p["policy"].partition("+")[0] for p in ranking["policies"]} == {"gull", "tern"}
    assert ranking["comparisons"] == 2
    assert sum(p["won"] for p in ranking["policies"]) == 2
    for cut_at in (-20, whole.find(b"\n") + 1, 0):
        votes.write_bytes(whole[:cut_at])
        code, said = command("compare", "--preferences", "out")
        assert (code, "preferences, 2 were cast" in said) == (2, True), said
    votes.write_bytes(b"\x00\xff" + whole)
    code, said = command("compare", "--preferences", "out")
    assert (code, "line 1: not a vote" in said) == (2, True), said


def test_a_first_call_that_is_refused_leaves_nothing_behind(served, command):
    """It locked the plan, whose starts, policies and order could not be chosen again."""

    def refused(said: str, *more: str) -> None:
        code, words = command(*plan(served, *more))
        assert (code != 0, said in words) == (True, True), words
        assert not Path("out").exists()

    refused("does not have the suite's starts", "--overlay", "top=pick_place_ur5e")
    refused("overlay: expected CAMERA=SCENE", "--overlay", "side=pusht_ur5e")
    refused("lead", "--lead-ticks", "400")
    other = WalkPolicy(0.003)
    space = dataclasses.replace(other.spec.task_space, rate_hz=7.0)
    other.spec = dataclasses.replace(other.spec, task_space=space)
    with closing(PolicyServer(other, ServeConfig(token=TOKEN), "auk", "of-auk")) as server:
        refused("wanted 7, got 10", "--policies", served[0], server.url)
    busy: list[int] = []

    def meanwhile() -> None:
        busy.append(main([*plan(served), "--out", "beside"]))

    code, said = command(*plan(served, "--at-most", "1"), person=Judge(meanwhile))
    assert (code, busy, "the cell 'left'" in said) == (0, [2], True), said
    assert not Path("beside").exists()


def test_trials_whose_plan_is_gone_are_not_planned_anew(served, command):
    """Another key took the place of theirs, and the new plan explained none of them."""
    code, said = command(*plan(served, "--at-most", "1"))
    assert code == 0, said
    key, locked = Path("out/key.sealed").read_bytes(), Path("out/plan.yaml").read_bytes()
    Path("out/plan.yaml").unlink()
    code, said = command(*plan(served))
    assert (code, "not the plan (plan.yaml) under which they were tried" in said) == (2, True), said
    assert Path("out/key.sealed").read_bytes() == key
    Path("out/plan.yaml").write_bytes(locked)
    code, said = command(*GO_ON, "left.yaml", "--at-most", "1")
    assert (code, "goes on" in said) == (0, True), said


def test_a_session_that_is_decided_connects_nothing_and_says_so(served, command, monkeypatch):
    """It went home with the arm, and told of trials left for which to go on."""
    sequential = ("--rule", "sequential", "--by", "score", "--at-most", "1")
    code, said = command(*plan(served, *sequential))
    assert (code, "1 left on left" in said) == (0, True), said
    begun = read_trials(Path("out/blind"))

    def no_cell(*_):
        raise AssertionError("an arm was connected")

    monkeypatch.setattr(on_cell, "open_cell", no_cell)
    # Two starts decide nothing; enough of them do (tests/eval/blinded).
    monkeypatch.setattr(on_cell, "interim", lambda *_: Interim(("amber is better",), True))
    person = Judge()
    person.consent = no_cell
    code, said = command(*GO_ON, "left.yaml", person=person)
    assert code == 0, said
    assert "amber is better" in said
    assert "every pair is decided; the 3 planned trials that are left are not tried: 'robo" in said
    assert "goes on'" not in said
    assert read_trials(Path("out/blind")) == begun
    code, said = command(*GO_ON, "left.yaml", "--json", person=person)
    told = json.loads(said.partition("\n}")[0] + "}")
    assert (told["decided"], told["left"], told["session"]) == (True, 3, 0)


def test_a_cell_on_which_nothing_is_left_is_not_connected(served, command, monkeypatch):
    code, said = command(*plan(served))
    assert (code, "2 left on right" in said) == (0, True), said
    monkeypatch.setattr(on_cell, "open_cell", None)
    code, said = command(*GO_ON, "left.yaml")
    assert (code, "2 left on right" in said) == (0, True), said


def test_a_camera_that_falls_silent_costs_its_picture_and_no_trial(served, command, monkeypatch):
    """What was shown before a trial was another start's, or the session ended with a KeyError."""
    begin = ("--at-most", "1", "--overlay", "top=pusht_ur5e")
    code, said = command(*plan(served, *begin))
    assert (code, "shows where things belong" in said) == (0, True), said
    look = on_cell.RealEnv.look

    def blind(self: Any):
        seen = look(self)
        samples = {n: s for n, s in seen.samples.items() if not n.endswith("/image")}
        return dataclasses.replace(seen, samples=samples)

    with monkeypatch.context() as patched:
        patched.setattr(on_cell.RealEnv, "look", blind)
        code, said = command(*GO_ON, "left.yaml", *begin)
    assert code == 0, said
    assert "no picture shows where things belong: the camera 'top' has sent no picture" in said
    assert not Path("out/start.png").exists()
    # Nor does a place that nothing can be written to.
    Path("out/start.png").mkdir()
    code, said = command(*GO_ON, "right.yaml", *begin)
    assert code == 0, said
    assert "no picture shows where things belong: [Errno 21] Is a directory" in said
    assert len(read_trials(Path("out/blind"))) == 3
