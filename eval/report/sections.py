"""Writes the sections of the report that do not rest on an evaluation's trials.

Each returns HTML, or nothing when its data are absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from eval.report.data import ReportData
from eval.report.deployment import DeployFacts, TickTimes
from eval.report.glossary import glossary
from eval.report.page import code, columns, details, note, paragraph, picture, table, text, video
from eval.report.physics import HeldOut, Identification, Replay, ReplayErrors
from eval.report.plots import (
    critic_plot,
    histogram_plot,
    practice_plot,
    replay_plot,
    training_plot,
)
from eval.report.recordings import StoreFacts
from eval.report.tasks.base import TaskPage
from eval.report.tasks.table import task_page
from eval.report.text import number, reason_words, sentence, switch_words, wear_words
from eval.report.training import RunFacts, run_families
from eval.statistics.intervals import percentiles

KIND_WORDS: Mapping[str, str] = {
    "demonstration": "by a person",
    "scripted": "by the scripted expert (never used for training)",
    "rollout": "by a policy in simulation",
    "corrected": "by a policy from which a person or the expert took over",
    "online": "by a policy while it practised",
    "deployment": "by a policy on the robot",
    "play": "by a person at play, without a task",
}
VIRTUAL_WORDS = (
    "The arm is a virtual one: its controller is emulated at the level of the network protocol, so"
    " that the vendor's own driver talks to it, and a physics engine that no policy was trained or"
    " evaluated in moves it. No real robot was involved."
)
MAX_CURVES = 3
# A histogram of fewer episodes says less than their median.
MIN_DRAWN = 20


def data_section(data: ReportData) -> str:
    """Episodes, lengths, how they ended, paths."""
    return "".join(_store(facts) for facts in data.stores)


def _store(facts: StoreFacts) -> str:
    n = len(facts.lengths_s)
    if n == 0:
        return note(f"The store “{facts.name}” holds no episodes.")
    words = task_page(facts.task)
    made = "; ".join(f"{k} {KIND_WORDS.get(kind, kind)}" for kind, k in facts.kinds.items())
    half, most = percentiles(facts.lengths_s, (50.0, 90.0))
    source = f" Source: {', '.join(facts.sources[:3])}." if facts.sources else ""
    title = "Recorded by people" if "demonstration" in facts.kinds else "Collected here"
    body = f"<h3>{text(title)}</h3>" + paragraph(
        f"{n} episodes ({made}), {facts.steps} steps, {sum(facts.lengths_s) / 60:.1f} minutes."
        f" Half of them are shorter than {half:.1f} s, one in ten is longer than"
        f" {most:.1f} s. {facts.successes} of {n} {words.reached};"
        f"{_stopped(facts, words)}{source}"
    )
    if n < MIN_DRAWN or not facts.final:
        return body
    return body + picture(
        words.draw(facts.lengths_s, facts.final, facts.paths, facts.goal),
        words.drawn_alt,
        f"{words.drawn} n = {n} episodes.",
    )


def _stopped(facts: StoreFacts, words: TaskPage) -> str:
    if not facts.final:
        return " how far the others came was not recorded."
    low, half, high = percentiles(100 * np.asarray(facts.final), (10.0, 50.0, 90.0))
    return (
        f" they ended with {half:.0f} % {words.final_words} in the median (10th to 90th"
        f" percentile {low:.0f} to {high:.0f} %)."
    )


def physics_section(data: ReportData) -> str:
    """Parameters before and after, and what they do to the replay error."""
    if data.identification is None and not data.replays:
        return ""
    body = paragraph(
        "A simulated scene was fitted to the recordings: the recorded actions are played into it,"
        " and its parameters are changed until the object moves as it did for the person. The"
        " fit never sees the hand-made reference scene; the reference only serves to compare."
    )
    if data.identification is not None:
        body += _identified(data.identification, data.words)
    if data.replays:
        body += _replays(data.replays, data.words)
    return body


def _identified(found: Identification, words: TaskPage) -> str:
    rows = [
        [
            words.parameters.get(p.name, p.name),
            f"{p.before:.4g}",
            f"{p.after:.4g}",
            f"{words.source_values[p.name]:g}" if p.name in words.source_values else "–",
        ]
        for p in found.parameters
    ]
    effort = (
        f"{found.evaluations} evaluations in {found.duration_s:.0f} s, on"
        f" {found.windows} windows of {found.train_episodes} episodes"
    )
    return table(
        ["parameter", "naive start", "found", "source world"],
        rows,
        f"What identification changed ({effort}). Source world: as its program is written.",
    ) + table(
        ["held-out replay error", "naive start", "found", "episodes"],
        _held_out(found.before, found.after),
        "Median / 90th percentile of the distance between where the object ended in the scene and"
        " in the recording, over episodes that the fit did not use.",
    )


def _held_out(before: HeldOut, after: HeldOut) -> list[list[str]]:
    def position(e: ReplayErrors) -> str:
        return f"{e.position_p50_mm:.2f} / {e.position_p90_mm:.2f} mm"

    def rotation(e: ReplayErrors) -> str:
        return f"{e.rotation_p50_deg:.2f} / {e.rotation_p90_deg:.2f} deg"

    return [
        [f"{what}, {when}", tell(naive), tell(fitted), str(fitted.episodes)]
        for when, naive, fitted in (
            ("after 5 s", before.after_5_s, after.after_5_s),
            ("at the end", before.final, after.final),
        )
        for what, tell in (("position", position), ("rotation", rotation))
    ]


def _replays(replays: Sequence[Replay], words: TaskPage) -> str:
    rank = {scene: i for i, scene in enumerate(words.scenes)}
    ordered = sorted(replays, key=lambda r: rank.get(r.scene, len(rank)))
    body = table(
        ["scene", "position", "rotation", "episodes", "unstable"],
        [
            [
                r.scene,
                f"{number(r.position_mm.p50, 2)} / {number(r.position_mm.p90, 2)} mm",
                f"{number(r.rotation_deg.p50, 2)} / {number(r.rotation_deg.p90, 2)}°",
                str(r.episodes),
                str(r.diverged),
            ]
            for r in ordered
        ],
        "Whole episodes replayed open loop (recorded actions, no correction): median / 90th"
        " percentile of the final error.",
    )
    curves = {r.scene: r.each for r in ordered if r.each}
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
    rows = [
        [
            run.name,
            "–" if run.updates is None else str(run.updates),
            f"{run.seconds / 60:.1f} min",
            f"{run.cpu_seconds / 60:.1f} min",
            run.episodes,
            run.seed,
        ]
        for run in data.runs
    ]
    return (
        paragraph(
            "Losses tell whether training went on as it should, not how good a policy is; that is"
            " what the trials below are for.",
            ""
            if run_families(data.runs)
            else "One training run each: the spread between runs with other seeds was not measured"
            " and is not part of any interval on this page.",
        )
        + table(
            ["run", "updates", "time", "CPU time", "episodes", "seed"],
            rows,
            "What training cost on this machine.",
        )
        + "".join(practice_curves(run) + _curves(run) + critic_curves(run) for run in data.runs)
    )


def _curves(run: RunFacts) -> str:
    found = {name: run.curve(name) for name in run.figures()[:MAX_CURVES]}
    curves = {name: curve for name, curve in found.items() if curve is not None}
    if not curves:
        return ""
    return picture(
        training_plot(curves, run.name),
        f"Training curves of {run.name}",
        f"Run “{run.name}”: figures of the training log (thin), smoothed (thick).",
    )


def practice_curves(run: RunFacts) -> str:
    """How a policy got better by doing; empty for a run that did not practise."""
    curves = run.practice
    if curves is None:
        return ""
    return picture(
        practice_plot(curves, run.name),
        f"Practice of {run.name}",
        f"Run “{run.name}”: successes while it practised, of what is learned (with what it tries)"
        " and of its parent on the same starts, among the last 64 episodes of each, without a"
        " person's help; points: on held-out starts, as it would be deployed, with 95 % intervals.",
    ) + "".join(paragraph(words) for words in _practice_words(run))


def _practice_words(run: RunFacts) -> list[str]:
    """Of what it was to practise: the switch from the parent, how far from it, what it cost."""
    found: list[str] = []
    if run.switch is not None:
        words = switch_words(*run.switch)
        found.append(f"Run “{run.name}”: {words}.")
    if run.drift is not None:
        found.append(
            f"Its answers are {run.drift:.2f} times as far from its parent's as the parent's own"
            " to unrelated observations (0: what the parent might have answered)."
        )
    if run.wear is not None:
        found.append(f"What “{run.name}” cost: {wear_words(run.wear)}.")
    return found


def critic_curves(run: RunFacts) -> str:
    """Curves of a run's critic with their diagnosis in words; empty for a run without one."""
    diagnosis, curves = run.diagnosis, run.critic_curves()
    if diagnosis is None or not curves:
        return ""
    asked = "the same batch all along"
    if run.practice is not None:
        asked = "a batch of what had been practised until then"
    return picture(
        critic_plot(curves, run.name),
        f"Diagnosis of the critic of {run.name}",
        f"Run “{run.name}”: its critic, asked on {asked} ({diagnosis.time_share:.1%} of the time)."
        " Values of runs with other settings mean nothing beside each other.",
    ) + paragraph(
        f"Diagnosis of the critic of “{run.name}”: {diagnosis.verdict}. "
        + " ".join(sentence(words[:1].upper() + words[1:]) for words in diagnosis.words)
    )


