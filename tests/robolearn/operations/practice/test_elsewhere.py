"""Learning on another machine: the same as here, over a channel that breaks and may be hostile."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from robolearn.cli import serve
from robolearn.cli.main import main
from robolearn.config import load_yaml
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.manifest import STORE_FILE, manifest_bytes
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    InferenceError,
    PracticeError,
    StoreCorruptError,
    StoreError,
    TrainingError,
    UnsafePathError,
)
from robolearn.files import replacing
from robolearn.inference.channel_client import Channel
from robolearn.inference.channel_server import ServeConfig
from robolearn.inference.client import RemoteInference
from robolearn.inference.server import PolicyServer
from robolearn.operations.practice.beside import LearningBeside
from robolearn.operations.practice.elsewhere import link, server
from robolearn.operations.practice.elsewhere.link import LearnerAddress, LearnerElsewhere
from robolearn.operations.practice.elsewhere.messages import (
    confined_run_file,
    raised,
    run_files,
    said,
)
from robolearn.operations.practice.elsewhere.server import LearnerServer, Teaching
from robolearn.operations.practice.finetune import finetune
from robolearn.operations.practice.frame import LearnerBuilder, SecondStore
from robolearn.operations.practice.ledger import Ledger
from robolearn.operations.practice.listener import PracticeListener
from robolearn.operations.practice.on_cell import CellPractice, finetune_on_cell
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.budget import UNLIMITED, TimeLeft
from robolearn.training.learner import Taken
from robolearn.training.run_directory import (
    WEIGHTS,
    holding,
    load_run,
    policy_hash,
    require_unedited,
    seal_run,
)
from robolearn.training.versions import version_file, versions
from tests.episodes import small_episode
from tests.hardware.lab import cell_file
from tests.mocks import WalkPolicy
from tests.robolearn.operations.practice.test_beside import flown
from tests.robolearn.operations.practice.test_finetune import WORLD, small
from tests.robolearn.operations.practice.test_on_cell import Told as Listening
from tests.robolearn.operations.practice.test_on_cell import small as on_cell
from tests.two_runs import two_runs
from tests.waiting import wait_until

TOKEN = "a-token-for-tests-only"
# Longest wait for a learner that has to start, or to learn, on a busy machine; how often to look.
BUSY = (400.0, 0.1)


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    return two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), 12) / "one"


class Cable:
    """Carries bytes between two machines, until it is pulled; :meth:`mend` puts it back."""

    def __init__(self, port: int) -> None:
        self.there, self._whole = port, threading.Event()
        self._whole.set()
        self._open: set[socket.socket] = set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"ws://127.0.0.1:{self._listening.getsockname()[1]}"
        self.refused = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                here, _ = self._listening.accept()
            except OSError:
                return
            if not self._whole.is_set():
                self.refused += 1
                here.close()
                continue
            there = socket.create_connection(("127.0.0.1", self.there))
            self._open |= {here, there}
            for one, other in ((here, there), (there, here)):
                threading.Thread(target=self._carry, args=(one, other), daemon=True).start()

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def pull(self) -> None:
        self._whole.clear()
        for end in list(self._open):
            with contextlib.suppress(OSError):  # one that its other side closed
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        self._open.clear()

    def mend(self) -> None:
        self._whole.set()

    def close(self) -> None:
        self.pull()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def teaching(parent: Path, folder: Path, second: SecondStore | None = None) -> Teaching:
    return Teaching(parent, folder / "learned", folder / "copy", second)


def serving(parent: Path, folder: Path, second: SecondStore | None = None) -> LearnerServer:
    return LearnerServer(teaching(parent, folder, second), ServeConfig(token=TOKEN))


def test_what_is_learned_elsewhere_is_what_would_be_learned_here(
    parent: Path, tmp_path: Path
) -> None:
    experiment = small(parent, practice__max_episodes=8)
    here = finetune(experiment, parent, WORLD, tmp_path / "store", tmp_path / "out")
    there = tmp_path / "there"
    learner = serving(parent, there)
    cable, pulled = Cable(int(learner.url.rpartition(":")[2])), []

    def pull(report: Any) -> None:
        """In the middle of the practice, for as long as it is noticed."""
        if report.version is not None and not pulled:
            pulled.append(report.episodes)
            cable.pull()
            threading.Timer(0.3, cable.mend).start()

    address = LearnerAddress(cable.url, TOKEN)
    store, out = tmp_path / "far", tmp_path / "away"
    found = finetune(
        experiment,
        parent,
        WORLD,
        store,
        out,
        elsewhere=address,
        listener=PracticeListener(on_round=pull),
    )
    learner.close()
    cable.close()
    assert pulled
    assert (found.episodes, found.updates) == (here.episodes, here.updates)
    assert found.cpu_seconds > 0
    mine, theirs = load_run(here.run_dir), load_run(out)
    assert mine.weights.keys() == theirs.weights.keys()
    for name, value in mine.weights.items():
        np.testing.assert_array_equal(value.numpy(), theirs.weights[name].numpy())
    assert theirs.policy_hash == policy_hash(out) == policy_hash(there / "learned")
    assert theirs.provenance["complete"]
    assert not (out / "state").exists()
    # Nothing is lost, and nothing is there twice.
    assert EpisodeStore.open(there / "copy").log() == EpisodeStore.open(store).log()
    assert check_store(there / "copy", deep=True).findings == ()
    assert [f.id for f in Ledger.of(out).flights] == list(EpisodeStore.open(store).ids())
    # Nor does the learner of this machine go on with what another one began.
    with pytest.raises(CheckpointError, match="elsewhere: True before"):
        finetune(experiment, parent, WORLD, store, out, resume=True)


def test_who_may_not_learn_together_is_told_before_anything_is_written(
    parent: Path, tmp_path: Path
) -> None:
    learner = serving(parent, tmp_path, SecondStore(tmp_path / "shown"))
    policies = PolicyServer(WalkPolicy(), ServeConfig(token=TOKEN), "walk", "hash")
    practise = functools.partial(
        finetune, small(parent), parent, WORLD, tmp_path / "s", tmp_path / "o"
    )
    wrong = {
        "the token is wrong": (InferenceError, LearnerAddress(learner.url, "x" * 16)),
        "is 'robolearn serve' running": (InferenceError, LearnerAddress("ws://127.0.0.1:9", TOKEN)),
        "does not learn": (ConfigError, LearnerAddress(policies.url, TOKEN)),
        "ws://HOST:PORT": (ConfigError, LearnerAddress("nonsense", TOKEN)),
        # It has a second store, and no share of it is asked for.
        "go together": (ConfigError, LearnerAddress(learner.url, TOKEN)),
    }
    for text, (kind, address) in wrong.items():
        with pytest.raises(kind, match=text):
            practise(elsewhere=address)
    with pytest.raises(ConfigError, match="by the machine that learns"):
        practise(second=SecondStore(tmp_path / "x"), elsewhere=LearnerAddress(learner.url, TOKEN))
    with pytest.raises(ConfigError, match="over another policy"):
        LearnerAddress(learner.url, TOKEN).look("another")
    with pytest.raises(InferenceError, match="no policy server"):
        RemoteInference(learner.url, TOKEN)
    learner.close()
    policies.close()
    assert not any((tmp_path / name).exists() for name in ("s", "o", "learned", "copy"))


class Told:
    """In the learner's place, in this process: what it was told, and what it answers."""

    def __init__(self, builder: LearnerBuilder, hurry: Any) -> None:
        self.builder, self.hurry = builder, hurry
        self.step, self.cpu_seconds = 0, 0.0
        self.calls = list[tuple[str, tuple[Any, ...]]]()
        self.go_on = threading.Event()
        self.go_on.set()
        self.version = 0
        self.closed = False
        Told.made.append(self)

    made: ClassVar[list[Told]] = []

    def __getattr__(self, name: str) -> Any:
        return functools.partial(self._call, name)

    def _call(self, name: str, *given: Any) -> Any:
        self.calls.append((name, given))
        assert self.go_on.wait(30)
        if name == "update":
            self.step += given[0]
            return {"loss": 0.5, "odd": float("nan")}
        if name == "take_in":
            return Taken(1, 2, 3, 4)
        if name == "hand_over":
            self.version += 1
            out = self.builder.out
            shutil.copytree(self.builder.parent, out, dirs_exist_ok=True)
            version_file(out, 1).parent.mkdir(exist_ok=True)
            version_file(out, self.version).write_bytes(bytes([self.version]) * 100)
            return self.version
        if name == "checkpoint":
            raise TrainingError("not finite")
        return None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pair(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[LearnerElsewhere, LearnerServer, Cable]]:
    """What builds the learner, the server of a :class:`Told`, and the cable between them."""
    monkeypatch.setattr(server, "LearnerProcess", Told)
    monkeypatch.setattr(link, "load_version", lambda out, version: None)
    monkeypatch.setattr(link, "AGAIN_S", 0.02)
    monkeypatch.setattr(server, "WAIT_S", 0.05)
    Told.made.clear()
    learner = serving(parent, tmp_path / "there")
    cable = Cable(int(learner.url.rpartition(":")[2]))
    EpisodeStore.create(tmp_path / "store")
    builder = LearnerBuilder(
        small(parent), parent, tmp_path / "store", tmp_path / "out", None, 1, corrected=False
    )
    (tmp_path / "out").mkdir()
    yield (
        LearnerElsewhere(
            LearnerAddress(cable.url, TOKEN, patience_s=20.0), builder, learner.parent, "practice-1"
        ),
        learner,
        cable,
    )
    cable.close()
    learner.close()


