"""Every code block of README and docs runs, or its page says why not where readers do not look."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval.trials.table import TrialStore
from hardware.cell.load import load_cell
from robolearn.capture.config import CaptureConfig
from robolearn.cli.main import main
from robolearn.config import from_dict, load_config
from robolearn.operations.collect import CollectConfig
from robolearn.operations.lab.workcell import load_lab
from robolearn.operations.suites import open_suite
from robolearn.operations.train import load_experiment
from sim.scene.load import load_scene
from tests.docs_blocks import (
    LANGUAGES,
    ROOT,
    Block,
    blocks,
    blocks_of,
    cut,
    small_configs,
    written,
)
from tests.eval.report_folder import trial

BLOCKS = blocks()
# What nobody runs, by page; more are added here only with a reason in the page.
SKIPPED: dict[str, int] = {
    "README.md": 2,
    "calibration.md": 2,
    "cameras.md": 1,
    "collecting.md": 6,
    "data_format.md": 2,
    "deploy.md": 8,
    "lab.md": 1,
    "new_robot.md": 4,
    "practice.md": 5,
    "reading.md": 1,
    "remote.md": 3,
    "rendering.md": 1,
    "results.md": 62,
    "robots.md": 3,
    "real_to_sim.md": 12,
    "scene_format.md": 4,
    "statistics.md": 1,
    "studio.md": 2,
    "tasks.md": 1,
    "teleoperation.md": 5,
    "training.md": 2,
    "trials.md": 2,
    "trust.md": 3,
    "worlds.md": 2,
}


def run(*words: str) -> None:
    assert main(list(words)) == 0, " ".join(words)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What pages take for granted: configs, a store, two runs, results; made once."""
    desk = tmp_path_factory.mktemp("docs") / "desk"
    desk.mkdir()
    shutil.copytree(ROOT / "configs", desk / "configs")
    small_configs(desk / "configs")
    (desk / "runs").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(desk)
        run("data", "import", "--out", "STORE", "--limit", "5")
        run("data", "export", "STORE", "--format", "diffusion-policy", "--out", "SRC")
        for name, config in (("flow", "pusht_flow_demo"), ("diffusion", "pusht_diffusion")):
            train = ("train", "--config", f"configs/train/{config}.yaml", "--store", "STORE")
            run(*train, "--out", f"runs/{name}")
        names = [f"{kind}-{k}" for kind in ("flow", "act") for k in range(3)]
        for folder, policies in (("a", ["flow-0"]), ("b", ["act-0"]), (".", names)):
            with TrialStore(desk / "results" / folder) as table:
                for policy in policies:
                    good = [k % 4 != 0 or policy == "act-1" for k in range(12)]
                    table.add([trial(policy, "gym_pusht", k, 0.5, g) for k, g in enumerate(good)])
    (desk / "pairs.csv").write_text("a,b\n" + "1,0\n1,1\n0,0\n1,0\n" * 3)
    return desk


# Names under which pages know what is prepared.
LINKS = {
    "STORE": ("runs/store", "runs/own", "runs/demo/import/store"),
    str(ROOT / "sim/scenes/pusht_naive"): ("my_scene", "runs/demo/pusht_identified"),
    "runs/flow": ("RUN", "runs/pusht_flow", "runs/full/pusht_flow"),
}


