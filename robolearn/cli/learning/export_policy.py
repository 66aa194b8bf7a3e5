"""``robolearn export-policy RUN``: the policy of a run as an ONNX graph, compared with it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.contracts import Policy


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
    from policies.registry import load_policy
    from robolearn.inference.onnx import GRAPH, OnnxPolicy, export_onnx
    from robolearn.operations.builders import policy_builder
    from robolearn.training.run_directory import policy_hash

    run = policy_builder(args.run, args.threads).run_dir
    out = run / GRAPH if args.out is None else args.out.expanduser()
    if out.is_dir() or not out.parent.is_dir():
        raise ConfigError(f"--out '{out}': expected a file in a folder that exists")
    policy = load_policy(run, args.threads, accept_edited=args.accept_edited)
    done = export_onnx(policy, out, policy_hash(run))
    torch_ms, onnx_ms = _times_ms(policy, OnnxPolicy.load(out, args.threads))
    if args.json:
        print_json(dataclasses.asdict(done) | {"torch_ms": torch_ms, "onnx_ms": onnx_ms})
        return 0
    say(f"{done.path}: {done.bytes / 1e6:.1f} MB, differs by at most {done.difference:.2g} (SI)")
    say(f"one chunk: torch {torch_ms:.2f} ms, ONNX Runtime {onnx_ms:.2f} ms (median, batch 1)")
    return 0


def _times_ms(policy: Policy, other: Policy, repeats: int = 30) -> tuple[float, float]:
    """Median times of one chunk [ms], in turns."""
    import time

    import numpy as np

    from robolearn.types import PolicyInput

    seen: dict[str, Any] = {
        s.name: np.zeros((1, policy.spec.n_obs, *s.shape), dtype=s.dtype)
        for s in policy.spec.task_space.observations
    }
    request = PolicyInput(seen, np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))
    times = np.zeros((repeats, 2))
    for i in range(repeats):
        for j, each in enumerate((policy, other)):
            begin = time.perf_counter()
            each.sample(request)
            times[i, j] = 1e3 * (time.perf_counter() - begin)
    median = np.median(times, axis=0)
    return round(float(median[0]), 3), round(float(median[1]), 3)