Pair = tuple[LearnerElsewhere, LearnerServer, Cable]


def record(store: Path, seed: int) -> str:
    with EpisodeStore.open(store).writer() as writer:
        return writer.append(small_episode(seed, 20, image=True))


def test_an_arm_goes_on_with_the_version_that_it_has_while_the_cable_is_pulled(pair: Pair) -> None:
    elsewhere, _, cable = pair
    store, out = elsewhere.here.store, elsewhere.here.out
    copy = store.parent / "there" / "copy"
    record(store, 0)
    remote = elsewhere()
    assert remote.hand_over() == 1

    class Session:
        def __init__(self) -> None:
            self.learned = list[list[int]]()

        def learn(self, flown: Any) -> None:
            remote.take_in()
            remote.update(3)
            remote.hand_over()
            self.learned.append([f.number for f in flown])

    session = Session()
    learning = LearningBeside(session, elsewhere.hurry)
    cable.pull()
    for number in range(3):
        record(store, 1 + number)
        # It never waits, whatever becomes of the network.
        learning.add([flown(number)])
        assert versions(out) == (1,)
    wait_until(lambda: cable.refused > 1, what="tries to reach it")
    assert session.learned == []
    assert len(EpisodeStore.open(copy).ids()) == 1
    cable.mend()
    learning.finish()
    assert sorted(n for batch in session.learned for n in batch) == [0, 1, 2]
    assert EpisodeStore.open(copy).log() == EpisodeStore.open(store).log()
    assert check_store(copy, deep=True).findings == ()
    assert max(versions(out)) == 1 + len(session.learned)
    told = [call for call, _ in Told.made[0].calls]
    # Each once, although some of them were asked for again.
    assert told.count("update") == told.count("take_in") == len(session.learned)


