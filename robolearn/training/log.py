"""Writes and reads metrics.jsonl, the log of a training."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from robolearn.errors import DataError

log = logging.getLogger(__name__)

JOURNAL = "metrics.jsonl"
OnLog = Callable[[int, Mapping[str, float]], None]
"""Told every line of the log: step and figures."""


class Journal:
    """metrics.jsonl, and whoever else wants to know its lines."""

    def __init__(self, run_dir: Path, on_log: OnLog | None, *, writes: bool) -> None:
        self._path, self._on_log, self._writes = run_dir / JOURNAL, on_log, writes

    def line(self, step: int, figures: Mapping[str, Any]) -> None:
        """One line of figures."""
        if not self._writes:
            return
        with self._path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"step": step, **figures}) + "\n")
        if self._on_log is not None:
            self._on_log(step, {name: float(value) for name, value in figures.items()})

    def continue_at(self, step: int) -> None:
        """Drop lines past ``step``: the steps after the checkpoint will be done again."""
        if not self._writes or not self._path.is_file():
            return
        kept: list[str] = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                if int(json.loads(line)["step"]) <= step:
                    kept.append(line)
            except (ValueError, KeyError):
                continue  # A line cut short by a kill.
        self._path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")


def logged(run_dir: Path) -> tuple[Mapping[str, Any], ...]:
    """The lines of a run's log; none where there is no log. A run that was killed while it logged
    ends in half a line, which is left out; :class:`DataError` for any other that does not read.
    """
    path = run_dir / JOURNAL
    text = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    lines: list[Mapping[str, Any]] = []
    for number, line in enumerate(text, 1):
        try:
            lines.append(json.loads(line))
        except ValueError as error:
            if number < len(text):
                raise DataError(f"'{path}', line {number}: {error}") from error
            log.warning("'%s' ends in half a line; it is left out", path)
    return tuple(lines)