@pytest.fixture
def desk(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what is prepared, and the working folder."""
    folder = tmp_path / "desk"
    shutil.copytree(prepared, folder, symlinks=True)
    for there, names in LINKS.items():
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder / there, folder / name)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    return folder


def marked(block: Block) -> Any:
    marks = [pytest.mark.slow, pytest.mark.timeout(600)] if block.slow else []
    if block.skip:
        marks.append(pytest.mark.skip(reason=block.skip))
    return pytest.param(block, id=block.name, marks=marks)


def of(language: str) -> list[Any]:
    return [marked(b) for b in BLOCKS if b.language == language]


@pytest.mark.parametrize("block", of("bash"))
def test_commands_run(block: Block, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands = [c for c in block.commands() if not block.left_out(c)]
    for k, command in enumerate(commands):
        # What a block makes is not there before it.
        for place in set(written(command)) - _named(commands[:k]):
            shutil.rmtree(desk / place, ignore_errors=True)
            (desk / place).unlink(missing_ok=True)
    for command in commands:
        words = cut(command)
        while "=" in words[0]:
            name, value = words.pop(0).split("=", 1)
            monkeypatch.setenv(name, value)
        assert words[0] == "robolearn", f"{words[0]}: say 'without' or 'skip', and why"
        assert main(words[1:]) == 0, " ".join(command)


def _named(commands: list[list[str]]) -> set[str]:
    return {word for command in commands for word in command}


@pytest.mark.parametrize("block", of("python"))
def test_python_runs(block: Block, desk: Path) -> None:
    names: dict[str, Any] = {"__name__": "page"}
    page = [b for b in BLOCKS if (b.page, b.language, b.skip) == (block.page, "python", "")]
    for earlier in page[: page.index(block) + 1]:
        exec(compile(earlier.text, f"docs/{block.page}", "exec"), names)


@pytest.mark.parametrize("block", of("yaml"))
def test_configs_load(block: Block, tmp_path: Path) -> None:
    raw = yaml.safe_load(block.text)
    if {"cameras", "sets"} <= set(raw):
        from_dict(CaptureConfig, raw)
        return
    raw = {"robot": raw} if "driver" in raw else raw
    raw |= {"subset": 1} if "conditions" in raw else {}
    base = yaml.safe_load((ROOT / block.base).read_text(encoding="utf-8"))
    folder = tmp_path / "beside"
    shutil.copytree((ROOT / block.base).parent, folder)
    path = folder / Path(block.base).name
    path.write_text(yaml.safe_dump(laid_over(base, raw)), encoding="utf-8")
    if "robot" in raw:
        load_cell(path)
    elif "lab" in raw:
        load_lab(path)
    elif {"data", "algorithm"} & set(raw):
        load_experiment(path)
    elif "world" in raw:
        load_config(CollectConfig, path)
    elif path.name == "scene.yaml":
        load_scene(folder)
    else:
        open_suite(path)


def laid_over(base: dict[str, Any], raw: dict[str, Any]) -> dict[str, Any]:
    """``base`` with the keys of ``raw`` in their places; what is of another kind replaces."""
    made = dict(base)
    for name, value in raw.items():
        below: Any = made.get(name)
        both = isinstance(below, dict) and isinstance(value, dict)
        other = name == "trackers" or (both and "kind" in value)
        made[name] = laid_over(below, value) if both and not other else value
    return made


def test_no_command_hides_in_a_drawing() -> None:
    for block in BLOCKS:
        assert block.language in LANGUAGES, f"{block.name}: no runner for '{block.language}'"
        if not block.language:
            first = {line.split(maxsplit=1)[0] for line in block.text.split("\n") if line.strip()}
            # A table of the layers begins with the name of the package.
            first -= {"robolearn"} if "robolearn.cli" in first else set()
            assert not first & {"robolearn", "python", "make", "pip"}, block.name


def test_what_does_not_run_is_listed_here_with_its_reason() -> None:
    skipped: dict[str, int] = {}
    for block in BLOCKS:
        assert not block.skip or len(block.skip.split()) > 2, f"{block.name}: say why"
        assert not block.without or len(block.why.split()) > 2, f"{block.name}: say why"
        for name in block.without:
            assert any(
                Block("", 0, "", "", without=(name,)).left_out(c) for c in block.commands()
            ), f"{block.name} has no command '{name}'"
        if block.skip or block.without:
            skipped[block.page] = skipped.get(block.page, 0) + 1
    assert skipped == SKIPPED


def test_marks_are_read_and_odd_ones_refused() -> None:
    page = (
        "<!-- test: slow -->\n<!-- test: without lab; it serves -->\n```bash\nrobolearn lab\n```\n"
    )
    (block,) = blocks_of("x.md", page)
    assert (block.slow, block.without, block.why) == (True, ("lab",), "it serves")
    assert block.left_out(["robolearn", "lab"])
    for odd in ("skip", "later", "without lab", "with nowhere.yaml"):
        with pytest.raises(ValueError, match=r"x\.md"):
            blocks_of("x.md", f"<!-- test: {odd} -->\n```bash\n```\n")
    assert cut(["evaluate", "--conditions", "500", "--out", "x"])[2] == "2"
