"""Commands that documents show are those that the console script reads."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from robolearn.operations.studio.documents.command_line import command_line

COMMANDS = (Path(__file__).parents[5] / "docs" / "commands.md").read_text(encoding="utf-8")
SHOWN = (Path(__file__).parents[5] / "robolearn/operations/studio/documents").rglob("*.py")


def test_words_are_quoted_and_options_are_written_out() -> None:
    line = command_line("data ls", "my store", seeds=(0, 1), dry_run=True, out=None, yes=False)
    assert shlex.split(line) == ["robolearn", "data", "ls", "my store", "--seeds", "0", "1",
                                 "--dry-run"]  # fmt: skip


def test_every_verb_that_a_document_shows_exists() -> None:
    verbs = {v for p in SHOWN for v in re.findall(r'command_line\(\s*"([a-z ]+)"', p.read_text())}
    assert len(verbs) >= 10
    for verb in verbs:
        assert f"robolearn {verb}" in COMMANDS, verb
