"""Writes what explains the gap of a simulator: lines, rows of tables, JSON, and what to do next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eval.plain import plain_values
from eval.report.page import code, details, note, paragraph, table
from eval.report.text import estimate_text, markdown_table, markdown_text, p_text, sentence
from eval.trust.causes.report import CausesReport, ParameterFinding
from eval.words import count_of


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do next, in words, and the command that does it; capitals stand for what is yours."""

    words: str
    command: str


# What measures a parameter; {world} is the scene.
_MEASUREMENTS = {
    "friction": Advice(
        "fit friction to recorded contacts: of what an arm handled from its episodes (a pushed"
        " block's, in a planar scene, from the demonstrations of a store)",
        "robolearn identify --episodes REAL/store --scene {world} --out {world}_identified",
    ),
    "mass": Advice(
        "weigh the objects (overrides of scene.yaml: mass_kg), or fit them to recorded episodes",
        "robolearn identify --episodes REAL/store --scene {world} --out {world}_identified",
    ),
    "damping": Advice(
        "fit what resists a motion to recorded ones",
        "robolearn identify STORE --template {world} --out {world}_identified",
    ),
    "gain": Advice(
        "let the arm move, and fit its servos",
        "robolearn identify --robot CELL.yaml --scene {world} --out {world}_identified",
    ),
    "delay": Advice(
        "measure how late commands take effect",
        "robolearn calibrate latency --config CELL.yaml",
    ),
    "camera": Advice(
        "photograph the cell, and see whether its cameras are where the scene has them",
        "robolearn scene drift SCENE --photo CAMERA=FILE",
    ),
    "light": Advice(
        "take a capture under today's light, and hold the scene's colours against it",
        "robolearn scene verify SCENE --capture CAPTURE",
    ),
}
# The perturbation that draws what a shift changes, for training.
_DRAWN = {
    "friction": "friction",
    "mass": "mass",
    "delay": "action_delay",
    "camera": "camera_pose",
    "light": "lighting",
}
_DIRECTIONS = {
    "delay": ("shorter", "longer"),
    "camera": ("further left and down", "further right and up"),
    "light": ("darker", "brighter"),
}

PARAMETER_HEADER = (
    *("parameter", "cause", "p", "explains", "best level", "shift", "moves outcomes by"),
    "plausible",
)
MIXED_HEADER = ("policy", "real", "simulated", "mean of all worlds", "lowest", "highest")


def headline(report: CausesReport) -> str:
    """The verdict in a sentence."""
    if report.verdict == "found":
        best = report.parameters[0]
        return f"found: real trials look as if {_direction(best)}"
    if report.verdict == "several":
        names = ", ".join(report.suspects)
        return f"several causes, which these trials do not tell apart: {names}"
    if report.verdict == "unexplained":
        return "there is a gap, and no parameter that was shifted explains it"
    return "nothing shown: real trials could be simulated ones, and no parameter looks wrong"


def advice(report: CausesReport) -> list[Advice]:
    """What to measure, to train on, and to fall back on."""
    named = {q.parameter: q for q in report.parameters}
    found = [
        Advice(f"{name}: {_MEASUREMENTS[name].words}", _command(name, report.world))
        for name in report.suspects
        if name in _MEASUREMENTS
    ]
    if report.verdict == "unexplained":
        others = "; ".join(f"{name}: {why}" for name, why in report.left_out.items())
        found.append(
            Advice(
                "replay recorded commands in the scene: where poses part says what is wrong that"
                f" no shift covers{f' (not shifted: {others})' if others else ''}",
                f"robolearn replay REAL/store --scene {report.world} --plot replay.png",
            )
        )
    if report.verdict == "nothing shown":
        found.append(
            Advice(
                f"more real trials would show smaller gaps: {report.starts} starts were tried",
                "robolearn trial --robot CELL.yaml --policies RUN ... --trials N --out REAL",
            )
        )
    drawn = [
        (name, _DRAWN[name], _reach(named[name]))
        for name in named
        if name in _DRAWN and named[name].plausible is not None and _reach(named[name]) >= 0.05
    ]
    if drawn:
        suffix = "".join(f"~{kind}={reach:.2g}" for _, kind, reach in drawn)
        ranges = ", ".join(f"{name} {_range(named[name])}" for name, *_ in drawn)
        found.append(
            Advice(
                f"train on what these trials leave open: {ranges}",
                f"robolearn finetune RUN --world '{report.world}{suffix}' --out RUN_robust",
            )
        )
        if report.verdict != "nothing shown":
            found.append(
                Advice(
                    "until the scene is corrected, evaluate over that range:"
                    f" {mixed_words(report)}",
                    f"robolearn evaluate RUN ... --like REAL --worlds '{report.world}{suffix}'"
                    " --out RANDOMISED",
                )
            )
    return found


def mixed_words(report: CausesReport) -> str:
    """What the mean over all shifted worlds is worth beside the scene as it is."""
    gain = report.mixed.gain
    if gain.low > 0.0:
        return "the mean over all shifted worlds is closer to reality than the scene"
    if gain.high < 0.0:
        return "the mean over all shifted worlds is further from reality than the scene"
    return "the mean over all shifted worlds is not shown to be closer to reality than the scene"


