"""No name in a manifest, a log, an annotation or a journal leads out of its store."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from robolearn.data.store.annotations import parse_annotation
from robolearn.data.store.chunks import FileSink, json_bytes
from robolearn.data.store.confine import confined
from robolearn.data.store.manifest import (
    next_entry,
    parse_entry,
    parse_log,
    parse_manifest,
    read_pending,
    record_name,
    sha256,
)
from robolearn.data.store.store import EpisodeStore
from robolearn.data.upkeep.check import check_store
from robolearn.data.upkeep.edit import Selection, filter_store
from robolearn.data.upkeep.mirror import copy_store
from robolearn.errors import RobolearnError, StoreCorruptError, UnsafePathError
from tests.episodes import small_episode

PARTS = st.sampled_from(["..", ".", "", "a", "zarr.json", "ticks", "~", "..\\x", "a\0", "x" * 300])
ESCAPES = st.lists(PARTS, min_size=1, max_size=6).map("/".join)
HOSTILE = st.one_of(
    ESCAPES.filter(lambda text: not _plain(text)),
    st.just("/etc/passwd"),
    st.text(max_size=8).map(lambda text: f"../{text}"),
    st.text(max_size=8).map(lambda text: f"/{text}"),
    st.text(max_size=8).map(lambda text: f"a/../../{text}"),
)
FEW = settings(
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CRAFTED = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _plain(text: str) -> bool:
    parts = text.split("/")
    return all(
        p not in ("", ".", "..") and len(p) < 256 and not set(p) & {"\\", "\0"} for p in parts
    )


def store_of(path: Path, count: int = 1) -> EpisodeStore:
    store = EpisodeStore.create(path)
    with store.writer() as writer:
        for k in range(count):
            writer.append(small_episode(k, steps=4))
    return store


def craft(
    store: Path, change: Callable[[dict[str, Any]], None], episode: str = "ep_000000"
) -> None:
    """Change a manifest and make the log say that it was committed so."""
    name = record_name(episode)
    raw = json.loads((store / name).read_bytes())
    change(raw)
    data = json.dumps(raw).encode()
    (store / name).write_bytes(data)
    entries = parse_log((store / "commits.jsonl").read_bytes(), store)
    made = [entries[0]]
    for entry in entries[1:]:
        files = {name: sha256(data)} if entry.id == episode else entry.files
        needs = 2 if entry.id == episode and raw.get("folder") else entry.needs
        made.append(next_entry(made[-1], entry.id, files, entry.episodes, needs))
    (store / "commits.jsonl").write_bytes(b"".join(e.line() for e in made))


def snapshot(folder: Path) -> dict[str, int]:
    return {str(p): p.lstat().st_mtime_ns for p in sorted(folder.rglob("*"))}


@pytest.fixture(scope="module")
def crafted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("crafted")
    store_of(base / "a/store")
    (base / "victim").mkdir()
    (base / "victim/thesis.txt").write_text("years of work")
    return base


@given(name=st.text(max_size=30))
def test_what_is_confined_stays_below_its_folder(name: str) -> None:
    try:
        confined(name, "here")
    except UnsafePathError:
        return
    assert not PurePosixPath(name).is_absolute()
    root = "/store/episodes/ep_000000"
    assert os.path.normpath(f"{root}/{name}") == f"{root}/{name}"


@given(name=st.lists(st.sampled_from(["signals", "a.b", "é x", "...", "c.0.0"]), min_size=1))
def test_plain_paths_are_taken_as_they_are(name: list[str]) -> None:
    assert confined("/".join(name), "here") == "/".join(name)


@CRAFTED
@given(name=HOSTILE)
def test_a_crafted_path_in_a_manifest_is_damage_and_is_not_followed(
    crafted: Path, name: str
) -> None:
    store = crafted / "a/store"
    original = {p: (store / p).read_bytes() for p in ("commits.jsonl", "manifests/ep_000000.json")}
    try:
        craft(store, lambda raw: raw["files"][1].update(path=name))
        before = snapshot(crafted)
        report = check_store(store)
        assert not report.sound
        assert {f.path for f in report.findings} == {"manifests/ep_000000.json"}
        with pytest.raises(RobolearnError):
            filter_store(EpisodeStore.open(store), Selection(), crafted / "a/out")
        with pytest.raises(RobolearnError):
            copy_store(EpisodeStore.open(store), crafted / "b")
        shutil.rmtree(crafted / "b", ignore_errors=True)
        assert set(snapshot(crafted)) == set(before)
    finally:
        for path, data in original.items():
            (store / path).write_bytes(data)


@FEW
@given(name=HOSTILE | st.sampled_from(["../../../victim", "../../victim", "ep_000001", "a/b"]))
def test_a_crafted_folder_takes_no_foreign_folder_away(crafted: Path, name: str) -> None:
    store = crafted / "a/store"
    original = {p: (store / p).read_bytes() for p in ("commits.jsonl", "manifests/ep_000000.json")}
    if not name:
        return
    try:
        craft(store, lambda raw: raw.update(folder=name))
        with pytest.raises(StoreCorruptError), EpisodeStore.open(store).writer() as writer:
            writer.remove(("ep_000000",), "me")
        assert (crafted / "victim/thesis.txt").read_text() == "years of work"
        assert not check_store(store).sound
    finally:
        for path in (store / "annotations").glob("*"):
            path.unlink()
        (store / "pending.json").unlink(missing_ok=True)
        for path, data in original.items():
            (store / path).write_bytes(data)


@CRAFTED
@given(name=HOSTILE)
def test_no_parser_takes_a_crafted_name(name: str) -> None:
    entry = next_entry(None, "ep_000000", {"manifests/ep_000000.json": "0"}, ("ep_000000",))
    line = json.loads(entry.line())
    for change in ({"id": name or ".."}, {"files": {name: "0"}}, {"episodes": [name]}):
        with pytest.raises(StoreCorruptError):
            parse_entry(json.dumps(line | change).encode(), "log")
    said = {"episodes": [name], "author": "me", "add_labels": [], "remove_labels": []}
    with pytest.raises(StoreCorruptError):
        parse_annotation(json.dumps(said).encode(), Path("an_000001.json"))
    manifest = {"files": [{"path": name, "size": 0, "sha256": ""}], "info": {}}
    with pytest.raises(StoreCorruptError):
        parse_manifest(json.dumps(manifest).encode(), "manifest")


@pytest.mark.parametrize("key", ["id", "draft", "folder"])
def test_a_crafted_pending_commit_is_refused(tmp_path: Path, key: str) -> None:
    body = {"id": "ep_000000", "sha256": "", "log_size": 0, "line": "", "draft": "", "folder": ""}
    body[key] = "../../victim"
    data = json_bytes({"body": body, "sha256": sha256(json_bytes(body))})
    (tmp_path / "pending.json").write_bytes(data)
    with pytest.raises(StoreCorruptError, match="victim"):
        read_pending(tmp_path)


def test_a_sink_writes_below_its_folder_only(tmp_path: Path) -> None:
    sink = FileSink(tmp_path / "draft")
    (tmp_path / "draft").mkdir()
    with pytest.raises(UnsafePathError, match="plain relative path"):
        sink.write("signals/../../x", b"")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["draft"]


@pytest.mark.parametrize(
    "link", ["episodes/ep_000000", "episodes/ep_000000/ticks", "episodes/ep_000000/zarr.json"]
)
def test_a_link_out_of_an_episode_is_damage(tmp_path: Path, link: str) -> None:
    store = store_of(tmp_path / "store")
    outside = tmp_path / "outside"
    (store.path / link).rename(outside)
    (store.path / link).symlink_to(outside)
    report = check_store(store.path)
    assert [(f.kind, f.path) for f in report.findings if f.severity == "error"] == [
        ("altered", "episodes/ep_000000")
    ]
    with pytest.raises(StoreCorruptError, match="is a link"):
        EpisodeStore.open(store.path).read("ep_000000")


@pytest.mark.parametrize("part", ["episodes", "manifests", "tmp"])
def test_a_store_whose_own_folders_are_links_is_refused(tmp_path: Path, part: str) -> None:
    store = store_of(tmp_path / "store")
    (store.path / part).rename(tmp_path / "outside")
    (store.path / part).symlink_to(tmp_path / "outside")
    with pytest.raises(StoreCorruptError, match="is a link"):
        EpisodeStore.open(store.path)
    assert not check_store(store.path).sound


def test_links_among_leftovers_are_removed_not_followed(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim/thesis.txt").write_text("years of work")
    (store.path / "tmp/dead.tmp").symlink_to(tmp_path / "victim")
    with store.writer() as writer:
        writer.append(small_episode(1, steps=4))
    assert not list((store.path / "tmp").iterdir())
    assert (tmp_path / "victim/thesis.txt").read_text() == "years of work"


def test_a_manifest_of_another_episode_is_damage(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store", 2)
    craft(store.path, lambda raw: raw["info"].update(id="ep_000001"))
    assert [f.path for f in check_store(store.path).findings][:1] == ["manifests/ep_000000.json"]
    with pytest.raises(StoreCorruptError, match="manifest of 'ep_000001'"):
        EpisodeStore.open(store.path).read("ep_000000")


def test_a_name_below_a_file_is_damage(tmp_path: Path) -> None:
    store = store_of(tmp_path / "store")
    craft(
        store.path,
        lambda raw: raw["files"].append(
            raw["files"][0] | {"path": f"{raw['files'][0]['path']}/zarr.json"}
        ),
    )
    with pytest.raises(StoreCorruptError, match="is listed below a file"):
        copy_store(EpisodeStore.open(store.path), tmp_path / "copy")
    assert not check_store(store.path).sound
