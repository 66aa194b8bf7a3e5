"""Things are found by the files that their readers demand, and nothing outside the folders is."""

import os
from pathlib import Path

import pytest

from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError
from robolearn.operations.studio.found import Finder, require_folders
from robolearn.operations.studio.library import Library


def _file(path: Path, text: str = "{}") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    lab = tmp_path / "lab"
    EpisodeStore.create(lab / "data" / "pusht")
    _file(lab / "runs" / "flow" / "config.yaml")
    _file(lab / "runs" / "flow" / "metrics.jsonl")
    _file(lab / "runs" / "flow" / "inner" / "store.json")
    _file(lab / "eval" / "evaluation.json")
    _file(lab / "trials" / "plan.yaml")
    (lab / "trials" / "kept").mkdir()
    _file(lab / "deploy" / "deploy.json")
    _file(lab / "table" / "scene.yaml")
    _file(lab / "capture" / "capture.yaml")
    _file(lab / "shown" / "certificate.json")
    _file(lab / ".hidden" / "store.json")
    return lab


def test_every_kind_is_found_and_what_is_inside_a_thing_is_not(lab: Path):
    found = {t.where: t.kind for t in Finder([lab]).find()}
    assert found == {
        "capture": "capture",
        "data/pusht": "store",
        "deploy": "deployment",
        "eval": "evaluation",
        "runs/flow": "run",
        "shown/certificate.json": "certificate",
        "table": "scene",
        "trials": "trial_session",
    }


def test_what_its_reader_refuses_is_found_with_the_reason(lab: Path):
    _file(lab / "old" / "store.json", '{"format": "robolearn episodes", "version": 99}')
    problems = {t.where: t.problem for t in Finder([lab]).find()}
    assert "is not an episode store" in problems["old"]
    assert "scene.xml is missing" in problems["table"]
    assert problems["data/pusht"] == ""


def test_links_out_of_the_folders_are_not_followed(lab: Path, tmp_path: Path):
    EpisodeStore.create(tmp_path / "secret")
    (lab / "link").symlink_to(tmp_path / "secret")
    (lab / "all").symlink_to(tmp_path)
    assert not [t for t in Finder([lab]).find() if "link" in t.where or "all" in t.where]


def test_an_id_stays_when_the_lab_moves(lab: Path, tmp_path: Path):
    before = {t.id for t in Finder([lab]).find()}
    moved = lab.rename(tmp_path / "elsewhere")
    assert {t.id for t in Finder([moved]).find()} == before


def test_a_folder_in_two_roots_is_listed_once(lab: Path):
    found = Finder([lab, lab / "data"]).find()
    assert len([t for t in found if t.name == "pusht"]) == 1


def test_what_changed_appeared_and_vanished_is_told(lab: Path):
    library = Library([lab])
    assert not library.look()
    version = library.version
    run = next(t for t in library.things() if t.kind == "run")
    metrics = lab / "runs" / "flow" / "metrics.jsonl"
    os.utime(metrics, ns=(10**18, 3 * 10**18))
    EpisodeStore.create(lab / "data" / "new")
    assert library.look()
    new = next(t for t in library.things() if t.name == "new")
    assert set(library.changes(version).ids) == {run.id, new.id}
    version = library.version
    (lab / "data").rename(lab / ".gone")
    assert library.look()
    assert len(library.changes(version).ids) == 2
    assert library.thing(new.id) is None
    assert library.changes(10**6).all


def test_folders_that_are_none_are_refused(tmp_path: Path):
    with pytest.raises(ConfigError, match="does not exist"):
        require_folders([tmp_path / "nothing"])
    _file(tmp_path / "file")
    with pytest.raises(ConfigError, match="is a file"):
        require_folders([tmp_path / "file"])
    with pytest.raises(ConfigError, match="at least one"):
        require_folders([])
    assert require_folders([tmp_path, tmp_path / "."]) == (tmp_path.resolve(),)


def test_what_is_kept_is_bounded_and_built_again_when_it_changed(lab: Path):
    library, built = Library([lab]), list[int]()
    for stamp in (1, 1, 2):
        library.keep("a", lambda: built.append(1) or len(built), stamp)
    assert len(built) == 2
    for other in range(100):
        library.keep(other, lambda: 0)
    assert library.keep("a", lambda: "again", 2) == "again"
