"""The report: one self-contained HTML page, for a reader who was not there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from eval.report.breakdown import (
    comparison_section,
    failures_section,
    seeds_section,
    variants_section,
)
from eval.report.clips import clips_section
from eval.report.data import ReportData
from eval.report.page import Section, Tile, note, page, paragraph
from eval.report.results import agreement_section, results_section
from eval.report.sections import (
    data_section,
    deployment_section,
    physics_section,
    provenance_section,
    training_section,
    words_section,
)
from eval.report.text import mean, number, rate, signed

SECTIONS: tuple[tuple[str, str, Callable[[ReportData], str]], ...] = (
    ("data", "The recordings", data_section),
    ("physics", "The physics, found from the recordings", physics_section),
    ("training", "Training", training_section),
    ("results", "How well the policies do", results_section),
    ("comparison", "Which policy is better", comparison_section),
    ("variants", "When the world is a little different", variants_section),
    ("failures", "How episodes fail", failures_section),
    ("videos", "Failures and successes to look at", clips_section),
    ("seeds", "Training again with another seed", seeds_section),
    ("agreement", "Does the simulator agree with the world the data come from?", agreement_section),
    ("deployment", "On the robot", deployment_section),
    ("words", "Words", words_section),
    ("provenance", "Where this comes from", provenance_section),
)


# Their absence says nothing: not every evaluation has variants or several training runs.
OPTIONAL = ("videos", "comparison", "variants", "failures", "seeds")


def build_report(data: ReportData, title: str = "From demonstrations to a robot") -> str:
    """The page as HTML. Sections without data are left out and named at the top."""
    bodies = [(key, name, build(data)) for key, name, build in SECTIONS]
    missing = [name for key, name, body in bodies if not body and key not in OPTIONAL]
    intro = Section("about", "What this is", _about(data, missing))
    sections = [intro, *(Section(key, name, body) for key, name, body in bodies if body)]
    subtitle = "What was tried, how it went, and what can be concluded from it."
    if data.planar and data.stores:
        subtitle = (
            "People pushed a T-shaped block onto its goal; this page follows their recordings"
            " through simulation, training and evaluation to a robot arm."
        )
    return page(title, subtitle, summary_points(data), summary_tiles(data), sections)


def summary_points(data: ReportData) -> list[str]:
    """The conclusions, one sentence each, every figure with its interval and n."""
    points = [p for p in (_physics_point(data), *_result_points(data)) if p]
    evaluation = data.evaluation or {}
    points += [_paired_point(c) for c in evaluation.get("paired", ())][:1]
    points += [p for p in (_agreement_point(evaluation), _deploy_point(data)) if p]
    return points or ["Nothing was measured yet; the sections below show what is there."]


def summary_tiles(data: ReportData) -> list[Tile]:
    """At most four headline figures."""
    tiles: list[Tile] = []
    evaluation = data.evaluation or {}
    for row in _source_rows(evaluation)[:2]:
        e = row["score"]
        tiles.append(
            Tile(
                number(e["value"]),
                f"[{number(e['low'])}, {number(e['high'])}], n = {row['n']}",
                f"mean score, policy “{row['policy']}” in {row['world']}",
            )
        )
    replay = _best_replay(data)
    if replay is not None:
        name, document = replay
        p = document["final_position_error_mm"]
        if p["p50"] is not None:
            tiles.append(
                Tile(
                    f"{p['p50']:.2g} mm",
                    f"90th percentile {p['p90']:.2g} mm, {document['episodes']} episodes",
                    f"median error of whole episodes replayed in {name}",
                )
            )
    if data.deploy is not None and data.deploy.trials:
        scores = [float(t["score"]) for t in data.deploy.trials]
        tiles.append(
            Tile(
                number(sum(scores) / len(scores)),
                f"n = {len(scores)}: " + ", ".join(number(s) for s in scores[:4]),
                "mean score of the deployed episodes"
                + (", on an emulated robot" if data.deploy.virtual else ""),
            )
        )
    return tiles


def _about(data: ReportData, missing: Sequence[str]) -> str:
    body = ""
    if data.planar:
        body += paragraph(
            "The task is Push-T: a round tool pushes a flat T-shaped block over a table until it"
            " covers a goal of the same shape. A policy sees where the tool and the block are, ten"
            " times a second, and says where the tool should go next."
        )
    if data.stores:
        body += paragraph(
            "The chain on this page starts from recordings of people, finds the physics of their"
            " world from those recordings alone, trains policies, tries them under fixed starting"
            " conditions in several simulated worlds, and runs the better one on a robot."
        )
    body += paragraph(
        "Every figure stands with the number of trials behind it (n) and, where it was estimated,"
        " a 95 % interval. Read the interval before the figure: where intervals are wide, little"
        " is known. Single outcomes of pushing are not repeatable; means over many starts are."
    )
    if missing:
        body += note("Not part of this report, because nothing was recorded: " + ", ".join(missing))
    return body + ("" if data.evaluation is None else _protocol(data.evaluation))


def _protocol(evaluation: Mapping[str, Any]) -> str:
    return paragraph(f"Protocol of all scores: {evaluation.get('protocol', '')}.")


def _source_rows(evaluation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    rows = list(evaluation.get("results", ()))
    return [r for r in rows if r["world"] == rows[0]["world"]] if rows else []


def _physics_point(data: ReportData) -> str:
    if data.identify is None:
        return ""
    before = data.identify["heldout"]["before"]["after_5_s"]
    after = data.identify["heldout"]["after"]["after_5_s"]
    return (
        "From the recordings alone, identification cut the error of replaying held-out episodes"
        f" for 5 s from {before['position_p50_mm']:.1f} mm and"
        f" {before['rotation_p50_deg']:.1f}° to {after['position_p50_mm']:.2f} mm and"
        f" {after['rotation_p50_deg']:.2f}° (medians of {after['episodes']} episodes)."
    )


def _result_points(data: ReportData) -> list[str]:
    return [
        f"In {r['world']}, the policy “{r['policy']}” reaches a mean score of {mean(r['score'])};"
        f" it solves the task{' (more than 95 % covered)' if data.planar else ''} in {rate(r)} of"
        " the trials."
        for r in _source_rows(data.evaluation or {})
    ]


def _paired_point(c: Mapping[str, Any]) -> str:
    return (
        f"Start by start, “{c['b']}” minus “{c['a']}” in {c['world']} is"
        f" {signed(c['score_difference'])} in score: {c['words']}."
    )


def _agreement_point(evaluation: Mapping[str, Any]) -> str:
    rows = list(evaluation.get("agreement", ()))
    ceiling = next((r for r in rows if r["kind"] == "moved"), None)
    other = next((r for r in rows if r["kind"] == "world"), None)
    if other is None or other["pearson"]["value"] is None:
        return ""
    source = other["source"]
    sentence = (
        f"Start by start, coverage in {other['world']} and in {source} correlate by"
        f" {mean(other['pearson'], 2)}."
    )
    if ceiling is None or ceiling["pearson"]["value"] is None:
        return sentence
    return (
        f"{sentence} The ceiling, {source} against itself with every start moved by 0.3 mm, is"
        f" {mean(ceiling['pearson'], 2)}."
    )


def _deploy_point(data: ReportData) -> str:
    if data.deploy is None or not data.deploy.trials:
        return ""
    trials = data.deploy.trials
    scores = ", ".join(number(float(t["score"])) for t in trials)
    solved = sum(bool(t["success"]) for t in trials)
    robot = "an emulated" if data.deploy.virtual else "the"
    return (
        f"On {robot} robot, “{trials[0]['policy']}” was run {len(trials)} times in real time under"
        f" the safety supervisor: scores {scores}; {solved} of {len(trials)} solved. So few trials"
        " show that the chain works, not how well."
    )


def _best_replay(data: ReportData) -> tuple[str, Mapping[str, Any]] | None:
    for name in ("pusht_identified", "pusht_reference"):
        if name in data.replays:
            return name, data.replays[name]
    finite = {
        k: v
        for k, v in data.replays.items()
        if (v["final_position_error_mm"]["p50"] or math.inf) < math.inf
    }
    return next(iter(finite.items()), None)
