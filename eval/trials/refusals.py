"""Notes that a second writer was refused, so that the first one hears of it.

Whoever is refused leaves a line in the results folder; the writer takes the lines when it closes.
"""

from __future__ import annotations

import contextlib
import os
from datetime import UTC, datetime
from pathlib import Path

FILE_NAME = "refused_writers.txt"


def leave_note(folder: Path) -> None:
    """Say that this process wanted to write into ``folder``; where it may not, nothing."""
    line = f"process {os.getpid()} at {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n"
    with contextlib.suppress(OSError), (folder / FILE_NAME).open("a", encoding="utf-8") as stream:
        stream.write(line)


def take_notes(folder: Path) -> tuple[str, ...]:
    """Who wanted to write since the last call, in words; the notes are gone then."""
    path = folder / FILE_NAME
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        path.unlink()
    except OSError:
        return ()
    return tuple(lines)
