"""A page over many runs and results: settings, curves, figures, commands. An open record.

Figures of different suites, or of different versions of one world, stand in different tables: they
are never beside each other.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eval.report.breakdown import run_families, seed_of
from eval.report.data import Json, RunFacts, load_report_data, run_facts
from eval.report.page import Section, code, details, note, page, paragraph, picture, table, text
from eval.report.plots import results_plot, seeds_plot
from eval.report.text import interval, number, rate
from robolearn.errors import ConfigError, DataError


@dataclass(frozen=True, slots=True)
class Entry:
    """One result: a row of a results folder's summary, with where it comes from."""

    folder: str
    suite: str
    world_hash: str
    engine: str
    protocol: str
    commit: str
    command: str
    row: Json


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What the folders hold."""

    runs: tuple[RunFacts, ...]
    entries: tuple[Entry, ...]


def load_benchmark(folders: Sequence[Path]) -> Benchmark:
    """Run directories (``metrics.jsonl``) and results folders (``summary.json``), in any order."""
    runs: dict[Path, RunFacts] = {}
    entries: list[Entry] = []
    for folder in dict.fromkeys(folders):
        known = False
        if (folder / "metrics.jsonl").is_file():
            runs[folder.resolve()] = run_facts(folder)
            known = True
        if (folder / "summary.json").is_file() or (folder / "evaluate").is_dir():
            data = load_report_data(folder)
            entries += _entries(folder, data.evaluation or {})
            for run in data.runs:
                runs.setdefault(Path(folder / run.name).resolve(), run)
            known = True
        if not known:
            raise ConfigError(
                f"'{folder}' is neither a run (metrics.jsonl) nor a results folder (summary.json)"
            )
    return Benchmark(_renamed(tuple(runs.values())), tuple(entries))


def _renamed(runs: tuple[RunFacts, ...]) -> tuple[RunFacts, ...]:
    """The same name twice becomes ``name (2)``; the same run given twice stays one."""
    seen: dict[str, int] = {}
    there: dict[str, RunFacts] = {}
    for run in runs:
        identity = json.dumps([run.config, seed_of(run), len(run.metrics), run.metrics[-1:]])
        if identity in there:
            continue
        seen[run.name] = seen.get(run.name, 0) + 1
        name = run.name if seen[run.name] == 1 else f"{run.name} ({seen[run.name]})"
        there[identity] = dataclasses.replace(run, name=name)
    return tuple(there.values())


def _entries(folder: Path, evaluation: Json) -> list[Entry]:
    lacking = sorted({"suite", "worlds", "results"} - set(evaluation))
    if lacking:
        raise DataError(f"'{folder}/summary.json' lacks {lacking}; run 'robolearn evaluate' again")
    worlds: Mapping[str, Json] = {w["name"]: w for w in evaluation["worlds"]}
    judge = str(evaluation.get("judge", ""))
    return [
        Entry(
            folder=str(folder),
            suite=f"{evaluation['suite']}{f', judged by {judge}' if judge else ''}",
            world_hash=str(worlds.get(row["world"], {}).get("hash", "")),
            engine=str(worlds.get(row["world"], {}).get("engine", "")),
            protocol=str(evaluation.get("protocol", "")),
            commit=str(evaluation.get("commit", "")),
            command=str(evaluation.get("command", "")),
            row=row,
        )
        for row in evaluation["results"]
    ]


def tables(entries: Sequence[Entry]) -> dict[tuple[str, str, str], list[Entry]]:
    """Entries that may stand beside each other: one suite, one version of one world and of its
    physics engine; best first.
    """
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for e in entries:
        version = f"{e.engine}, world {e.world_hash}"
        found.setdefault((e.suite, e.row["world"], version), []).append(e)
    return {k: sorted(v, key=lambda e: -(e.row["score"]["value"] or 0)) for k, v in found.items()}


def settings_that_differ(runs: Sequence[RunFacts]) -> dict[str, list[str]]:
    """Dotted setting -> its value in every run, for those that are not the same everywhere."""
    values = [flat(r.settings) for r in runs]
    keys = list(dict.fromkeys(k for one in values for k in one))
    rows = {k: [json.dumps(v[k]) if k in v else "–" for v in values] for k in keys}
    return {k: row for k, row in rows.items() if len(set(row)) > 1}


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by their dotted names."""
    if not isinstance(value, Mapping):
        return {prefix: value}
    out: dict[str, Any] = {}
    for key, part in value.items():  # pyright: ignore[reportUnknownVariableType]
        out |= flat(part, f"{prefix}.{key}" if prefix else str(key))
    return out


def benchmark_document(benchmark: Benchmark, title: str) -> dict[str, Any]:
    """The page's figures as JSON values."""
    return {
        "format": "robolearn benchmark",
        "version": 1,
        "title": title,
        "results": [dataclasses.asdict(e) for e in benchmark.entries],
        "runs": [
            {"name": r.name, "seed": seed_of(r), "settings": r.settings, "log": list(r.metrics)}
            for r in benchmark.runs
        ],
    }


def benchmark_markdown(benchmark: Benchmark, title: str) -> str:
    """The page's tables."""
    lines = [f"# {title}", ""]
    for (suite, world, _), rows in tables(benchmark.entries).items():
        lines += [f"## {world}, suite `{suite}`", ""]
        lines += ["| policy | score | success | n | from |", "|---|---|---|---|---|"]
        lines += ["| " + " | ".join(_row(e)) + " |" for e in rows] + [""]
    lines += ["## Commands", ""]
    lines += [f"* `{c}`" for c in dict.fromkeys(e.command for e in benchmark.entries)]
    return "\n".join(lines).rstrip() + "\n"