def causes_lines(report: CausesReport) -> list[str]:
    """Plain lines, for a terminal."""
    tried = (
        f"{count_of(report.policies, 'policy', 'policies')}, {count_of(report.starts, 'start')},"
        f" {count_of(report.rollouts, 'rollout')} each"
    )
    lines = [f"{report.world}, {tried}, by {report.by}: {headline(report)}"]
    lines.append(f"  {gap_words(report)}")
    rows = [list(PARAMETER_HEADER), *parameter_rows(report)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(PARAMETER_HEADER))]
    lines += [
        "  " + "  ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [f"  not shifted: {name}: {why}" for name, why in report.left_out.items()]
    for a in advice(report):
        lines += [f"next: {a.words}", f"  $ {a.command}"]
    return [*lines, f"rule: {report.rule}"]


def causes_markdown(report: CausesReport) -> list[str]:
    """A section of a Markdown page."""
    lines = ["", f"### What is wrong with {markdown_text(report.world)}?", ""]
    lines += [f"{markdown_text(headline(report))}.", ""]
    lines += [
        f"{markdown_text(gap_words(report))}.",
        "",
        *markdown_table(PARAMETER_HEADER, parameter_rows(report)),
    ]
    lines += markdown_table(MIXED_HEADER, mixed_rows(report))
    lines += [
        f"* not shifted: {markdown_text(f'{name}: {why}')}" for name, why in report.left_out.items()
    ]
    return lines + [f"* {markdown_text(a.words)}: `{a.command}`" for a in advice(report)]


def causes_section(report: CausesReport) -> str:
    """The body of a page's section."""
    body = paragraph(sentence(headline(report)), sentence(gap_words(report)))
    caption = (
        "p: that reality lies where this shift moves simulated outcomes only by chance, for all"
        " shifts at once. Explains: squared error that the best level takes away. Plausible: levels"
        " that these trials leave open (95 %); of factors powers of two, of a delay 100 ms."
    )
    body += table(PARAMETER_HEADER, parameter_rows(report), caption)
    for a in advice(report):
        body += paragraph(f"Next: {sentence(a.words)}") + code([a.command])
    caption = sentence(mixed_words(report))
    body += details("Over all shifted worlds", table(MIXED_HEADER, mixed_rows(report), caption))
    left = [sentence(f"Not shifted: {name}: {why}") for name, why in report.left_out.items()]
    return body + "".join(note(words) for words in [*left, report.rule])


def gap_words(report: CausesReport) -> str:
    """Whether there is a gap at all."""
    shown = "a gap is shown" if report.gap_p <= 0.05 else "no gap is shown"
    return (
        f"{shown}: p = {report.gap_p:.2g} that real trials are simulated ones; squared gap beyond"
        f" noise {estimate_text(report.gap)}"
    )


def parameter_rows(report: CausesReport) -> list[list[str]]:
    """A row per parameter under :data:`PARAMETER_HEADER`, the likeliest cause first."""
    return [
        [
            q.parameter,
            "yes" if q.cause else "no" if q.best.moves else "cannot tell",
            p_text(q.best.p),
            f"{q.best.explained:.4f}",
            "–" if q.best.level is None else _level(q),
            f"{q.best.shift.level:+g}",
            estimate_text(q.best.effect, 2),
            "–" if q.plausible is None else _range(q),
        ]
        for q in report.parameters
    ]


def mixed_rows(report: CausesReport) -> list[list[str]]:
    """A row per policy under :data:`MIXED_HEADER`."""
    return [
        [r.policy, *(f"{v:.3f}" for v in (r.real, r.nominal, r.mixed, r.lowest, r.highest))]
        for r in report.mixed.rates
    ]


def causes_document(report: CausesReport) -> Mapping[str, Any]:
    """JSON values."""
    return plain_values(
        {
            "world": report.world,
            "by": report.by,
            "policies": report.policies,
            "starts": report.starts,
            "rollouts": report.rollouts,
            "verdict": report.verdict,
            "headline": headline(report),
            "suspects": report.suspects,
            "gap": report.gap,
            "gap_p": report.gap_p,
            "parameters": report.parameters,
            "mixed": report.mixed,
            "left_out": report.left_out,
            "next": advice(report),
            "rule": report.rule,
        }
    )


def _command(name: str, world: str) -> str:
    return _MEASUREMENTS[name].command.format(world=world)


def _direction(q: ParameterFinding) -> str:
    up = q.best.level is None or q.best.level.value > 0.0
    less, more = _DIRECTIONS.get(q.parameter, ("lower", "higher"))
    return f"{q.parameter} were {more if up else less} than in the scene ({_level(q)})"


def _level(q: ParameterFinding) -> str:
    level = q.best.level
    if level is None:
        return "not known"
    return f"{_amount(q.parameter, level.value)} [{level.low:+.2f}, {level.high:+.2f}]"


def _amount(parameter: str, level: float) -> str:
    if parameter == "delay":
        return f"{100.0 * level:+.0f} ms"
    if parameter == "camera":
        return f"{level:+.2f}"
    return f"times {2.0**level:.2f}"


def _range(q: ParameterFinding) -> str:
    return "–" if q.plausible is None else f"{q.plausible[0]:+.2f} to {q.plausible[1]:+.2f}"


def _reach(q: ParameterFinding) -> float:
    return 0.0 if q.plausible is None else max(abs(v) for v in q.plausible)
