"""The documents say what exists: commands, options, files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.command_reference import PAGE, help_text, reference

ROOT = Path(__file__).parents[1]
# Commands with verbs of their own.
GROUPS = ("calibrate", "data", "hardware", "scene", "servos", "stats", "suite")
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def _command_lines() -> list[str]:
    lines: list[str] = []
    for page in PAGES:
        for block in re.findall(r"```(?:bash|console|sh)\n(.*?)```", page.read_text(), re.DOTALL):
            joined = block.replace("\\\n", " ")
            lines += [
                line.split("#")[0].strip().removeprefix("$ ").removeprefix(".venv/bin/")
                for line in joined.splitlines()
                if re.match(r"^(\$ )?(\.venv/bin/)?robolearn ", line.strip())
            ]
    return sorted(set(lines))


def test_documented_commands_and_options_exist() -> None:
    lines = _command_lines()
    assert len(lines) > 10
    for line in lines:
        words = line.split()[1:]
        nested = words[0] in GROUPS and len(words) > 1
        head = tuple(words[: 2 if nested else 1])
        text = help_text(*head)
        assert text, f"'{line}': there is no 'robolearn {' '.join(head)}'"
        for option in re.findall(r"(?<=\s)--[a-z][a-z-]*", line):
            assert option in text, f"'{line}': 'robolearn {' '.join(head)}' has no {option}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_and_named_files_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name} links to {target}"
    for name in re.findall(
        r"`((?:configs|docs|robolearn|sim|hardware|policies|eval)/[\w./-]+)`", text
    ):
        assert (ROOT / name).exists(), f"{page.name} names {name}"


def test_the_command_reference_is_what_help_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), (
        "run 'python -m tests.command_reference' to write docs/commands.md anew"
    )
