"""House rules that no linter knows."""

from __future__ import annotations

import ast
import functools
import gc
import graphlib
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp
import pytest

from robolearn.cli.main import COMMANDS
from tests import rooms, shapes

ROOT = Path(__file__).parents[1]
PACKAGES = ("robolearn", "sim", "hardware", "policies", "eval")
SOURCES = sorted(p for name in PACKAGES for p in (ROOT / name).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


@functools.cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


@functools.cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(_tree(path)))


@pytest.fixture(scope="module", autouse=True)
def trees() -> Iterator[None]:
    """Millions of nodes: nobody looks through them for garbage, and no later test keeps them."""
    gc.disable()
    yield
    _nodes.cache_clear()
    _tree.cache_clear()
    gc.enable()


def test_imports_follow_the_rules() -> None:
    banned = {"pickle", "dill", "cloudpickle"}
    found: list[str] = []
    for path in SOURCES:
        for node in _nodes(path):
            if isinstance(node, ast.Import):
                tops = {alias.name.split(".")[0] for alias in node.names}
                if "eval" in tops:
                    found.append(f"{path}:{node.lineno}: use 'from eval.x import y'")
                if tops & banned:
                    found.append(f"{path}:{node.lineno}: no pickle")
            if isinstance(node, ast.ImportFrom):
                if node.level:
                    found.append(f"{path}:{node.lineno}: relative import")
                if (node.module or "").split(".")[0] in banned:
                    found.append(f"{path}:{node.lineno}: no pickle")
    assert not found, "\n".join(found)


def test_size_budgets() -> None:
    found: list[str] = []
    for path in SOURCES:
        lines = len(path.read_text(encoding="utf-8").splitlines())
        found += [f"{path}: {lines} lines"] if lines > 500 else []
        for node in _nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > 150:
                    found.append(f"{path}:{node.lineno} {node.name}: {size} lines")
    assert not found, "\n".join(found)


# Modules outside policies, training and what composes them; everything else speaks numpy.
SPEAKS_TORCH = {
    "robolearn/learning.py",
    "robolearn/data/reading/dataset.py",
    "robolearn/inference/onnx.py",
}


def test_torch_only_where_it_belongs() -> None:
    found = {
        path.relative_to(ROOT).as_posix()
        for path in SOURCES
        for module in _imported(path)
        if module.split(".")[0] == "torch"
    }
    free = ("policies/", "robolearn/training/", "robolearn/operations/", "robolearn/cli/")
    assert {name for name in found if not name.startswith(free)} == SPEAKS_TORCH


def _imported(path: Path) -> list[str]:
    names: list[str] = []
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        if isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names


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


def test_every_module_has_a_layer() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    named = [name for layer in layers for name in re.split(r"[|:\s]+", layer) if name]
    assert len(named) == len(set(named))
    core = {p.stem for p in (ROOT / "robolearn").glob("*.py")} - {"__init__"}
    core |= {p.parent.name for p in (ROOT / "robolearn").glob("*/__init__.py")}
    assert set(named) == {f"robolearn.{name}" for name in core} | set(PACKAGES[1:])


def test_no_modules_import_each_other_not_even_lazily() -> None:
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    imports = {m: graph.find_modules_directly_imported_by(m) for m in sorted(graph.modules)}
    try:
        graphlib.TopologicalSorter(imports).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_the_page_lists_every_folder() -> None:
    page = rooms.PAGE.read_text(encoding="utf-8")
    assert page == rooms.written(page), "run 'python -m tests.rooms'"


def test_operations_speak_of_parameters_not_of_options() -> None:
    """Whoever calls a function never typed ``--out``; the command line finds its own words."""
    for path in (ROOT / "robolearn" / "operations").rglob("*.py"):
        told = {id(node.value) for node in _nodes(path) if isinstance(node, ast.Expr)}
        for node in _nodes(path):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                option = re.search("--[a-z]", node.value)
                assert not option or id(node) in told, f"{path.name}:{node.lineno}: {node.value}"


def test_no_folder_is_a_heap() -> None:
    """About twenty modules side by side; the command line has one file per command."""
    for package in PACKAGES:
        for init in (ROOT / package).rglob("__init__.py"):
            found = len(list(init.parent.glob("*.py"))) - 1
            assert found <= 20, f"{init.parent.relative_to(ROOT)} holds {found} modules"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_init_says_what_its_folder_is_for_and_nothing_else(package: str) -> None:
    for init in (ROOT / package).rglob("__init__.py"):
        tree = _tree(init)
        assert rooms.sentence(init).endswith("."), init
        others = [n for n in tree.body[1:] if not isinstance(n, ast.Assign)]
        assert not others, f"{init} holds code"


# Plurals that a module's first line must not begin with: no verb says what the module does.
NOUNS = {
    "Agents",
    "Augmentations",
    "Builders",
    "Cameras",
    "Chunks",
    "Episodes",
    "Figures",
    "Frames",
    "Latencies",
    "Means",
    "Messages",
    "Pictures",
    "Pieces",
    "Policies",
    "Quantiles",
    "Recordings",
    "Requests",
    "Rollouts",
    "Signals",
    "Statistics",
    "Strengths",
    "Success",
    "Windows",
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_module_begins_with_what_it_does(package: str) -> None:
    for path in sorted((ROOT / package).rglob("*.py")):
        text = ast.get_docstring(_tree(path)) or ""
        found = re.match(r"(?:``robolearn [^`]+`` )?([A-Za-z][a-z]+s)\b", text)
        assert found, f"{path}: '{text[:40]}' begins with no verb"
        assert found[1] not in NOUNS, f"{path}: '{text[:40]}' begins with no verb"


def test_public_arrays_say_their_shapes() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}:{name}"
        for path, names in shapes.unshaped(ROOT, {path: _tree(path) for path in SOURCES}).items()
        for name in names
    }
    assert not found, "say the shape with jaxtyping: " + ", ".join(sorted(found))


# Where tests sleep themselves; everything else waits with tests/waiting.py.
SLEEPS = {
    "tests/hardware/commissioning/test_check.py": "makes the product's own sleep longer",
    "tests/hardware/drivers/ur/test_driver.py": "a C call that keeps the interpreter's lock",
    "tests/waiting.py": "the one place",
}


def test_tests_wait_in_one_place() -> None:
    """Conditions, paced streams, and time that passes for a reason; scripts of children and fake
    clocks are not calls.
    """
    found = {
        path.relative_to(ROOT).as_posix()
        for path in TESTS
        if "sleep" in path.read_text(encoding="utf-8")
        for node in _nodes(path)
        if (isinstance(node, ast.Attribute) and node.attr == "sleep")
        or (isinstance(node, ast.alias) and node.name == "sleep")
    }
    assert found == set(SLEEPS), "wait with tests/waiting.py: wait_until, paced or pass_time"
