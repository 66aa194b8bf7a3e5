"""Writes down what training says: means between two lines, and metrics.jsonl."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from robolearn.learning import Losses

JOURNAL = "metrics.jsonl"
OnLog = Callable[[int, Mapping[str, float]], None]
"""Told every line of the log: step and figures."""


class Meter:
    """Means between two lines of the log."""

    def __init__(self) -> None:
        # Tensors where figures come as such: they are waited for when somebody reads them.
        self._sums: dict[str, float | Tensor] = {}
        self._counts: dict[str, int] = {}
        self.last: Mapping[str, float] = {}

    def put(self, figures: Mapping[str, float]) -> None:
        """Figures that are not means over steps."""
        for name, value in figures.items():
            self._sums[name], self._counts[name] = value, 1

    def add(self, losses: Losses) -> None:
        """The figures of one step."""
        named = {f"loss/{k}": v for k, v in losses.by_group.items()} | dict(losses.metrics)
        for name, value in named.items():
            added = value.detach().double() if isinstance(value, Tensor) else value
            self._sums[name] = self._sums.get(name, 0.0) + added
            self._counts[name] = self._counts.get(name, 0) + 1

    def now(self) -> Mapping[str, float]:
        """Means since the last line."""
        return {k: float(v) / self._counts[k] for k, v in self._sums.items()} or self.last

    def flush(self) -> Mapping[str, float]:
        """Means since the last line, which this begins anew."""
        self.last = self.now()
        self._sums, self._counts = {}, {}
        return self.last

    def to_json(self) -> dict[str, Any]:
        """Sum and count of every figure since the last line, for a checkpoint between two lines."""
        return {name: [float(v), self._counts[name]] for name, v in self._sums.items()}

    def restore(self, raw: Mapping[str, Any]) -> None:
        """Go on from what :meth:`to_json` said."""
        self._sums = {name: float(value) for name, (value, _) in raw.items()}
        self._counts = {name: int(count) for name, (_, count) in raw.items()}


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
