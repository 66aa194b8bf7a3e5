"""The hash of what decides a trial follows the imports, wherever a file lives."""

from __future__ import annotations

import functools
import shutil
from pathlib import Path

import pytest

from robolearn.operations import code_hash as code_hash_module
from robolearn.operations.code_hash import (
    PACKAGES,
    REALITY,
    ROOT,
    code_hash,
    deciding_files,
    plugin_files,
    reality_files,
    reality_hash,
)
from robolearn.operations.trust import driving_hash as driving_hash_module
from robolearn.operations.trust.driving_hash import driving_files, driving_hash


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return tmp_path


def test_every_deciding_file_changes_the_hash(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # What is installed does not change meanwhile.
    monkeypatch.setattr(code_hash_module, "plugin_files", functools.cache(plugin_files))
    before = code_hash(tree)
    assert before == code_hash(ROOT)
    for path in deciding_files(tree):
        source = path.read_bytes()
        path.write_bytes(source + b"\n")
        assert code_hash(tree) != before, path
        path.write_bytes(source)
    assert code_hash(tree) == before


# Acts out demonstrations that are generated; no trial runs it.
MAKES_DATA = {"sim/experts/retarget.py"}


def test_what_decides_is_covered_and_what_only_shows_is_not() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in deciding_files()}
    for package in (
        "sim/tasks",
        "sim/experts",
        "sim/control",
        "sim/perturbations",
        "policies/nets",
    ):
        files = {p.relative_to(ROOT).as_posix() for p in (ROOT / package).glob("*.py")}
        assert files - MAKES_DATA <= names, package
    wanted = {"robolearn/runtime.py", "eval/trials/rollouts.py", "policies/imitation/flow.py"}
    assert wanted | {"sim/env/scene_env.py", "robolearn/arms/limiter.py"} <= names
    shown = ("eval/report/", "hardware/", "robolearn/data/upkeep/", "robolearn/doctor")
    assert not [name for name in names if name.startswith(shown)]


def test_imports_in_functions_and_lazy_names_count(
    tree: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (tree / "sim" / "extra.py").write_text("VALUE = 1\n")
    assert tree / "sim" / "extra.py" not in deciding_files(tree)
    for line in ("def f():\n    from sim import extra\n", "T = {'a': 'sim.extra:VALUE'}\n"):
        # A copy: what a folder's files reach is looked up once.
        copy = Path(shutil.copytree(tree, tmp_path_factory.mktemp("copy") / "tree"))
        worlds = copy / "sim" / "worlds.py"
        worlds.write_text(worlds.read_text() + line)
        assert copy / "sim" / "extra.py" in deciding_files(copy), line


def test_every_file_that_drives_changes_a_hash_of_its_own(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driving_hash_module, "plugin_files", functools.cache(plugin_files))
    monkeypatch.setattr(code_hash_module, "plugin_files", functools.cache(plugin_files))
    before, decides = driving_hash(tree), code_hash(tree)
    assert before == driving_hash(ROOT)
    for path in driving_files(tree):
        source = path.read_bytes()
        path.write_bytes(source + b"\n")
        assert driving_hash(tree) != before, path
        path.write_bytes(source)
    assert (driving_hash(tree), code_hash(tree)) == (before, decides)


def test_what_drives_an_arm_is_covered_and_who_watches_is_not() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in driving_files()}
    decide = {path.relative_to(ROOT).as_posix() for path in deciding_files()}
    assert not names & decide
    for package in ("supervisor", "drivers", "devices", "streams", "wire"):
        folder = ROOT / "hardware" / package
        files = {p.relative_to(ROOT).as_posix() for p in folder.rglob("*.py")}
        assert files <= names, package
    wanted = {"hardware/env/real_env.py", "robolearn/operations/deploy/run.py"}
    wanted |= {"hardware/cell/config.py", "robolearn/operations/cell/driving.py"}
    assert wanted | {"robolearn/operations/deploy/task.py"} <= names
    # These two decide simulated trials, too.
    assert {"robolearn/runtime.py", "robolearn/arms/limiter.py"} <= decide
    others = ("eval/", "sim/", "policies/", "robolearn/cli/", "hardware/emulators/")
    assert not [name for name in names if name.startswith((*others, "hardware/teleop/"))]


def test_what_a_reality_is_made_of_counts_for_its_trials_alone() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in deciding_files()}
    assert f"{REALITY.replace('.', '/')}.py" in names
    assert not names & {path.relative_to(ROOT).as_posix() for path in reality_files()}
    assert reality_hash() != code_hash()
