"""What the commands share: argument parsing, JSON output, stage lines, logging."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Generator
from typing import Any, TypeVar

import tyro

T = TypeVar("T")


def parse(
    kind: type[T], argv: list[str], prog: str, description: str, default: T | None = None
) -> T:
    """Parse ``argv`` into the dataclass ``kind``; errors exit with 2, help with 0."""
    logging.basicConfig(
        level=os.environ.get("ROBOLEARN_LOG", "WARNING").upper(),
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    if default is not None:
        return tyro.cli(
            kind, args=argv, prog=f"robolearn {prog}", description=description, default=default
        )
    return tyro.cli(kind, args=argv, prog=f"robolearn {prog}", description=description)


def print_json(value: Any) -> None:
    """One JSON document on standard output, flushed."""
    print(json.dumps(value, indent=2, sort_keys=False, default=_plain), flush=True)


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def say(text: str, *, quiet: bool = False) -> None:
    """One plain line for a person, flushed (nothing when ``quiet``, e.g. with --json)."""
    if not quiet:
        print(text, flush=True)


@contextlib.contextmanager
def progress(description: str, total: int, *, quiet: bool = False) -> Generator[Any]:
    """A progress bar on standard error; yields ``advance(n=1, note="")``."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=console,
        transient=not console.is_terminal,
        disable=quiet,
    ) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(n: int = 1, note: str = "") -> None:
            bar.update(task, advance=n, note=note)

        yield advance
