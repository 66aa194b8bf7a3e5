"""Writes a page over many runs and results: settings, curves, figures, commands. An open record.

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

from eval.plain import plain_values
from eval.report.data import SUMMARY_FILE, TRIALS_FILE, EvaluationData, load_report_data
from eval.report.markdown import diagnosis_lines
from eval.report.page import Section, code, details, note, page, paragraph, picture, table, text
from eval.report.plots import ResultBar, results_plot, seeds_plot
from eval.report.results import score_text
from eval.report.sections import critic_curves, practice_curves
from eval.report.text import markdown_table, rate
from eval.report.training import RunFacts, run_facts, run_families
from eval.summary import Result
from robolearn.errors import ConfigError
from robolearn.training.log import JOURNAL

# More lines of one plot are not told apart.
MAX_BARS = 6


@dataclass(frozen=True, slots=True)
class Entry:
    """One result of a results folder, with where it comes from."""

    folder: str
    suite: str
    world_hash: str
    engine: str
    protocol: str
    commit: str
    command: str
    result: Result


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What the folders hold."""

    runs: tuple[RunFacts, ...]
    entries: tuple[Entry, ...]


def load_benchmark(folders: Sequence[Path]) -> Benchmark:
    """Run directories (``metrics.jsonl``) and results folders (``trials.sqlite``), in any order."""
    runs: dict[Path, RunFacts] = {}
    entries: list[Entry] = []
    for folder in dict.fromkeys(folders):
        known = False
        if (folder / JOURNAL).is_file():
            runs[folder.resolve()] = run_facts(folder)
            known = True
        names = (TRIALS_FILE, SUMMARY_FILE, "evaluate")
        if any((folder / name).exists() for name in names):
            data = load_report_data(folder)
            if data.evaluation is not None:
                entries += _entries(folder, data.evaluation)
            for run in data.runs:
                runs.setdefault(Path(folder / run.name).resolve(), run)
            known = True
        if not known:
            raise ConfigError(
                f"'{folder}' is neither a run ({JOURNAL}) nor a results folder ({TRIALS_FILE})"
            )
    return Benchmark(_renamed(tuple(runs.values())), tuple(entries))


def _renamed(runs: tuple[RunFacts, ...]) -> tuple[RunFacts, ...]:
    """The same name twice becomes ``name (2)``; the same run given twice stays one."""
    seen: dict[str, int] = {}
    unique: dict[str, RunFacts] = {}
    for run in runs:
        identity = json.dumps([run.config, run.seed, len(run.log), run.log[-1:]])
        if identity in unique:
            continue
        seen[run.name] = seen.get(run.name, 0) + 1
        name = run.name if seen[run.name] == 1 else f"{run.name} ({seen[run.name]})"
        unique[identity] = dataclasses.replace(run, name=name)
    return tuple(unique.values())


def _entries(folder: Path, evaluation: EvaluationData) -> list[Entry]:
    asked = evaluation.asked
    judged = f", judged by {asked.judge}" if asked.judge else ""
    worlds = {w.name: w for w in asked.worlds}
    return [
        Entry(
            folder=str(folder),
            suite=asked.suite + judged,
            world_hash=worlds[result.world].hash,
            engine=worlds[result.world].engine,
            protocol=asked.protocol,
            commit=asked.commit,
            command=asked.command,
            result=result,
        )
        for result in evaluation.results
    ]


def tables(entries: Sequence[Entry]) -> dict[tuple[str, str, str], list[Entry]]:
    """Entries that may stand beside each other: one suite, one version of one world and of its
    physics engine; best first.
    """
    found: dict[tuple[str, str, str], list[Entry]] = {}
    for e in entries:
        version = f"{e.engine}, world {e.world_hash}"
        found.setdefault((e.suite, e.result.world, version), []).append(e)
    return {k: sorted(v, key=lambda e: -e.result.score.value) for k, v in found.items()}


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
    return plain_values(
        {
            "format": "robolearn benchmark",
            "version": 2,
            "title": title,
            "results": benchmark.entries,
            "runs": [
                {"name": r.name, "seed": r.seed, "settings": r.settings, "log": r.log}
                for r in benchmark.runs
            ],
        }
    )


def benchmark_markdown(benchmark: Benchmark, title: str) -> str:
    """The page's tables."""
    lines = [f"# {title}", ""]
    for (suite, world, _), rows in tables(benchmark.entries).items():
        lines += [f"## {world}, suite `{suite}`", ""]
        lines += markdown_table(
            ["policy", "score", "success", "n", "from"], [_row(e) for e in rows]
        )
    lines += diagnosis_lines(benchmark.runs)
    lines += ["## Commands", ""]
    lines += [f"* `{c}`" for c in dict.fromkeys(e.command for e in benchmark.entries) if c]
    return "\n".join(lines).rstrip() + "\n"


def _row(e: Entry) -> list[str]:
    return [e.result.policy, score_text(e.result), rate(e.result), str(e.result.n), e.folder]


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
    policies = {e.result.policy for e in benchmark.entries}
    summary = [
        (
            f"{len(policies)} policies, {len(grouped)} comparable groups of results,"
            f" {sum(e.result.n for e in benchmark.entries)} trials;"
            f" {len(benchmark.runs)} training runs with their settings and curves."
        ),
        *(
            f"{world} ({suite}): best score {score_text(rows[0].result)} by"
            f" “{rows[0].result.policy}” of {len(rows)}, n = {rows[0].result.n}."
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
            bars = [_bar(e) for e in rows[:MAX_BARS]]
            body += picture(results_plot(bars), f"Results in {world}", f"The best {len(bars)}.")
        if worlds.count((suite, world)) > 1:
            body += note(
                f"{world} or its physics engine was changed between these results: the tables are"
                " not comparable."
            )
    return body


def _bar(e: Entry) -> ResultBar:
    name = f"{e.result.policy} ({e.folder})"
    return ResultBar(name, e.result.world, e.result.score, e.result.success)


def _settings(benchmark: Benchmark) -> str:
    runs = benchmark.runs
    if not runs:
        return ""
    rows = [
        [
            r.name,
            str(r.settings.get("policy", "–")),
            r.seed,
            "–" if r.updates is None else str(r.updates),
            "–" if r.updates is None else f"{r.seconds / 60:.1f} min",
            r.data_hash or "–",
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
    for key in dict.fromkeys(k for r in benchmark.runs for k in r.losses()):
        found = {r.name: r.curve(key) for r in benchmark.runs}
        curves = {name: curve for name, curve in found.items() if curve is not None}
        if curves:
            body += picture(
                seeds_plot(curves, key),
                f"{key} over training",
                "Thin: each run; thick: their mean; band: smallest to largest.",
            )
    return body + "".join(practice_curves(r) + critic_curves(r) for r in benchmark.runs)


def _commands(benchmark: Benchmark) -> str:
    rows = dict.fromkeys((e.folder, e.commit, e.command) for e in benchmark.entries)
    lines = [f"# {folder}, commit {commit or '–'}\n{command}" for folder, commit, command in rows]
    trained = [f"# run {r.name}, seed {r.seed}, commit {r.commit}" for r in benchmark.runs]
    return code([*lines, *trained]) if lines or trained else ""
