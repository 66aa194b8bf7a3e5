"""The hash of what decides a trial follows the imports, wherever a file lives."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from robolearn.operations import code_hash as module
from robolearn.operations.code_hash import PACKAGES, ROOT, code_hash, deciding_files


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            target = tmp_path / path.relative_to(ROOT)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return tmp_path


def test_every_deciding_file_changes_the_hash(tree: Path) -> None:
    before = code_hash(tree)
    assert before == code_hash(ROOT)
    for path in deciding_files(tree):
        source = path.read_bytes()
        path.write_bytes(source + b"\n")
        assert code_hash(tree) != before, path
        path.write_bytes(source)
    assert code_hash(tree) == before


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
        assert files <= names, package
    wanted = {"robolearn/runtime.py", "eval/trials/rollouts.py", "policies/imitation/flow.py"}
    assert wanted | {"sim/env/scene_env.py", "robolearn/arms/limiter.py"} <= names
    shown = ("eval/report/", "hardware/", "robolearn/data/upkeep/", "robolearn/doctor")
    assert not [name for name in names if name.startswith(shown)]


def test_imports_in_functions_and_lazy_names_count(tree: Path) -> None:
    extra = tree / "sim" / "extra.py"
    extra.write_text("VALUE = 1\n")
    assert extra not in deciding_files(tree)
    worlds = tree / "sim" / "worlds.py"
    for line in ("def f():\n    from sim import extra\n", "T = {'a': 'sim.extra:VALUE'}\n"):
        source = worlds.read_text()
        worlds.write_text(source + line)
        module._reached.cache_clear()
        assert extra in deciding_files(tree), line
        worlds.write_text(source)
    module._reached.cache_clear()
