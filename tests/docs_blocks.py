"""Reads the code blocks of README and docs, and prepares a folder in which they can run.

A block runs as it stands, but in a folder whose configs train for two steps and try two starts, and
with counts on the command line cut (:data:`MOST`). What is said about a block stands before it, in
comments that readers do not see:

    <!-- test: slow -->                              only with the slow tests
    <!-- test: skip, why -->                         never runs
    <!-- test: without lab, servos scan; why -->     all of it but these commands
    <!-- test: with configs/hardware/lab_x.yaml -->  the file that a YAML block is laid over
"""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
# Their blocks have tests of their own, or are generated from what --help says.
ELSEWHERE = {
    "commands.md": "tests/test_docs.py",
    "python.md": "tests/test_python_page.py",
    "tutorial.md": "tests/test_tutorial.py",
}
LANGUAGES = {"bash", "python", "yaml", "toml", ""}
_BLOCK = re.compile(
    r"((?:^<!-- test: [^\n]*-->\n)*)^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
_MARK = re.compile(r"<!-- test: (\w+)(?:,? (.*?))? -->")
# Counts of the command line: there are never more than these.
MOST = {
    "--episodes": 2,
    "--conditions": 2,
    "--n": 3,
    "--limit": 2,
    "--workers": 0,
    "--batch": 2,
    "--videos": 1,
    "--choose": 2,
    "--report": 2,
    "--evaluate-conditions": 2,
    "--fit.steps": 2,
    "--nproc-per-node": 1,
}


@dataclass(frozen=True, slots=True)
class Block:
    """A code block of a page, and what is said about running it."""

    page: str
    line: int
    language: str
    text: str
    slow: bool = False
    # Why it never runs; "" if it does.
    skip: str = ""
    # Commands of it that do not run, and why.
    without: tuple[str, ...] = ()
    why: str = ""
    base: str = ""

    @property
    def name(self) -> str:
        return f"{self.page}-{self.line}"

    def commands(self) -> list[list[str]]:
        """The words of every command, as a shell would split them."""
        found: list[list[str]] = []
        for line in self.text.replace("\\\n", " ").splitlines():
            words: list[str] = []
            for word in [*shlex.split(line, comments=True), "&&"]:
                if word != "&&":
                    words.append(word)
                elif words:
                    found.append(words)
                    words = []
        return found

    def left_out(self, command: list[str]) -> bool:
        """Whether a command of it does not run."""
        text = " ".join(command).removeprefix("robolearn ")
        return any(text.startswith(name) for name in self.without)


def blocks() -> list[Block]:
    """Every block of every page that has no test of its own."""
    found: list[Block] = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        if page.name not in ELSEWHERE:
            found += blocks_of(page.name, page.read_text(encoding="utf-8"))
    return found


def blocks_of(page: str, text: str) -> list[Block]:
    """Those of one page."""
    found: list[Block] = []
    for match in _BLOCK.finditer(text):
        said: dict[str, Any] = {}
        for kind, rest in _MARK.findall(match[1]):
            if kind == "slow" and not rest:
                said["slow"] = True
            elif kind == "skip" and rest:
                said["skip"] = rest
            elif kind == "without" and "; " in rest:
                names, said["why"] = rest.split("; ", 1)
                said["without"] = tuple(names.split(", "))
            elif kind == "with" and (ROOT / rest).is_file():
                said["base"] = rest
            else:
                raise ValueError(f"{page}: '{kind} {rest}' says nothing about a block")
        line = text[: match.start(2)].count("\n") + 1
        found.append(Block(page, line, match[2], match[3], **said))
    return found


def cut(words: list[str]) -> list[str]:
    """The same command with smaller counts."""
    made = list(words)
    for i, word in enumerate(words[:-1]):
        if word in MOST and words[i + 1].isdecimal():
            made[i + 1] = str(min(int(words[i + 1]), MOST[word]))
    return made


def written(command: list[str]) -> list[str]:
    """What a command is told to write."""
    return [b for a, b in itertools.pairwise(command) if a in ("--out", "--plot")]


def small_configs(folder: Path) -> None:
    """The configs in ``folder`` with two training steps, three starts, short episodes."""
    for path in folder.rglob("*.yaml"):
        shorten = _SMALL.get(path.parent.name)
        if shorten is not None:
            raw = yaml.safe_load(path.read_text(encoding="utf-8"))
            shorten(raw)
            path.write_text(yaml.safe_dump(raw, sort_keys=False), encoding="utf-8")


def _small_train(raw: dict[str, Any]) -> None:
    fit = {"steps": 2, "warmup": 1, "log_every": 1, "checkpoint_every": 2}
    raw["fit"] = {k: v for k, v in raw["fit"].items() if k != "max_minutes"} | fit
    raw["algorithm"]["batch_size"] = 4


def _small_suite(raw: dict[str, Any]) -> None:
    raw["conditions"] = raw["conditions"][:4]
    raw |= {"subset": 2, "max_steps": min(raw["max_steps"], 6)}


def _small_collection(raw: dict[str, Any]) -> None:
    raw["max_steps"] = 20


def _small_sweep(raw: dict[str, Any]) -> None:
    stages = [{"steps": 2, "conditions": 2}, {"steps": 3, "conditions": 2}]
    raw |= {"trials": 2, "wave": 2, "stages": stages, "report_runs": 1}


_SMALL: dict[str, Callable[[dict[str, Any]], None]] = {
    "train": _small_train,
    "eval": _small_suite,
    "collect": _small_collection,
    "sweep": _small_sweep,
}
