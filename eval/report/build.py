"""Builds the report: one self-contained HTML page, for a reader who was not there."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from eval.compare import Comparison, WorldComparison
from eval.report.breakdown import (
    clips_section,
    comparison_section,
    failures_section,
    seeds_section,
    variants_section,
)
from eval.report.data import EvaluationData, ReportData
from eval.report.page import Section, Tile, note, page, paragraph
from eval.report.physics import Replay
from eval.report.results import agreement_section, generalisation_section, results_section
from eval.report.sections import (
    data_section,
    deployment_section,
    physics_section,
    provenance_section,
    training_section,
    words_section,
)
from eval.report.text import counted, interval, number, rate, sentence
from eval.standing import standing_of
from eval.summary import Agreement

SECTIONS: tuple[tuple[str, str, Callable[[ReportData], str]], ...] = (
    ("data", "The recordings", data_section),
    ("physics", "The physics, found from the recordings", physics_section),
    ("training", "Training", training_section),
    ("results", "How well the policies do", results_section),
    ("comparison", "Which policy is better", comparison_section),
    ("generalisation", "Where training has not been", generalisation_section),
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
OPTIONAL = ("videos", "comparison", "generalisation", "variants", "failures", "seeds", "agreement")


def build_report(data: ReportData, title: str = "From demonstrations to a robot") -> str:
    """The page as HTML. Sections without data are left out and named at the top."""
    bodies = [(key, name, build(data)) for key, name, build in SECTIONS]
    missing = [name for key, name, body in bodies if not body and key not in OPTIONAL]
    intro = Section("about", "What this is", _about(data, missing))
    sections = [intro, *(Section(key, name, body) for key, name, body in bodies if body)]
    subtitle = "What was tried, how it went, and what can be concluded from it."
    if data.stores and data.words.subtitle:
        subtitle = data.words.subtitle
    return page(title, subtitle, summary_points(data), summary_tiles(data), sections)


def summary_points(data: ReportData) -> list[str]:
    """The conclusions, one sentence each, every figure with its interval and n."""
    # The verdict first: on a telephone it is what stands without scrolling.
    evaluation = data.evaluation
    points = [] if evaluation is None else [_paired_point(evaluation)]
    points += [*_result_points(data), _physics_point(data)]
    if evaluation is not None:
        points.append(_agreement_point(evaluation.agreement))
    points.append(_deploy_point(data))
    return [p for p in points if p] or [
        "Nothing was measured yet; the sections below show what is there."
    ]


def summary_tiles(data: ReportData) -> list[Tile]:
    """At most four headline figures."""
    tiles: list[Tile] = []
    replay = _headline_replay(data)
    if replay is not None:
        tiles.append(
            Tile(
                f"{replay.position_mm.p50:.2g} mm",
                f"90th percentile {replay.position_mm.p90:.2g} mm, {replay.episodes} episodes",
                f"median error of whole episodes replayed in {replay.scene}",
            )
        )
    if data.deploy is not None and data.deploy.trials:
        scores = [t.score for t in data.deploy.trials]
        tiles.append(
            Tile(
                number(sum(scores) / len(scores)),
                f"n = {len(scores)}: " + ", ".join(number(s) for s in scores[:4]),
                "mean score of the deployed episodes"
                + (", on an emulated robot" if data.deploy.virtual else ""),
            )
        )
    return [*_policy_tiles(data.evaluation, 4 - len(tiles)), *tiles]


def _policy_tiles(evaluation: EvaluationData | None, most: int) -> list[Tile]:
    """The best policies by the measure that decides, in the order of the verdict."""
    if evaluation is None:
        return []
    world, comparison = evaluation.first_world, evaluation.comparison
    compared = None if comparison is None else comparison.in_world(world)
    order = [] if compared is None else [e.name for e in compared.entries]
    by_success = comparison is not None and comparison.rule.by == "success"
    rows = sorted(
        evaluation.in_world(world),
        key=lambda r: order.index(r.policy) if r.policy in order else len(order),
    )
    figures = [(r, r.success if by_success else r.score) for r in rows[:most]]
    return [
        Tile(
            number(e.value, 2 if by_success else 3),
            f"{interval(e, 2 if by_success else 3)}, n = {r.n}",
            f"{'success' if by_success else 'mean score'}, policy “{r.policy}” in {world}",
        )
        for r, e in figures
    ]


def _about(data: ReportData, missing: Sequence[str]) -> str:
    body = paragraph(data.words.about) if data.words.about else ""
    if data.stores:
        body += paragraph(
            "The chain on this page starts from recordings of people, finds the physics of their"
            " world from those recordings alone, trains policies, tries them under fixed starting"
            " conditions in several simulated worlds, and runs the better one on a robot."
        )
    body += paragraph(
        "Every figure stands with the number of trials behind it (n) and, where it was estimated,"
        " a 95 % interval. Read the interval before the figure: where intervals are wide, little"
        " is known.",
        data.words.repeatable,
    )
    if missing:
        body += note("Not part of this report, because nothing was recorded: " + ", ".join(missing))
    if data.evaluation is not None and data.evaluation.asked.protocol:
        body += paragraph(f"Protocol of all scores: {data.evaluation.asked.protocol}.")
    return body


def _physics_point(data: ReportData) -> str:
    found = data.identification
    if found is None:
        return ""
    before, after = found.before.after_5_s, found.after.after_5_s
    return (
        "From the recordings alone, identification cut the error of replaying held-out episodes"
        f" for 5 s from {before.position_p50_mm:.1f} mm and"
        f" {before.rotation_p50_deg:.1f}° to {after.position_p50_mm:.2f} mm and"
        f" {after.rotation_p50_deg:.2f}° (medians of {after.episodes} episodes)."
    )


def _result_points(data: ReportData) -> list[str]:
    if data.evaluation is None:
        return []
    return [
        f"In {r.world}, the policy “{r.policy}” reaches a mean score of {counted(r.score)};"
        f" it solves the task{data.words.solved} in {rate(r)} of the trials."
        for r in data.evaluation.in_world(data.evaluation.first_world)
    ]


def _paired_point(evaluation: EvaluationData) -> str:
    """What the rule of the comparison section says; there is no second opinion on the page.

    Two policies: their difference. More: all of them, best first, by what the rule decides on.
    """
    comparison, world = evaluation.comparison, evaluation.first_world
    compared = comparison.in_world(world) if comparison is not None else None
    if comparison is None or compared is None or not compared.effects:
        return ""
    by = comparison.rule.by
    if len(compared.entries) > 2:
        listed = ", ".join(f"{e.name} ({e.letters})" for e in compared.entries)
        return (
            f"In {world}, by {by}, best first: {listed}. Policies that share a letter are not"
            f" separated by {compared.effects[0].n} starts, which does not make them equal"
            f" ({comparison.rule.words()}). {_standing(comparison, compared)}"
        )
    effect = compared.effects[0]
    return (
        f"In {world}, start by start (n = {effect.n}): {sentence(effect.words)}"
        f" {_standing(comparison, compared)}"
    )


def _standing(comparison: Comparison, compared: WorldComparison) -> str:
    """Whether that was planned; the section says under which plan, or why not."""
    said = [standing_of(comparison, compared.world, e) for e in compared.effects]
    if len(set(said)) == 1:
        return f"This is {said[0]}."
    return f"{said.count('planned')} of {len(said)} of these comparisons were planned."


def _agreement_point(rows: Sequence[Agreement]) -> str:
    ceiling = next((r for r in rows if r.kind == "moved"), None)
    other = next((r for r in rows if r.kind == "world"), None)
    if other is None or math.isnan(other.pearson.value):
        return ""
    point = (
        f"Start by start, {other.measure} in {other.world} and in {other.source} correlate by"
        f" {counted(other.pearson, 2)}."
    )
    if ceiling is None or math.isnan(ceiling.pearson.value):
        return point
    return (
        f"{point} The ceiling, {other.source} against itself with every start moved by 0.3 mm, is"
        f" {counted(ceiling.pearson, 2)}."
    )


def _deploy_point(data: ReportData) -> str:
    if data.deploy is None or not data.deploy.trials:
        return ""
    trials = data.deploy.trials
    scores = ", ".join(number(t.score) for t in trials)
    solved = sum(t.success for t in trials)
    robot = "an emulated" if data.deploy.virtual else "the"
    return (
        f"On {robot} robot, “{trials[0].policy}” was run {len(trials)} times in real time under"
        f" the safety supervisor: scores {scores}; {solved} of {len(trials)} solved. So few trials"
        " show that the chain works, not how well."
    )


def _headline_replay(data: ReportData) -> Replay | None:
    """The replay whose error is a headline: what the task names, else the first that is finite."""
    by_scene = {r.scene: r for r in data.replays if r.position_mm.p50 is not None}
    named = (by_scene[scene] for scene in data.words.headline_scenes if scene in by_scene)
    return next(named, next(iter(by_scene.values()), None))
