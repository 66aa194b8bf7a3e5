"""The tutorial, from an empty folder: every file is written, every command run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins import installed

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
# The same with less to compute: what is learned is not judged here.
SMALLER = {
    "steps: 600, warmup: 50, log_every: 100, checkpoint_every: 600": (
        "steps: 100, warmup: 10, log_every: 50, checkpoint_every: 100"
    ),
    "--conditions 20": "--conditions 2",
    "--start-lab --episodes 2": "--start-lab --episodes 1",
}
BLOCK = re.compile(r"(?:^`([\w./]+)`\n)?^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture
def desk(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """An empty folder and an environment in which ``robolearn`` is this source tree's."""
    commands = tmp_path / "bin"
    commands.mkdir()
    command = commands / "robolearn"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m robolearn.cli.main "$@"\n')
    command.chmod(0o755)
    # What pip does with the package is imitated: an entry in the module path, and its metadata.
    (commands / "pip").write_text("#!/bin/sh\nexit 0\n")
    (commands / "pip").chmod(0o755)
    desk = tmp_path / "desk"
    desk.mkdir()
    return desk, {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "ROBOLEARN": str(ROOT),
    }


def test_every_block_of_the_tutorial_runs(desk: tuple[Path, dict[str, str]]) -> None:
    folder, environment = desk
    paths = [str(ROOT), str(folder)]
    output, page = "", PAGE.read_text(encoding="utf-8")
    for whole, smaller in SMALLER.items():
        assert page.count(whole) == 1, f"the page has no '{whole}' any more"
        page = page.replace(whole, smaller)
    for name, language, text in BLOCK.findall(page):
        if name:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            continue
        assert language == "bash", f"a block without a file's name: {text}"
        if "pip install" in text:
            (folder / "mylab" / "__init__.py").touch()
            paths = [str(ROOT), *installed(folder.parent / "site", folder)]
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=folder,
            env={**environment, "PYTHONPATH": ":".join(paths)},
            capture_output=True,
            text=True,
            timeout=240,
        )
        output += done.stdout
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"
    assert "40 episodes" in output
    assert (folder / "runs" / "report.html").stat().st_size > 10_000
    shown = re.findall(r"^.*success.*$", output, re.MULTILINE)
    assert shown, output
