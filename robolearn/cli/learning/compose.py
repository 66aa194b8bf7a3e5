"""``robolearn compose RUN RUN`` makes one policy of several, weighted on conditions held out."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError
from robolearn.operations.compose_options import ComposeOptions

if TYPE_CHECKING:
    from eval.trials.progress import Progress
    from robolearn.operations.compose import Composed


@dataclass(frozen=True, slots=True)
class Args:
    """Combine trained policies with fields; choose the weight on some conditions, report others."""

    # Run directories of two or more policies (flow, diffusion, mean_flow, shortcut, beso).
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    # Run directory to write.
    out: Path | None = None
    # How they are combined, and on which conditions that is decided.
    options: Annotated[ComposeOptions, tyro.conf.arg(name="")] = field(
        default_factory=ComposeOptions
    )
    # Print the result as JSON only.
    json: bool = False


def main(argv: list[str]) -> int:
    """Combine, choose, report."""
    args = parse(Args, argv, "compose", Args.__doc__ or "")
    if args.out is None:
        raise ConfigError("--out RUN is missing")
    output_folder(args.out, "--out", "a run")
    from robolearn.operations.compose import ComposeListener, compose

    with ExitStack() as stack:
        bars: list[Callable[..., None]] = []

        def begin(trials: int) -> None:
            stack.pop_all().close()
            bars[:] = [stack.enter_context(progress("compose", trials, quiet=args.json))]

        def show(p: Progress) -> None:
            bars[0](p.added, p.policy)

        result = compose(args.runs, args.out, args.options, ComposeListener(begin, show))
    if args.json:
        print_json(dataclasses.asdict(result))
    else:
        _show(result)
    return 0


def _show(result: Composed) -> None:
    for name, value in sorted(result.choosing.items(), key=lambda item: -item[1]):
        say(f"  {name}: {value:.3f} on the conditions to choose on")
    say(f"chosen: {result.operator} {result.weights}; best single policy: {result.best_part}")
    for name, value in result.reported.items():
        say(f"  {name}: {value:.3f} on the reported conditions")
    say(
        f"gain over {result.best_part}: {result.gain:+.3f} [{result.gain_low:+.3f},"
        f" {result.gain_high:+.3f}], {result.pairs} pairs"
    )
    say(result.verdict)
    say(f"run {result.run} policy {result.policy_hash}")