def test_what_ends_as_its_parent_holds_it_whatever_came_from_there_last(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, _, _ = pair
    record(elsewhere.here.store, 0)
    remote, out = elsewhere(), elsewhere.here.out
    remote.hand_over()
    assert not holding(out)
    there, held = Told.made[0].builder.out, list[tuple[str, bool]]()
    # Other limits, other weights.
    (there / "config.yaml").write_text((there / "config.yaml").read_text() + "more: 1\n")
    shutil.copyfile(there / "versions" / "000001.safetensors", there / WEIGHTS)
    seal_run(there)

    @contextlib.contextmanager
    def fetched(path: Path) -> Iterator[Path]:
        with replacing(path) as fresh:
            yield fresh
        held.append((path.name, bool(holding(out))))

    monkeypatch.setattr(link, "replacing", fetched)
    remote.finish(1, as_parent=True)
    assert {name for name, _ in held} == {"config.yaml", WEIGHTS}
    assert all(kept for _, kept in held)
    assert holding(out)
    assert load_yaml(out / "config.yaml")["more"] == 1
    require_unedited(out)


def test_what_was_told_before_the_cable_broke_is_not_done_twice(pair: Pair) -> None:
    elsewhere, _, cable = pair
    record(elsewhere.here.store, 0)
    remote, learner = elsewhere(), Told.made[0]
    learner.go_on.clear()
    found = list[Any]()
    thread = threading.Thread(target=lambda: found.append(remote.update(7)))
    thread.start()
    wait_until(lambda: learner.calls, what="the learner being told")
    cable.pull()
    cable.mend()
    learner.go_on.set()
    thread.join(30)
    assert found[0]["loss"] == 0.5
    assert np.isnan(found[0]["odd"])
    assert learner.calls == [("update", (7, UNLIMITED))]
    assert remote.step == 7
    # How much time is left goes with it, and what is over stays over.
    for left, there in ((TimeLeft(1.5), TimeLeft(1.5)), (TimeLeft(2.0, -3.0), TimeLeft(2.0, 0.0))):
        remote.update(1, left)
        assert learner.calls[-1] == ("update", (1, there))
    # An error of the learner is its own, not one of the network.
    with pytest.raises(TrainingError, match="not finite"):
        remote.checkpoint()


def test_annotations_and_removals_reach_the_copy(pair: Pair) -> None:
    elsewhere, _, _ = pair
    store = elsewhere.here.store
    record(store, 0)
    remote = elsewhere()
    second = record(store, 1)
    with EpisodeStore.open(store).writer() as writer:
        writer.annotate(Annotation((second,), "judge", success=True, reason="seen"))
        writer.remove(("ep_000000",), "me")
    assert remote.take_in() == Taken(1, 2, 3, 4)
    copy = EpisodeStore.open(store.parent / "there" / "copy")
    assert copy.log() == EpisodeStore.open(store).log()
    assert [i.success for i in copy.list()] == [True]


def test_a_learner_that_was_started_anew_ends_practice_and_resumes(
    pair: Pair, parent: Path, tmp_path: Path
) -> None:
    elsewhere, learner, cable = pair
    record(elsewhere.here.store, 0)
    remote = elsewhere()
    remote.hand_over()
    learner.close()
    anew = serving(parent, tmp_path / "there")
    cable.pull()
    cable.there = int(anew.url.rpartition(":")[2])
    cable.mend()
    with pytest.raises(PracticeError, match=r"started anew.* go on with resume"):
        remote.take_in()
    # A new call begins from what it kept; its run knows which numbers were used.
    again = elsewhere()
    Told.made[-1].version = 1
    assert again.hand_over() == 2
    # Another one, that lost them, is told from it: weights of two runs are never mixed.
    Told.made[-1].version = 0
    with pytest.raises(PracticeError, match="handed over version 1, and 2 is here"):
        again.hand_over()
    anew.close()


def test_patience_ends(pair: Pair) -> None:
    elsewhere, _, cable = pair
    record(elsewhere.here.store, 0)
    remote = elsewhere()
    elsewhere.address = dataclasses.replace(elsewhere.address, patience_s=0.05)
    cable.pull()
    with pytest.raises(PracticeError, match=r"could not be reached .* episodes are kept"):
        remote.take_in()
    cable.mend()
    assert remote.take_in().episodes == 1
    cable.pull()
    # Whoever stops does not wait.
    elsewhere.address = dataclasses.replace(elsewhere.address, patience_s=3600.0)
    elsewhere.hurry.set()
    with pytest.raises(PracticeError, match="could not be reached"):
        remote.take_in()


def told(update: Callable[[int], Any], count: int) -> None:
    """As a thread does that is followed by another one, or gets its answer just before."""
    with contextlib.suppress(PracticeError):
        update(count)


def test_who_asks_anew_hurries_what_nobody_waits_for(pair: Pair) -> None:
    elsewhere, _, _ = pair
    record(elsewhere.here.store, 0)
    first, learner = elsewhere(), Told.made[0]
    learner.go_on.clear()
    thread = threading.Thread(target=lambda: told(first.update, 9))
    thread.start()
    wait_until(lambda: learner.calls, what="the learner being told")
    freed = threading.Thread(
        target=lambda: (learner.hurry.wait(30), learner.go_on.set()), daemon=True
    )
    freed.start()
    second = elsewhere()
    assert learner.closed
    assert second.update(1)["loss"] == 0.5
    # The first one is told what came of it, or that somebody followed; not what the second asked.
    thread.join(30)
    assert not thread.is_alive()
    with pytest.raises(PracticeError, match="somebody else goes on with this practice"):
        first.update(9)
    assert second.update(2)["loss"] == 0.5
    assert Told.made[1].calls == [("update", (1, UNLIMITED)), ("update", (2, UNLIMITED))]


def begun(elsewhere: LearnerElsewhere, url: str) -> tuple[Channel, dict[str, Any]]:
    channel = Channel(url, TOKEN, 10.0, "learner")
    store = (elsewhere.here.store / STORE_FILE).read_bytes()
    meta = {"practice": "practice-1", "experiment": elsewhere.here.experiment.plain()}
    meta |= {"corrected": False, "parent": elsewhere.parent}
    assert raised(channel.ask(said("begin", meta, {"store": store}))).meta["lines"] == 1
    return channel, meta


def test_hostile_messages_change_nothing(pair: Pair, tmp_path: Path) -> None:
    elsewhere, learner, _ = pair
    store = EpisodeStore.open(elsewhere.here.store)
    name = record(store.path, 0)
    store = EpisodeStore.open(store.path)
    channel, meta = begun(elsewhere, learner.url)
    mine = {"practice": "practice-1"}
    manifest = store.manifest(name)
    data = (store.path / "manifests" / f"{name}.json").read_bytes()
    out_of_it = data.replace(b'"zarr.json"', b'"../../../evil"', 1)
    assert out_of_it != data
    huge = dataclasses.replace(manifest.files[0], size=2**50)
    larger = manifest_bytes(dataclasses.replace(manifest, files=(huge, *manifest.files[1:])))

    def ask(kind: str, more: dict[str, Any] | None = None, **files: bytes) -> Any:
        return raised(channel.ask(said(kind, mine | (more or {}), files)))

    with pytest.raises(StoreCorruptError, match=r"no '\.\.', nothing absolute"):
        ask("manifest", manifest=out_of_it)
    with pytest.raises(DataError, match="at most"):
        ask("manifest", manifest=larger)
    with pytest.raises(DataError, match="manifest did not come"):
        ask("files", {"draft": "x"}, **{"zarr.json": b""})
    line = store.log()[1].line()
    with pytest.raises(DataError, match="manifest did not come"):
        ask("line", line=line, record=data)
    draft = {"draft": ask("manifest", manifest=data).meta["draft"]}
    for path in ("../evil", "zarr.json", "/tmp/evil"):
        with pytest.raises(DataError, match="no file that is to come"):
            ask("files", draft, **{path: b"1"})
    size = manifest.by_path()["zarr.json"].size
    with pytest.raises(DataError, match="not what the manifest says"):
        ask("files", draft, **{"zarr.json": bytes(size)})
    draft = {"draft": ask("manifest", manifest=data).meta["draft"]}
    with pytest.raises(DataError, match="not all of its files"):
        ask("line", line=line, record=data)
    with pytest.raises(DataError, match="no file of the run"):
        ask("fetch", {"path": "../../../etc/passwd", "at": 0})
    for told in ("close", "__init__", "builder"):
        with pytest.raises(DataError, match="nobody can be told"):
            ask("do", {"caller": "x", "number": 1, "name": told, "given": [], "hurry": False})
    with pytest.raises(DataError, match="should be of type int"):
        ask("do", {"caller": "x", "number": "1", "name": "build", "given": [], "hurry": False})
    with pytest.raises(DataError, match="nothing is known"):
        ask("nonsense")
    with pytest.raises(DataError, match="did not begin here"):
        ask("listing", {"practice": "another"})
    for change in ({"parent": "x"}, {"practice": "practice-2"}, {"corrected": True}):
        with pytest.raises(ConfigError, match=r"another p|the machine that learns"):
            raised(channel.ask(said("begin", meta | change, {"store": b"x"})))
    copy = tmp_path / "there" / "copy"
    assert EpisodeStore.open(copy).ids() == ()
    assert not (tmp_path / "there" / "learned").exists()
    assert check_store(copy, deep=True).findings == ()
    channel.close()
    # Nonsense alone, again and again, and nobody is listened to any more.
    channel = Channel(learner.url, TOKEN, 10.0, "learner")
    with pytest.raises(InferenceError, match="broke"):
        _nonsense(channel)
    channel.close()


def _nonsense(channel: Channel) -> None:
    for _ in range(40):
        channel.ask(b"nonsense")


def test_a_copy_of_another_store_is_not_written_to(pair: Pair, parent: Path) -> None:
    elsewhere, _, _ = pair
    other = elsewhere.here.store.parent / "other"
    EpisodeStore.create(other)
    EpisodeStore.create(elsewhere.here.store.parent / "there" / "copy")
    record(elsewhere.here.store, 0)
    with pytest.raises(StoreError, match="copy of another one"):
        elsewhere()
    del parent


def test_the_names_of_files_that_come_back_are_a_runs(tmp_path: Path) -> None:
    for name in (
        "weights.safetensors",
        "parent/config.yaml",
        "parts/0/parent/digests.json",
        "versions/000003.safetensors",
    ):
        assert confined_run_file(name, tmp_path) == name
    for name in (
        "state/x",
        "versions/../../x",
        "versions/a.safetensors",
        "versions/²³.safetensors",
        "versions/12",
        "practice.jsonl",
        "parent/evil.py",
        "elsewhere/config.yaml",
        "",
        7,
    ):
        with pytest.raises((DataError, UnsafePathError)):
            confined_run_file(name, tmp_path)
    (tmp_path / "parent").symlink_to("/tmp")
    with pytest.raises(UnsafePathError):
        confined_run_file("parent/config.yaml", tmp_path)
    assert run_files(tmp_path / "none") == {}


def test_a_file_that_is_not_what_was_said_is_not_kept(
    pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, _, _ = pair
    record(elsewhere.here.store, 0)
    remote, asked = elsewhere(), list[Path]()

    def spoilt(out: Path) -> dict[str, Path]:
        """What was listed at first; then other files of the same size."""
        asked.append(out)
        if len(asked) == 1:
            return run_files(out)
        for name, path in run_files(out).items():
            other = tmp_path / "spoilt" / name
            other.parent.mkdir(parents=True, exist_ok=True)
            other.write_bytes(bytes(255 - byte for byte in path.read_bytes()))
        return {name: tmp_path / "spoilt" / name for name in run_files(out)}

    monkeypatch.setattr(server, "run_files", spoilt)
    with pytest.raises(DataError, match="not what it was said to be"):
        remote.hand_over()
    assert versions(elsewhere.here.out) == ()


def test_a_file_for_which_there_is_no_room_is_not_asked_for(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere, _, _ = pair
    record(elsewhere.here.store, 0)
    remote = elsewhere()
    usage = shutil.disk_usage(elsewhere.here.out)
    little = SimpleNamespace(total=usage.total, used=usage.used, free=1)
    monkeypatch.setattr(link, "shutil", SimpleNamespace(disk_usage=lambda path: little))
    with pytest.raises(DataError, match=r"is said to have \d+ bytes, and 1 are free"):
        remote.hand_over()
    assert list(elsewhere.here.out.rglob("*")) == []


def test_the_command_learns_until_it_is_told_to_end(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with pytest.raises(ConfigError, match="--learn OUT"):
        serve.main([str(parent), "--store", "x"])
    with pytest.raises(ConfigError, match="--store STORE"):
        serve.main([str(parent), "--learn", "x"])
    monkeypatch.setenv("ROBOLEARN_TOKEN", TOKEN)
    kind, seen = server.LearnerServer, []

    def keep(*arguments: Any) -> LearnerServer:
        made = kind(*arguments)

        def talk() -> None:
            seen.append(LearnerAddress(made.url, TOKEN).look(made.parent))
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Timer(0.5, talk).start()
        return made

    monkeypatch.setattr(server, "LearnerServer", keep)
    given = ["--learn", str(tmp_path / "l"), "--store", str(tmp_path / "s"), "--port", "0"]
    assert serve.main([str(parent), *given, "--practised", "before"]) == 0
    assert seen == [SecondStore(Path("before"), practised=True)]
    assert "learning over" in capsys.readouterr().out
    wrong = ["finetune", str(parent), "--world", WORLD[0], "--store", str(tmp_path / "s")]
    wrong += ["--out", str(tmp_path / "o"), "--learner", "nonsense"]
    assert main(wrong) == 2


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_an_arm_practises_while_another_machine_learns(parent: Path, tmp_path: Path) -> None:
    """The emulated arm, with its loop in real time; the cable is pulled in the middle of an episode
    and put back two episodes later.
    """
    cell = cell_file(tmp_path, 46)
    learner = serving(parent, tmp_path / "there")
    cable, out = Cable(int(learner.url.rpartition(":")[2])), tmp_path / "out"
    while_pulled = list[tuple[int, ...]]()

    def told(what: str, text: str) -> None:
        del text
        if what == "episode 3":
            wait_until(lambda: len(versions(out)) > 1, *BUSY, what="a version that may drive")
            # The next episode begins at once, and is under way then.
            threading.Timer(0.3, cable.pull).start()
        if what in ("episode 4", "episode 5"):
            while_pulled.append(versions(out))
        if what == "episode 5":
            cable.mend()
            known = max(versions(out))
            wait_until(lambda: max(versions(out)) > known, *BUSY, what="a newer version")

    found = finetune_on_cell(
        on_cell(parent, practice__max_episodes=8),
        parent,
        CellPractice(robot=cell, start_lab=True),
        tmp_path / "store",
        out,
        Listening(told),
        elsewhere=LearnerAddress(cable.url, TOKEN),
    )
    learner.close()
    cable.close()
    assert (found.kept, found.sound, found.episodes) == ("last", True, 8)
    assert len(set(while_pulled)) == 1
    assert len(while_pulled) == 2
    flights = Ledger.of(out).flights
    flown_by = [f.version for f in sorted(flights, key=lambda f: f.number) if f.version is not None]
    assert flown_by == sorted(flown_by)
    # What was learned from those episodes came when the cable was whole again.
    assert max(versions(out)) > max(while_pulled[0])
    store = EpisodeStore.open(tmp_path / "store")
    assert [f.id for f in flights] == list(store.ids())
    assert EpisodeStore.open(tmp_path / "there" / "copy").log() == store.log()
    assert load_run(out).provenance["complete"]
