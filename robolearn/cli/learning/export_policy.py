"""``robolearn export-policy RUN`` writes the policy of a run as an ONNX graph, compared with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.shared.parse import parse, print_json, say


@dataclass(frozen=True, slots=True)
class Args:
    """Write the policy of a run as an ONNX graph with a dynamic batch size, compare both, and time
    them.
    """

    # Run directory.
    run: Annotated[Path, tyro.conf.Positional]
    # File to write; left out: RUN/policy.onnx, where --runtime onnx looks for it.
    out: Path | None = None
    # Threads of both when they are timed.
    threads: int = 1
    # Load the run though its files are not what was written (config, statistics, weights ...).
    accept_edited: bool = False
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "export-policy", Args.__doc__ or "")
    from robolearn.operations.deploy.export import export_policy

    done = export_policy(args.run, args.out, threads=args.threads, accept_edited=args.accept_edited)
    graph, torch_ms, onnx_ms = done.graph, done.torch_ms, done.onnx_ms
    if args.json:
        print_json(dataclasses.asdict(graph) | {"torch_ms": torch_ms, "onnx_ms": onnx_ms})
        return 0
    say(f"{graph.path}: {graph.bytes / 1e6:.1f} MB, differs by at most {graph.difference:.2g} (SI)")
    say(f"one chunk: torch {torch_ms:.2f} ms, ONNX Runtime {onnx_ms:.2f} ms (median, batch 1)")
    return 0
