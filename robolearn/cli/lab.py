"""``robolearn lab`` starts the virtual workcell (emulated robot, tracker; PyBullet or MuJoCo)."""

from __future__ import annotations

import dataclasses
import json
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robolearn.cli.shared.parse import parse, say
from robolearn.operations.lab.options import LabOptions

if TYPE_CHECKING:
    from robolearn.operations.lab.serve import Serving


@dataclass(frozen=True)
class LabArgs:
    """Arguments of the command."""

    # YAML file; its key 'lab' describes the workcell.
    config: Path
    # How it is served.
    options: Annotated[LabOptions, tyro.conf.arg(name="")] = field(default_factory=LabOptions)
    # Exit when standard input closes (for programs that start a lab).
    follow_stdin: bool = False


def main(argv: list[str]) -> int:
    """Run the command."""
    args = parse(LabArgs, argv, "lab", "Run the virtual lab until SIGTERM or Ctrl-C.")
    from robolearn.operations.lab.serve import serve_lab

    stop: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda n, _frame: stop.append(n))
    follow = sys.stdin.fileno() if args.follow_stdin else None
    serve_lab(args.config, args.options, ready=_announce, stop=lambda: bool(stop), follow=follow)
    return 0


def _announce(serving: Serving) -> None:
    for line in serving.devices:
        say(line)
    say(f"ready {json.dumps(dataclasses.asdict(serving.where))}")