def deployment_section(data: ReportData) -> str:
    """Trials, latency and jitter, interventions."""
    deploy = data.deploy
    if deploy is None:
        return ""
    driver = f"The policy “{deploy.trials[0].policy}”" if deploy.trials else "The policy"
    body = paragraph(
        f"{driver} drove an arm in real time.",
        VIRTUAL_WORDS if deploy.virtual else "",
        "Supervisor, robot and policy are separate processes; the supervisor limits every motion"
        " and stops the arm when the policy falls silent.",
        data.words.sensing,
    )
    if deploy.trials:
        body += table(
            ["trial", "start", "score", "solved", "duration", "ended because"],
            [
                [
                    str(i),
                    t.condition or "–",
                    number(t.score),
                    "yes" if t.success else "no",
                    f"{t.duration_s:.1f} s",
                    reason_words(t.reason),
                ]
                for i, t in enumerate(deploy.trials, 1)
            ],
            f"The deployed trials (n = {len(deploy.trials)}).",
            numeric_from=2,
        )
    body += _interventions(deploy) + _timing(deploy.times)
    if deploy.figures:
        body += details(
            "All figures of the deployment",
            table(["figure", "value"], deploy.figures, numeric_from=1),
        )
    clips = [
        video(p, f"Deployed trial {i}, drawn from its recorded poses.")
        for i, p in enumerate(deploy.videos[:4], 1)
    ]
    return body + columns(clips)