def _row(e: Entry) -> list[str]:
    score = f"{number(e.row['score']['value'])} {interval(e.row['score'])}"
    return [str(e.row["policy"]), score, rate(e.row), str(e.row["n"]), e.folder]


def benchmark_page(benchmark: Benchmark, title: str) -> str:
    """The page as HTML."""
    parts = (
        ("results", "Results", _results(benchmark)),
        ("settings", "Settings", _settings(benchmark)),
        ("curves", "Learning curves", _learning(benchmark)),
        ("commands", "How to repeat this", _commands(benchmark)),
    )
    sections = [Section(key, name, body) for key, name, body in parts if body]
    grouped = tables(benchmark.entries)
    policies = {e.row["policy"] for e in benchmark.entries}
    summary = [
        (
            f"{len(policies)} policies, {len(grouped)} comparable groups of results,"
            f" {sum(int(e.row['n']) for e in benchmark.entries)} trials;"
            f" {len(benchmark.runs)} training runs with their settings and curves."
        ),
        *(
            f"{world} ({suite}): best score {_row(rows[0])[1]} by “{rows[0].row['policy']}”"
            f" of {len(rows)}, n = {rows[0].row['n']}."
            for (suite, world, _), rows in grouped.items()
        ),
    ]
    if any(len(rows) > 1 for rows in grouped.values()):
        summary.append(
            "The best of several looks better than it is, because it was chosen for its luck, too."
            " Which differences are more than luck: 'robolearn compare' with these folders."
        )
    subtitle = "Settings, curves, figures and commands of many runs."
    return page(title, subtitle, summary, [], sections)


def _results(benchmark: Benchmark) -> str:
    grouped = tables(benchmark.entries)
    if not grouped:
        return ""
    body = paragraph(
        "Results stand in one table only if suite and version of the world are the same.",
        "Intervals (95 %) cover the choice of starts, not the luck of training.",
    )
    worlds = [(suite, world) for suite, world, _ in grouped]
    for (suite, world, version), rows in grouped.items():
        body += f"<h3>{text(f'{world}, suite {suite}')}</h3>"
        body += table(
            ["policy", "score [95 %]", "success [95 %, Wilson]", "n", "from"],
            [_row(e) for e in rows],
            f"{rows[0].protocol}. {version}.",
        )
        if len(rows) > 1:
            plotted = [dict(e.row) | {"policy": f"{e.row['policy']} ({e.folder})"} for e in rows]
            body += picture(
                results_plot(plotted[:6]), f"Results in {world}", f"The best {len(plotted[:6])}."
            )
        if worlds.count((suite, world)) > 1:
            body += note(
                f"{world} or its physics engine was changed between these results: the tables are"
                " not comparable."
            )
    return body


def _settings(benchmark: Benchmark) -> str:
    runs = benchmark.runs
    if not runs:
        return ""
    rows = [
        [
            r.name,
            str(r.settings.get("policy", "–")),
            seed_of(r),
            str(r.metrics[-1].get("step", "–")) if r.metrics else "–",
            f"{float(r.metrics[-1].get('seconds', 0.0)) / 60:.1f} min" if r.metrics else "–",
            str(r.provenance.get("data_hash", "–")),
        ]
        for r in runs
    ]
    body = table(["run", "algorithm", "seed", "updates", "time", "data"], rows, "The runs.")
    differing = settings_that_differ(runs)
    if differing and len(runs) > 1:
        body += table(
            ["setting", *(r.name for r in runs)],
            [[key, *values] for key, values in differing.items()],
            "Settings that are not the same in all runs.",
        )
    return body + "".join(
        details(f"All settings of {r.name}", code(r.config.splitlines())) for r in runs if r.config
    )


def _learning(benchmark: Benchmark) -> str:
    body = ""
    for family in run_families(benchmark.runs):
        body += note(f"Same settings, other seeds: {', '.join(r.name for r in family)}.")
    keys = dict.fromkeys(
        k for r in benchmark.runs for line in r.metrics[:1] for k in line if k.startswith("loss")
    )
    for key in keys:
        curves = {
            r.name: tuple(
                np.asarray(v, dtype=np.float64)
                for v in zip(*[(m["step"], m[key]) for m in r.metrics if key in m], strict=True)
            )
            for r in benchmark.runs
            if sum(key in m for m in r.metrics) > 1
        }
        if curves:
            pairs = {name: (steps, values) for name, (steps, values) in curves.items()}
            body += picture(
                seeds_plot(pairs, key),
                f"{key} over training",
                "Thin: each run; thick: their mean; band: smallest to largest.",
            )
    return body


def _commands(benchmark: Benchmark) -> str:
    rows = dict.fromkeys((e.folder, e.commit, e.command) for e in benchmark.entries)
    lines = [f"# {folder}, commit {commit or '–'}\n{command}" for folder, commit, command in rows]
    trained = [
        f"# run {r.name}, seed {seed_of(r)}, commit {r.provenance.get('commit', '–')}"
        for r in benchmark.runs
    ]
    return code([*lines, *trained]) if lines or trained else ""
