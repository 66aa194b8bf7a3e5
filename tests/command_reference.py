"""Writes ``docs/commands.md`` from what ``--help`` says: ``python -m tests.command_reference``.

A test compares the page with the commands, so that it cannot go stale.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
from pathlib import Path
from unittest import mock

from robolearn.cli.main import COMMANDS, main

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
WIDTH = 100
HEAD = """# Every command

Generated from `--help` (`python -m tests.command_reference`). `robolearn COMMAND --help` prints the
same at a terminal; [index.md](index.md) says which command does what you want.
"""


def reference() -> str:
    """The page: a section per command, a smaller one per verb."""
    parts = [HEAD]
    for name in COMMANDS:
        text = help_text(name)
        verbs = _verbs(text)
        parts += [f"## `robolearn {name}`\n", _block(text)]
        for verb in verbs:
            parts += [f"### `robolearn {name} {verb}`\n", _block(help_text(name, verb))]
    return "\n".join(parts)


def _verbs(text: str) -> list[str]:
    _, found, rest = text.partition("\nverbs:\n")
    return re.findall(r"^  ([a-z-]+)  ", rest, re.MULTILINE) if found else []


@functools.cache
def help_text(*words: str) -> str:
    """What ``robolearn WORDS --help`` prints; nothing where there is no such command."""
    out = io.StringIO()
    plain = {"COLUMNS": str(WIDTH), "NO_COLOR": "1", "TERM": "dumb"}
    with (
        mock.patch.dict(os.environ, plain),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(io.StringIO()),
        contextlib.suppress(SystemExit),
    ):
        main([*words, "--help"])
    return out.getvalue()


def _block(text: str) -> str:
    """Help without the rules that are drawn around groups of options."""
    lines = text.splitlines()
    shown = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if _rule(after):
            shown.append(f"{line.strip()}:")
        elif not _rule(line):
            shown.append(line.rstrip())
    return "```text\n" + "\n".join(shown).strip() + "\n```\n"


def _rule(line: str) -> bool:
    return bool(line.strip()) and set(line.strip()) == {"-"}


if __name__ == "__main__":
    PAGE.write_text(reference(), encoding="utf-8")
