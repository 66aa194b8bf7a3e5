"""Every changed, shortened or missing file is found by ``check``; other episodes still load."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.errors import StoreError
from tests.episodes import assert_same, small_episode

MODES = ("flip", "truncate", "delete", "grow")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("damage") / "store"
    with EpisodeStore.create(path).writer() as writer:
        for k in range(3):
            writer.append(small_episode(k, steps=5))
        writer.annotate(Annotation(("ep_000000",), "me", note="slow"))
        writer.remove(("ep_000002",), "me")
    return path


def files(store: Path) -> list[Path]:
    return sorted(p for p in store.rglob("*") if p.is_file())


def damage(path: Path, mode: str, rng: np.random.Generator) -> None:
    data = bytearray(path.read_bytes())
    if mode == "delete":
        path.unlink()
        return
    if mode == "flip":
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    elif mode == "truncate":
        del data[int(rng.integers(len(data))) :]
    else:
        data += b"\n"
    path.write_bytes(bytes(data))


def strike(sound: Path, path: Path, mode: str, rng: np.random.Generator) -> None:
    """Damage one file, look, and put it back."""
    original = path.read_bytes()
    damage(path, mode, rng)
    try:
        report = check_store(sound)
        name = path.relative_to(sound).as_posix()
        assert not report.sound, f"{mode} of {name} was not noticed"
        assert any(f.path == name for f in report.findings), (mode, name, report.findings)
        whole = {0: "ep_000000", 1: "ep_000001"}
        if path.name not in ("store.json", "commits.jsonl"):
            for k, episode_id in whole.items():
                if episode_id not in name and not (k == 0 and path.name == "an_000004.json"):
                    read = EpisodeStore.open(sound).read(episode_id)
                    assert_same(read, small_episode(k, steps=5))
    finally:
        path.write_bytes(original)


def test_a_sound_store_is_sound(sound: Path) -> None:
    report = check_store(sound)
    assert report.sound
    assert report.findings == ()
    assert report.episodes == 3
    assert report.files == len(files(sound)) - 1  # the log is checked by its own chain


def test_damage_to_each_kind_of_file_is_found(sound: Path) -> None:
    rng = np.random.default_rng(0)
    own = [p for p in files(sound) if "ep_" not in p.relative_to(sound).as_posix()]
    manifests = sorted((sound / "manifests").iterdir())
    assert [p.name for p in own] == [
        "an_000004.json",
        "rm_000005.json",
        "commits.jsonl",
        "zarr.json",
        "store.json",
    ]
    for path in own + manifests:
        for mode in MODES:
            strike(sound, path, mode, rng)


@pytest.mark.parametrize(
    "count", [25, pytest.param(500, marks=[pytest.mark.slow, pytest.mark.timeout(600)])]
)
def test_damage_at_random_places_is_found(sound: Path, count: int) -> None:
    rng = np.random.default_rng(1)
    everything = files(sound)
    for k in range(count):
        path = everything[int(rng.integers(len(everything)))]
        strike(sound, path, MODES[k % len(MODES)], rng)
    assert check_store(sound).sound


def test_an_added_file_inside_an_episode_is_found(sound: Path) -> None:
    extra = sound / "episodes/ep_000000/ticks/reward/c.1"
    extra.write_bytes(b"x")
    assert [f.kind for f in check_store(sound).findings] == ["extra"]
    extra.unlink()


def test_a_line_removed_from_the_log_is_found(sound: Path) -> None:
    log = sound / "commits.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    for removed in range(len(lines)):
        log.write_bytes(b"".join(lines[:removed] + lines[removed + 1 :]))
        assert not check_store(sound).sound
    log.write_bytes(b"".join(lines))


def test_a_lost_episode_is_found(tmp_path: Path, sound: Path) -> None:
    for parts in (
        ("episodes/ep_000001",),
        ("manifests",),
        ("episodes",),
        ("annotations",),
        ("trash",),
    ):
        copy = tmp_path / parts[0].replace("/", "-")
        shutil.copytree(sound, copy)
        for part in parts:
            shutil.rmtree(copy / part)
        assert not check_store(copy).sound


def test_leftovers_and_foreign_files_are_harmless_and_swept(tmp_path: Path, sound: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    (copy / "tmp" / "dead.tmp").mkdir()
    (copy / "tmp" / "dead.tmp" / "x").write_text("x")
    (copy / "NOTES.txt").write_text("mine")
    report = check_store(copy)
    assert report.sound
    assert {f.kind for f in report.findings} == {"leftover", "foreign"}
    with EpisodeStore.open(copy).writer() as writer:
        writer.append(small_episode(7))
    assert {f.kind for f in check_store(copy).findings} == {"foreign"}
    assert (copy / "NOTES.txt").read_text() == "mine"


def test_check_beside_a_live_writer_is_not_alarmed(sound: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    with EpisodeStore.open(copy).writer() as writer:
        writer.begin()
        writer.append(small_episode(3))
        assert check_store(copy).sound


def test_a_writer_refuses_a_damaged_log(sound: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(sound, copy)
    log = copy / "commits.jsonl"
    log.write_bytes(log.read_bytes()[:-3])
    with pytest.raises(StoreError, match="cut off"), EpisodeStore.open(copy).writer():
        pass


def test_check_of_what_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        check_store(tmp_path / "absent")
    with pytest.raises(StoreError, match="not an episode store"):
        check_store(tmp_path)


def test_each_log_line_covers_the_one_before(sound: Path) -> None:
    lines = [json.loads(line) for line in (sound / "commits.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == [0, 1, 2, 3, 4, 5]
    for before, after in itertools.pairwise(lines):
        assert after["previous"] == before["hash"]
