"""``robolearn data judge`` lets a classifier of success annotate how episodes ended."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import tyro

from robolearn.cli.shared.parse import counting, parse, print_json, say


@dataclass(frozen=True)
class Judge:
    """Annotate outcomes by the last pictures, where nobody has: success as a classifier sees it."""

    # Store whose episodes are judged.
    store: tyro.conf.Positional[Path]
    # Folder that 'robolearn success' wrote.
    classifier: tyro.conf.Positional[Path]
    # Print one JSON document.
    json: bool = False


def judge(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Judge, argv, "data judge", Judge.__doc__ or "")
    from robolearn.operations.success import judge_store

    with counting("judge", quiet=args.json) as show:
        done = judge_store(args.store, args.classifier, on_read=show)
    if args.json:
        print_json(dataclasses.asdict(done))
        return 0
    total = len(done.successes) + len(done.failures)
    say(f"{len(done.successes)} of {total} episodes judged are a success; {done.left} left alone")
    say(f"the classifier {done.classifier}: {done.error}")
    return 0


JUDGE_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"judge": (Judge, judge)}
