"""Parses arguments, prints JSON and stage lines, and sets up logging for all commands."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import logging
import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Generator
from typing import Any, TypeVar, get_type_hints

import tyro

from robolearn.config import check_finite, check_seeds
from robolearn.errors import ConfigError, did_you_mean
from robolearn.machine.interrupt import check

T = TypeVar("T")


def parse(
    kind: type[T], argv: list[str], prog: str, description: str, default: T | None = None
) -> T:
    """Parse ``argv`` into the dataclass ``kind``; errors exit with 2, help with 0."""
    level = os.environ.get("ROBOLEARN_LOG", "WARNING").upper()
    levels = list(logging.getLevelNamesMapping())
    if level not in levels:
        raise ConfigError(f"ROBOLEARN_LOG is '{level}', which is no level of logging: {levels}")
    logging.basicConfig(
        level=level,
        format="%(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    given: dict[str, Any] = {} if default is None else {"default": default}
    complaint, page = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint), contextlib.redirect_stdout(page):
            run: Any = tyro.cli
            args: T = run(
                kind, args=argv, prog=f"robolearn {prog}", description=description, **given
            )
    except SystemExit as error:
        if error.code:
            near = _near_options(complaint.getvalue(), kind, argv)
            text = f"robolearn {prog}: {one_line(complaint.getvalue())}.{near}"
            report_error(text, 2, as_json="--json" in argv)
        else:
            print(plain_help(page.getvalue()), end="", flush=True)
        raise
    try:
        check_seeds(args)
    except ValueError as error:
        raise ConfigError(f"--{error}") from error
    check_finite(args)
    return args


# What help pages say of options, and what of it a person needs; the drawn box keeps its width.
_HELP = (
    (re.compile(r"\{None\}\|(\S+)"), r"\1"),
    (re.compile(r"\[\[([^\[\]\s]+) \[\1 \.\.\.\]\]\]"), r"[\1 ...]"),
    (re.compile(r"\[([^\[\]\s]+) \[\1 \.\.\.\]\]"), r"[\1 ...]"),
    (re.compile(r"\(default:(?: None| ''| )\)"), ""),
)
_SPLIT_DEFAULT = re.compile(r"\(default:(\s*│?\n│?\s*)(None|'')\)")


def plain_help(page: str) -> str:
    """A help page without the parser's own words for what is optional and what is left out."""
    page = _SPLIT_DEFAULT.sub(lambda m: " " * 9 + m[1] + " " * (len(m[2]) + 1), page)
    for pattern, words in _HELP:
        page = pattern.sub(lambda m, words=words: m.expand(words).ljust(len(m[0])), page)
    return "".join(f"{line.rstrip()}\n" for line in page.splitlines())


def report_error(text: str, code: int, *, as_json: bool) -> None:
    """An error on standard error; with --json also as a document on standard output."""
    print(printable(text), file=sys.stderr)
    if as_json:
        print_json({"error": text.partition(": ")[2].strip(), "exit_code": code})


def one_line(boxed: str) -> str:
    """The text of a drawn box: its lines joined, its sections (between rules) apart by ';'.

    Boxes are drawn with ``╭│─``, or with ``-`` alone where the terminal knows no others.
    """
    lines = [line.strip("│ ") for line in boxed.splitlines() if not line.startswith(("╭", "╰"))]
    # Which of an optional value's types refused it, and how, only repeats the first sentence.
    drawn = " ".join(";" if line and set(line) <= {"─", "-"} else line for line in lines)
    sections = re.sub(r"Got errors:[^;]*", "", drawn).replace("{None}|", "").split(";")
    return "; ".join(" ".join(section.split()).rstrip(".") for section in sections if section)


def _near_options(said: str, kind: type[Any], argv: list[str]) -> str:
    if "Unrecognized" not in said:
        return ""
    known = [f"--{name.replace('_', '-')}" for name in _option_names(kind)]
    odd = [word.partition("=")[0] for word in argv if word.startswith("--")]
    near = "".join(did_you_mean(word, known) for word in odd if word not in known)
    listed = "" if "Perhaps you meant" in said else f" Options are {', '.join(known)}."
    return near or listed


def typed_options(kind: type[Any], argv: list[str]) -> frozenset[str]:
    """The options among ``argv`` by field, also those with the value that they have anyway."""
    words = {word.partition("=")[0].replace("_", "-") for word in argv if word.startswith("--")}
    found: set[str] = set()
    for name in _option_names(kind):
        option = name.replace("_", "-")
        if words & {f"--{option}", f"--no-{option}"}:
            found.add(name)
    return frozenset(found)


def _option_names(kind: type[Any]) -> list[str]:
    """Options by field; a group of options without a prefix counts by its own fields."""
    types, names = get_type_hints(kind), list[str]()
    for f in dataclasses.fields(kind):
        group = dataclasses.is_dataclass(types[f.name])
        names += _option_names(types[f.name]) if group else [f.name]
    return names


def finite(value: float) -> float | None:
    """JSON knows no NaN."""
    return value if math.isfinite(value) else None


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
        print(printable(text), flush=True)


def printable(text: str) -> str:
    """``text`` with control characters written out: recordings may hold escape codes.

    A terminal that got them would do what they say (colours, titles, erased lines).
    """
    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if c not in "\n\t" and unicodedata.category(c) in ("Cc", "Cf", "Cs")
        else c
        for c in text
    )


@contextlib.contextmanager
def progress(description: str, total: int | None, *, quiet: bool = False) -> Generator[Any]:
    """A progress bar on standard error; yields ``advance(n=1, note="", total=None)``. ``total``:
    how many there are, as far as it is known.
    """
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
        # Without a terminal a bar would leave blank lines in the log.
        disable=quiet or not console.is_terminal,
    ) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(n: int = 1, note: str = "", total: int | None = None) -> None:
            check()
            bar.update(task, advance=n, note=note, total=total)

        yield advance


@contextlib.contextmanager
def counting(description: str, *, quiet: bool = False) -> Generator[Callable[[int, int], None]]:
    """A progress bar that is drawn when the yielded ``show(done, of)`` is first called: only then
    is it known of how many, and questions to the operator are answered.
    """
    with contextlib.ExitStack() as stack:
        advances: list[Any] = []
        shown = 0

        def show(done: int, of: int) -> None:
            nonlocal shown
            if not advances:
                advances.append(stack.enter_context(progress(description, of, quiet=quiet)))
            advances[0](done - shown)
            shown = done

        yield show
