"""The sections of the report. Each returns HTML, or nothing when its data are absent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eval.report.data import DeployFacts, ReportData, RunFacts, StoreFacts
from eval.report.page import code, columns, details, note, paragraph, picture, table, text, video
from eval.report.plots import data_plot, histogram_plot, replay_plot, training_plot
from eval.report.text import REASON_WORDS, number
from eval.statistics.intervals import percentiles

Json = Mapping[str, Any]

# What the source world really has: gym-pusht 0.1.8 (frictionless contact; the T's moment of inertia
# and centre of gravity as built by ``add_tee``).
TRUE_PHYSICS: Mapping[str, float] = {"friction": 0.0, "gyration_m2": 0.003, "com_m": 0.045}
PHYSICS_WORDS: Mapping[str, str] = {
    "friction": "friction between tool and block [–]",
    "gyration_m2": "rotational / linear damping (radius of gyration squared) [m²]",
    "com_m": "centre of mass along the stem [m]",
    "compliance": "softness of contacts [–]",
}
KIND_WORDS: Mapping[str, str] = {
    "demonstration": "by a person",
    "scripted": "by the scripted expert (never used for training)",
    "rollout": "by a policy in simulation",
    "deployment": "by a policy on the robot",
}
SCENE_ORDER = ("pusht_naive", "pusht_identified", "pusht_reference", "pusht_ur5e", "gym_pusht")
VIRTUAL_WORDS = (
    "The arm is a virtual one: its controller is emulated at the level of the network protocol, so"
    " that the vendor's own driver talks to it, and a physics engine that no policy was trained or"
    " evaluated in moves it. No real robot was involved."
)
MAX_CURVES = 3


def data_section(data: ReportData) -> str:
    """Episodes, lengths, coverage, paths."""
    return "".join(_store(facts) for facts in data.stores)


def _store(facts: StoreFacts) -> str:
    n = len(facts.lengths_s)
    if n == 0:
        return note(f"The store “{facts.name}” holds no episodes.")
    made = "; ".join(f"{k} {KIND_WORDS.get(kind, kind)}" for kind, k in facts.kinds.items())
    p = percentiles(facts.lengths_s, (10.0, 50.0, 90.0))
    source = f" Source: {', '.join(facts.sources[:3])}." if facts.sources else ""
    title = "Recorded by people" if "demonstration" in facts.kinds else "Collected here"
    body = f"<h3>{text(title)}</h3>" + paragraph(
        f"{n} episodes ({made}), {facts.steps} steps, {sum(facts.lengths_s) / 60:.1f} minutes."
        f" Half of them are shorter than {p['p50']:.1f} s, one in ten is longer than"
        f" {p['p90']:.1f} s. {facts.successes} of {n} reached more than 95 % coverage;"
        f"{_stopped(facts)}{source}"
    )
    if n < 20 or not facts.final_coverage:
        return body
    return body + picture(
        data_plot(facts.lengths_s, facts.final_coverage, facts.paths),
        "Histograms of episode length and of final coverage, paths of the tool",
        "Length of the episodes; how much of the goal was covered when they ended (dashed: 95 %,"
        f" which counts as solved); paths of the tool, with the goal in green. n = {n} episodes.",
    )


def _stopped(facts: StoreFacts) -> str:
    if not facts.final_coverage:
        return " how much the others covered was not recorded."
    p = percentiles(100 * np.asarray(facts.final_coverage), (10.0, 50.0, 90.0))
    return (
        f" they ended with {p['p50']:.0f} % of the goal covered in the median (10th to 90th"
        f" percentile {p['p10']:.0f} to {p['p90']:.0f} %)."
    )


def physics_section(data: ReportData) -> str:
    """Parameters before and after, and what they do to the replay error."""
    if data.identify is None and not data.replays:
        return ""
    body = paragraph(
        "A simulated scene was fitted to the recordings: the recorded actions are played into it,"
        " and its parameters are changed until the block moves as it did for the person. The"
        " fit never sees the hand-made reference scene; the reference only serves to compare."
    )
    if data.identify is not None:
        body += _identified(data.identify)
    if data.replays:
        body += _replays(data.replays)
    return body


def _identified(document: Json) -> str:
    rows = [
        [
            PHYSICS_WORDS.get(name, name),
            f"{values['before']:.4g}",
            f"{values['after']:.4g}",
            f"{TRUE_PHYSICS[name]:g}" if name in TRUE_PHYSICS else "–",
        ]
        for name, values in document["parameters"].items()
    ]
    held = document["heldout"]
    errors = [
        [
            f"{what}, {when}",
            *(
                f"{held[state][key][f'{field}_p50_{unit}']:.2f} /"
                f" {held[state][key][f'{field}_p90_{unit}']:.2f} {sign}"
                for state in ("before", "after")
            ),
            str(held["after"][key]["episodes"]),
        ]
        for key, when in (("after_5_s", "after 5 s"), ("final", "at the end"))
        for what, field, unit, sign in (
            ("position", "position", "mm", "mm"),
            ("rotation", "rotation", "deg", "deg"),
        )
    ]
    effort = (
        f"{document['evaluations']} evaluations in {document['duration_s']:.0f} s, on"
        f" {document['windows']} windows of {document['train_episodes']} episodes"
    )
    return table(
        ["parameter", "naive start", "found", "source world"],
        rows,
        f"What identification changed ({effort}). Source world: as its program is written.",
    ) + table(
        ["held-out replay error", "naive start", "found", "episodes"],
        errors,
        "Median / 90th percentile of the distance between where the block ended in the scene and"
        " in the recording, over episodes that the fit did not use.",
    )


def _replays(replays: Mapping[str, Json]) -> str:
    rows: list[list[str]] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    order = sorted(replays, key=lambda s: SCENE_ORDER.index(s) if s in SCENE_ORDER else 9)
    for scene in order:
        d = replays[scene]
        p, r = d["final_position_error_mm"], d["final_rotation_error_deg"]
        rows.append(
            [
                scene,
                f"{number(p['p50'], 2)} / {number(p['p90'], 2)} mm",
                f"{number(r['p50'], 2)} / {number(r['p90'], 2)}°",
                str(d["episodes"]),
                str(d.get("diverged", 0)),
            ]
        )
        each = d.get("per_episode", ())
        if each:
            curves[scene] = (
                [e["final_position_error_mm"] for e in each],
                [e["final_rotation_error_deg"] for e in each],
            )
    body = table(
        ["scene", "position", "rotation", "episodes", "unstable"],
        rows,
        "Whole episodes replayed open loop (recorded actions, no correction): median / 90th"
        " percentile of the final error.",
    )
    if curves:
        body += picture(
            replay_plot(curves),
            "Cumulative distribution of final replay errors per scene",
            "Share of episodes whose final error is below the value on the axis (logarithmic);"
            " further left is better.",
        )
    return body


def training_section(data: ReportData) -> str:
    """Loss curves and the cost of every run."""
    if not data.runs:
        return ""
    rows: list[list[str]] = []
    plots: list[str] = []
    for run in data.runs:
        last: Json = run.metrics[-1] if run.metrics else {}
        provenance = run.provenance
        rows.append(
            [
                run.name,
                str(last.get("step", "–")),
                f"{float(last.get('seconds', 0.0)) / 60:.1f} min",
                f"{float(last.get('cpu_seconds', 0.0)) / 60:.1f} min",
                str(provenance.get("episodes", "–")),
                str(provenance.get("seed", "–")),
            ]
        )
        curves = _curves(run)
        if curves:
            plots.append(
                picture(
                    training_plot(curves, run.name),
                    f"Training curves of {run.name}",
                    f"Run “{run.name}”: figures of the training log (thin), smoothed (thick).",
                )
            )
    return (
        paragraph(
            "Losses tell whether training went on as it should, not how good a policy is; that is"
            " what the trials below are for. One training run each: the spread between runs with"
            " other seeds was not measured and is not part of any interval on this page."
        )
        + table(
            ["run", "updates", "time", "CPU time", "episodes", "seed"],
            rows,
            "What training cost on this machine.",
        )
        + "".join(plots)
    )


def _curves(run: RunFacts) -> dict[str, tuple[Any, Any]]:
    skip = {"step", "total", "seconds", "cpu_seconds", "lr_factor"}
    names = list(dict.fromkeys(k for line in run.metrics for k in line if k not in skip))
    names.sort(key=lambda name: not name.startswith("loss"))
    curves: dict[str, tuple[Any, Any]] = {}
    for name in names[:MAX_CURVES]:
        points = [(line["step"], line[name]) for line in run.metrics if name in line]
        if len(points) >= 2:
            steps, values = zip(*points, strict=True)
            curves[name] = (np.asarray(steps), np.asarray(values, dtype=np.float64))
    return curves


def deployment_section(data: ReportData) -> str:
    """Trials, latency and jitter, interventions."""
    deploy = data.deploy
    if deploy is None:
        return ""
    driver = f"The policy “{deploy.trials[0]['policy']}”" if deploy.trials else "The policy"
    body = paragraph(
        f"{driver} drove an arm in real time.",
        VIRTUAL_WORDS if deploy.virtual else "",
        "Supervisor, robot and policy are separate processes; the supervisor limits every motion"
        " and stops the arm when the policy falls silent. The block's pose comes from a tracker"
        " with noise and delay; the true pose only scores the trial.",
    )
    if deploy.trials:
        body += table(
            ["trial", "start", "score", "solved", "duration", "ended because"],
            [
                [
                    str(i),
                    str(t.get("condition", "–")),
                    number(float(t["score"])),
                    "yes" if t["success"] else "no",
                    f"{float(t['duration_s']):.1f} s",
                    REASON_WORDS.get(str(t["reason"]), str(t["reason"]).replace("_", " ")),
                ]
                for i, t in enumerate(deploy.trials, 1)
            ],
            f"The deployed trials (n = {len(deploy.trials)}).",
            numeric_from=2,
        )
    body += _interventions(deploy) + _timing(deploy)
    flat = _flat(deploy.figures)
    if flat:
        body += details(
            "All figures of the deployment", table(["figure", "value"], flat, numeric_from=1)
        )
    clips = [
        video(p, f"Deployed trial {i}, drawn from its recorded poses.")
        for i, p in enumerate(deploy.videos[:4], 1)
    ]
    return body + columns(clips)


def _interventions(deploy: DeployFacts) -> str:
    total = sum(deploy.interventions.values())
    if "trials" not in deploy.figures:
        return ""
    if total == 0:
        return paragraph("The supervisor never had to intervene.")
    rows = [[cause.replace("_", " "), str(k)] for cause, k in sorted(deploy.interventions.items())]
    return table(
        ["intervention of the supervisor", "times"],
        rows,
        "What the supervisor limited or stopped, by cause"
        f" ({total} in {len(deploy.trials)} trials).",
    )


def _timing(deploy: DeployFacts) -> str:
    series = {
        "policy latency [ms]": deploy.inference_ms,
        "tick interval [ms]": deploy.interval_ms,
        "tick lateness [ms]": deploy.late_ms,
        "set-point lateness [ms]": deploy.setpoint_ms,
    }
    series = {k: v for k, v in series.items() if len(v)}
    if not series:
        return ""
    rows = [
        [name, *(f"{percentiles(v)[p]:.2f}" for p in ("p50", "p90", "p99")), f"{max(v):.2f}",
         str(len(v))]
        for name, v in series.items()
    ]  # fmt: skip
    return table(
        ["time", "median", "90 %", "99 %", "largest", "n"],
        rows,
        f"Times of the control loop (period {deploy.period_ms:.0f} ms).",
    ) + picture(
        histogram_plot(series, {"tick interval [ms]": deploy.period_ms}),
        "Histograms of latency and jitter",
        "How long the policy took, how regular the ticks were (dashed: the period), how late a tick"
        " was, and how late the supervisor's set-points to the arm were.",
    )


def _flat(figures: Json, prefix: str = "", depth: int = 0) -> list[list[str]]:
    rows: list[list[str]] = []
    for key, value in figures.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping) and depth < 3:
            rows += _flat(value, f"{prefix}{key}: ", depth + 1)
        elif isinstance(value, (int, float, str, bool)):
            rows.append([name, f"{value:.4g}" if isinstance(value, float) else str(value)])
    return rows[:60]


def words_section(data: ReportData) -> str:
    """What the words mean."""
    planar = {
        "coverage": "share of the goal's area that the block covers",
        "score": "coverage divided by 0.95, at most 1; for an episode, its largest value",
        "success": "coverage was above 95 % at some time of the episode",
    }
    general = {
        "score": "the highest progress during the episode, from 0 to 1",
        "success": "what the task asks for was reached (the protocol says when)",
    }
    words = (planar if data.planar else general) | {
        "95 % interval": "a range made so that 95 of 100 such ranges contain the true value, over"
        " repetitions of the whole experiment with other starts",
        "n": "number of trials (or pairs of trials) behind a figure",
        "paired": "both policies started from the same conditions; their difference start by start"
        " is less noisy than the difference of two separate averages",
        "open loop": "the recorded actions are played without looking at what happens",
        "chunk": "a run of future actions that a policy decides at once",
    }
    items = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in words.items())
    return f"<dl>{items}</dl>"


def provenance_section(data: ReportData) -> str:
    """Versions, hashes, commands."""
    rows: list[list[str]] = []
    evaluation = data.evaluation
    lines: list[str] = []
    if evaluation is not None:
        rows += [["suite", str(evaluation["suite"])]]
        rows += [["code", f"commit {evaluation['commit'] or '–'}, sources {evaluation['code']}"]]
        rows += [
            [f"world {w['name']}", f"{w['engine']}, hash {w['hash']}"] for w in evaluation["worlds"]
        ]
        rows += [[f"policy {p['name']}", f"hash {p['hash']}"] for p in evaluation["policies"]]
        rows += [[k, str(v)] for k, v in evaluation.get("versions", {}).items()]
        rows += [["episodes per forward pass", str(evaluation["batch"])]]
        lines.append(str(evaluation.get("command", "")))
    rows += [
        [f"data of run {run.name}", f"hash {run.provenance['data_hash']}"]
        for run in data.runs
        if "data_hash" in run.provenance
    ]
    stages = [
        [name, str(stage.get("status", "–")), f"{float(stage.get('seconds', 0.0)):.0f} s"]
        for name, stage in data.stages.items()
    ]
    body = table(["what", "which"], rows, numeric_from=None) if rows else ""
    if stages:
        body += table(["stage", "state", "time"], stages, "The stages of this demonstration.")
    if lines:
        body += code(lines)
    body += "".join(
        details(f"Configuration of run {run.name}", code(run.config.splitlines()))
        for run in data.runs
        if run.config
    )
    return body