def _interventions(deploy: DeployFacts) -> str:
    if deploy.interventions is None:
        return ""
    total = sum(deploy.interventions.values())
    if total == 0:
        return paragraph("The supervisor never had to intervene.")
    rows = [[cause.replace("_", " "), str(k)] for cause, k in sorted(deploy.interventions.items())]
    return table(
        ["intervention of the supervisor", "times"],
        rows,
        "What the supervisor limited or stopped, by cause"
        f" ({total} in {len(deploy.trials)} trials).",
    )


def _timing(times: TickTimes) -> str:
    interval = "tick interval [ms]"
    every = {
        "policy latency [ms]": times.inference_ms,
        interval: times.interval_ms,
        "tick lateness [ms]": times.late_ms,
        "set-point lateness [ms]": times.setpoint_ms,
    }
    series = {name: values for name, values in every.items() if values}
    if not series:
        return ""
    rows = [
        [name, *(f"{p:.2f}" for p in percentiles(v)), f"{max(v):.2f}",
         str(len(v))]
        for name, v in series.items()
    ]  # fmt: skip
    return table(
        ["time", "median", "90 %", "99 %", "largest", "n"],
        rows,
        f"Times of the control loop (period {times.period_ms:.0f} ms).",
    ) + picture(
        histogram_plot(series, {interval: times.period_ms}),
        "Histograms of latency and jitter",
        "How long the policy took, how regular the ticks were (dashed: the period), how late a tick"
        " was, and how late the supervisor's set-points to the arm were.",
    )


def words_section(data: ReportData) -> str:
    """What the words mean."""
    words = glossary(data)
    items = "".join(f"<dt>{text(k)}</dt><dd>{text(v)}</dd>" for k, v in words.items())
    return f"<dl>{items}</dl>"


def provenance_section(data: ReportData) -> str:
    """Versions, hashes, commands."""
    rows: list[list[str]] = []
    command = ""
    if data.evaluation is not None:
        asked = data.evaluation.asked
        command = asked.command
        rows += [["suite", asked.suite]]
        rows += [["code", f"commit {asked.commit or '–'}, sources {asked.code}"]]
        rows += [[f"world {w.name}", f"{w.engine}, hash {w.hash}"] for w in asked.worlds]
        rows += [[f"policy {p.name}", f"hash {p.hash}"] for p in asked.policies]
        rows += [
            [f"plan {k}", p if isinstance(p, str) else f"written {p.written}; {p.words()}"]
            for k, p in data.evaluation.plans.items()
        ]
        rows += [["libraries", asked.libraries]] if asked.libraries else []
        rows += [[name, version] for name, version in asked.versions.items()]
        rows += [["episodes per forward pass", str(asked.batch)]]
    rows += [[f"data of run {r.name}", f"hash {r.data_hash}"] for r in data.runs if r.data_hash]
    body = table(["what", "which"], rows, numeric_from=None) if rows else ""
    if data.stages:
        stages = [[s.name, s.status, f"{s.seconds:.0f} s"] for s in data.stages]
        body += table(["stage", "state", "time"], stages, "The stages of this demonstration.")
    if command:
        body += code([command])
    body += "".join(
        details(f"Configuration of run {run.name}", code(run.config.splitlines()))
        for run in data.runs
        if run.config
    )
    return body
