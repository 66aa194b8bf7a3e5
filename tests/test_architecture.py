"""House rules that no linter knows."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from robolearn.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PACKAGES = ("robolearn", "sim", "hardware", "policies", "eval")
SOURCES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_rules(path: Path) -> None:
    banned = {"pickle", "dill", "cloudpickle"}
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.split(".")[0]
                assert top != "eval", f"{path}:{node.lineno}: use 'from eval.x import y'"
                assert top not in banned, f"{path}:{node.lineno}: no pickle"
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert (node.module or "").split(".")[0] not in banned


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_size_budgets(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 500
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = (node.end_lineno or node.lineno) - node.lineno + 1
            assert size <= 150, f"{path}:{node.lineno} {node.name}: {size} lines"


def test_torch_only_where_it_belongs() -> None:
    files = {"robolearn/learning.py", "robolearn/data/reading/dataset.py"}
    files |= {"robolearn/inference/onnx.py"}
    folders = ("policies/", "robolearn/training/", "robolearn/operations/", "robolearn/cli/")
    for path in SOURCES:
        relative = path.relative_to(ROOT).as_posix()
        if relative in files or relative.startswith(folders):
            continue
        for node in ast.walk(_tree(path)):
            names = (
                [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
            assert not any(n.split(".")[0] == "torch" for n in names), f"{relative} imports torch"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_exists_and_is_documented(name: str) -> None:
    module = importlib.import_module(COMMANDS[name][0])
    assert callable(module.main)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"robolearn {name}" in readme, f"README.md does not mention 'robolearn {name}'"


def test_top_level_packages_are_the_wheels() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert tuple(packages) == PACKAGES


def test_dependencies_are_all_pinned() -> None:
    import re
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in project["optional-dependencies"].values():
        wanted += extra
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.split("==")[0] for line in lines if "==" in line}
    for requirement in wanted:
        name = re.split(r"[<>=!\[; ]", requirement)[0].lower().replace("_", "-")
        if name == project["name"]:
            continue  # extras of extras, which are checked themselves
        assert name in pinned, f"{name} has no version in constraints.txt"


def test_layers_hold() -> None:
    script = Path(sys.executable).parent / "lint-imports"
    done = subprocess.run(
        [str(script), "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
