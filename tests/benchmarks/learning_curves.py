"""Success over the number of demonstrations: trains and evaluates, then draws a figure.

    python -m tests.benchmarks.learning_curves run STORE CONFIG SUITE WORLD OUT COUNTS SEEDS [MORE]
    python -m tests.benchmarks.learning_curves draw FIGURE OUT [OUT ...]

``COUNTS`` and ``SEEDS`` are comma-separated. A seed chooses the demonstrations (the smaller sets
are parts of the larger ones) and trains. ``MORE`` goes to ``robolearn train``. What is there is
kept.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from eval.statistics.intervals import wilson
from robolearn.cli.main import main as robolearn
from robolearn.data.store.store import EpisodeStore
from robolearn.seeding import child_seed

EPISODES = 100


def call(*words: object) -> None:
    """One command of robolearn."""
    code = robolearn([str(w) for w in words])
    if code:
        raise SystemExit(code)


def measure(
    store: Path,
    config: Path,
    suite: Path,
    world: str,
    out: Path,
    count: int,
    seed: int,
    more: list[str],
) -> dict[str, object]:
    """Train on ``count`` demonstrations with ``seed`` and evaluate."""
    ids = [info.id for info in EpisodeStore.open(store).list()]
    order = np.random.default_rng(child_seed(seed, "demonstrations")).permutation(len(ids))
    chosen = [ids[i] for i in sorted(order[:count])]
    name = f"{out}/n{count}_s{seed}"
    part, run, results = (Path(f"{name}_{what}") for what in ("store", "run", "eval"))
    if not part.exists():
        call("data", "filter", store, "--out", part, "--episodes", *chosen)
    more = ["--threads", "1", "--seed", str(seed), *more]
    call("train", "--config", config, "--store", part, "--out", run, "--resume", *more)
    more = ["--conditions", str(EPISODES), "--no-repeat", "--videos", "0", "--workers", "0"]
    call("evaluate", run, "--suite", suite, "--worlds", world, "--out", results, *more)
    cell = json.loads((results / "summary.json").read_text())["results"][0]
    spent = json.loads((run / "provenance.json").read_text())
    return {
        "world": world,
        "count": count,
        "seed": seed,
        "successes": cell["successes"],
        "episodes": cell["n"],
        "cpu_seconds": round(float(spent["fit"]["cpu_seconds"]), 1),
    }


def run(words: list[str]) -> None:
    """All counts and seeds of one task; ``OUT/curve.json`` grows with every run."""
    store, config, suite, world, out, counts, seeds, *more = words
    rows: list[dict[str, object]] = []
    for seed in map(int, seeds.split(",")):
        for count in map(int, counts.split(",")):
            paths = Path(store), Path(config), Path(suite)
            rows.append(measure(*paths, world, Path(out), count, seed, more))
            Path(out, "curve.json").write_text(json.dumps(rows, indent=1))
            print(json.dumps(rows[-1]), flush=True)


def draw(figure: Path, folders: list[Path]) -> None:
    """One line per task over the number of demonstrations, with Wilson's intervals."""
    from matplotlib.figure import Figure

    counts: list[int] = []
    page = Figure(figsize=(5.2, 3.2))
    axes = page.subplots()
    for folder in folders:
        rows = json.loads((folder / "curve.json").read_text())
        counts = sorted({r["count"] for r in rows})
        rates = []
        for count in counts:
            same = [r for r in rows if r["count"] == count]
            rates.append(
                wilson(sum(r["successes"] for r in same), sum(r["episodes"] for r in same))
            )
        middle = [r.value for r in rates]
        bars = [[r.value - r.low for r in rates], [r.high - r.value for r in rates]]
        axes.errorbar(counts, middle, yerr=bars, marker="o", capsize=3, label=rows[0]["world"])
    axes.set(xscale="log", ylim=(0, 1.02), xlabel="demonstrations", ylabel="success")
    axes.set_xticks(counts, [str(c) for c in counts])
    axes.minorticks_off()
    axes.legend(frameon=False)
    page.savefig(figure, format="svg", bbox_inches="tight", metadata={"Date": None})


if __name__ == "__main__":
    if sys.argv[1] == "run":
        run(sys.argv[2:])
    else:
        draw(Path(sys.argv[2]), [Path(f) for f in sys.argv[3:]])
