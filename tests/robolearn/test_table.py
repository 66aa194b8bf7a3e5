"""Tables of things by name: what they resolve to, and what installed packages may add."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

from robolearn import table as module
from robolearn.errors import ConfigError, DataError
from robolearn.operations.code_hash import code_hash
from robolearn.table import CALLABLE, CONFIG, Table
from tests.plugins import installed

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "tests" / "plugin_example"
PACKAGES = ("robolearn", "sim", "hardware", "policies", "eval")


def tables() -> Iterator[tuple[str, str]]:
    """Every table of the project: module and name."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            text = path.read_text("utf-8")
            # A thousand files would be parsed by every process that collects tests.
            for node in ast.parse(text).body if "Table[" in text else ():
                if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("Table["):
                    parts = path.relative_to(ROOT).with_suffix("").parts
                    yield ".".join(parts), ast.unparse(node.targets[0])


TABLES = tuple(tables())


def test_there_are_tables() -> None:
    named = {name for _, name in TABLES}
    wanted = {"POLICIES", "TASKS", "EXPERTS", "PLAYERS", "WORLDS", "DRIVERS", "CAMERAS", "GRIPPERS"}
    assert wanted | {"IMPORTERS", "EXPORTERS"} <= named


@pytest.mark.parametrize(("where", "name"), TABLES)
def test_every_entry_resolves_and_every_group_is_documented(where: str, name: str) -> None:
    table = getattr(importlib.import_module(where), name)
    own = [entry for entry, at in table.entries().items() if at.owner == "robolearn"]
    assert own or name == "PLUGIN_SCENES"
    assert all(table.find(entry) is not None for entry in own)
    assert f"`{table.group}`" in (ROOT / "docs" / "plugins.md").read_text("utf-8")


def test_an_unknown_name_is_an_error_of_the_callers_kind() -> None:
    table = Table[object]({"left": "math:floor", "right": "math:ceil"}, what="way", group="x")
    with pytest.raises(DataError, match=r"a.yaml: no way 'lefd'\. Did you mean 'left'.*'right'"):
        table.find("lefd", error=DataError, where="a.yaml")
    assert list(table) == ["left", "right"]
    assert len(table) == 2
    assert "left" in table
    assert "lefd" not in table


def plugins(monkeypatch: pytest.MonkeyPatch, **named: str) -> None:
    points = EntryPoints(EntryPoint(n.replace("__", "."), v, "x") for n, v in named.items())
    monkeypatch.setattr(module, "entry_points", lambda group: points.select(group=group))


def test_plug_ins_add_names_and_replace_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def table(**options: object) -> Table[object]:
        return Table({"left": "math:floor"}, what="way", group="x", **options)  # type: ignore[arg-type]

    import math

    plugins(monkeypatch, up="math:trunc", down="nowhere:x")
    assert list(table()) == ["left", "up", "down"]
    assert table().find("up") is math.trunc
    with pytest.raises(ConfigError, match=r"'down' of the package.*nowhere:x.*repair or uninstall"):
        table().find("down")
    plugins(monkeypatch, left="math:trunc")
    with pytest.raises(ConfigError, match=r"offers the way 'left' \(math:trunc\).*math:floor"):
        table().entries()
    plugins(monkeypatch, right="math:trunc")
    with pytest.raises(ConfigError, match=r"offers the way 'right'.*has already"):
        table(taken=lambda: ("right",)).entries()


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("raise RuntimeError('no GPU')", r"RuntimeError: no GPU"),
        ("import sys; sys.exit(0)", r"SystemExit: 0"),
        ("def thing(:", r"SyntaxError"),
        ("thing = 5", r"is '5'; expected a class or a function"),
    ],
)
def test_a_plug_in_that_breaks_is_named_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, told: str
) -> None:
    (tmp_path / "broken_plugin.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "broken_plugin", raising=False)
    plugins(monkeypatch, up="broken_plugin:thing")
    table = Table[object]({}, what="way", group="x", wanted=CALLABLE)
    with pytest.raises(ConfigError, match=rf"way 'up' of the package.*{told}.*uninstall"):
        table.find("up")


def test_what_a_plug_in_is_must_be_what_the_table_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    plugins(monkeypatch, floor="math:floor", config="tests.robolearn.test_table:Table")
    table = Table[object]({}, what="robot", group="x", wanted=CONFIG)
    for name in table:
        with pytest.raises(ConfigError, match="expected a dataclass"):
            table.find(name)


def test_a_group_of_several_kinds_tells_them_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table[object]({}, what="camera", group="x", kind="camera")
    plugins(monkeypatch, camera__grey="math:trunc", gripper__soft="math:ceil")
    assert list(table) == ["grey"]
    plugins(monkeypatch, grey="math:trunc")
    with pytest.raises(ConfigError, match=r"expected a kind and a name, like 'camera\.grey'"):
        Table[object]({}, what="camera", group="x", kind="camera").entries()


USE = """
import contextlib, json, sys
import numpy as np
from hardware.cell.config import DRIVERS
from hardware.devices.camera_config import CAMERAS
from policies.registry import policy_config
from robolearn.operations.builders import ExpertBuilder, env_builder
from robolearn.operations.code_hash import code_hash
from robolearn.runtime import run_episode
from sim.worlds import described_worlds, make_world

def succeeds(world):
    with contextlib.closing(env_builder(world)()) as env:
        agent = ExpertBuilder(env.task)(env.spec)
        start = env.sample_condition(0)
        result = run_episode(env, agent, None, [], start, max_steps=env.max_steps)
        return [env.task, env.spec.name, result.outcome.success]

print(json.dumps({
    "episodes": [succeeds(w) for w in ("slide", "slide~action_noise=1", "slides/late")],
    "policy": policy_config("median")().loss,
    "robot": DRIVERS.find("slide_arm")().build().joints,
    "camera": CAMERAS.find("grey").__name__,
    "worlds": {n: t for n, t in described_worlds().items() if "slide" in n},
    "hash": code_hash(),
}))
"""


def run(paths: list[str], code: str) -> subprocess.CompletedProcess[str]:
    begin = f"import sys; sys.path[:0] = {[str(ROOT), *paths]!r}\n"
    return subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, text=True, timeout=200
    )


def test_an_installed_package_brings_tasks_worlds_policies_and_devices(tmp_path: Path) -> None:
    package = tmp_path / "example"
    package.mkdir()
    for path in EXAMPLE.rglob("*"):
        target = package / path.relative_to(EXAMPLE)
        if path.is_file() and "__pycache__" not in path.parts:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    paths = installed(tmp_path / "site", package)
    done = run(paths, USE)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["episodes"] == [
        ["slide", "slide", True],
        ["slide", "slide~action_noise=1", True],
        ["slide", "slide~action_delay=1", True],
    ]
    assert (found["policy"], found["robot"], found["camera"]) == ("absolute", 6, "GreyCameraConfig")
    assert found["worlds"] == {
        "slide": "A disc is brought over a line.",
        "slides/late": "A world of the package robolearn-slide.",
        "slides/prompt": "A world of the package robolearn-slide.",
    }
    # What a plug-in does decides a trial: with it, and with another text of it, the hash differs.
    assert found["hash"] != code_hash()
    with (package / "robolearn_slide" / "task.py").open("a") as file:
        file.write("\n")
    again = run(paths, "from robolearn.operations.code_hash import code_hash; print(code_hash())")
    assert again.stdout.strip() not in ("", found["hash"]), again.stderr


def test_a_package_cannot_take_a_built_in_name(tmp_path: Path) -> None:
    thief = tmp_path / "thief"
    thief.mkdir()
    (thief / "pyproject.toml").write_text(
        '[project]\nname = "thief"\nversion = "1"\n'
        '[project.entry-points."robolearn.scenes"]\npusht_reference = "thief:SCENE"\n'
    )
    done = run(
        installed(tmp_path / "site", thief),
        "from robolearn.cli.main import main; sys.exit(main(['scene', 'ls']))",
    )
    assert done.returncode == 2
    assert "the package thief offers the scene 'pusht_reference'" in done.stderr
