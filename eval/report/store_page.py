"""Renders what a store of episodes is good for as one self-contained page."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from eval.report.page import Plot, Section, Tile, note, page, paragraph, picture, table
from eval.report.plots import COLOURS, FULL, drawn
from robolearn.data.insight.advice import Advice
from robolearn.data.insight.measures import StoreMeasures


def store_page(title: str, measured: StoreMeasures, advice: Advice) -> str:
    """The whole document."""
    return page(
        title,
        f"{measured.episodes} episodes, {measured.steps} steps at {measured.rate_hz:g} Hz:"
        f" {', '.join(f'{n} {kind}' for kind, n in measured.kinds.items())}.",
        [advice.headline, *advice.reasons, *advice.remedies],
        _tiles(measured, advice),
        [
            Section("advice", "What to train", _advice(advice)),
            Section("quality", "Returns, lengths and success", _quality(measured)),
            Section("coverage", "Quality and coverage", _coverage(measured)),
            Section("ends", "How episodes end", _ends(measured)),
            Section("actions", "Actions: limits, delay, ambiguity", _actions(measured)),
            Section("limits", "What this page cannot know", _limits(measured, advice)),
        ],
    )


def _tiles(m: StoreMeasures, advice: Advice) -> list[Tile]:
    tried = ", ".join(advice.algorithms[:2])
    found = [
        Tile(advice.family, f"try {tried}", "What the data speak for"),
        Tile(f"{m.successes / m.episodes:.0%}", f"{m.successes} of {m.episodes}", "Success"),
    ]
    if m.trajectory_quality is not None:
        found.append(
            Tile(f"{m.trajectory_quality:.2f}", "0: worst, 1: best episode", "Trajectory quality")
        )
    found.append(Tile(f"{m.coverage:.2f}", "unique bins per step", "State-action coverage"))
    if m.delay is not None:
        late = f"{1e3 * m.delay.seconds:.0f} ms"
        found.append(Tile(late, _ticks(m.delay.ticks), "Motion after its command"))
    return found


def _advice(advice: Advice) -> str:
    rows = [[str(k), name] for k, name in enumerate(advice.algorithms, 1)]
    return (
        paragraph(advice.headline)
        + table(["", "algorithm (policy: in the experiment)"], rows, numeric_from=None)
        + "".join(note(remedy) for remedy in advice.remedies)
    )


def _quality(m: StoreMeasures) -> str:
    rows = [
        [t.task or "(none)", str(t.episodes), str(t.successes), f"{t.successes / t.episodes:.0%}"]
        for t in m.tasks
    ]
    parts = [
        table(["task", "episodes", "successes", "share"], rows, "Outcomes as annotated."),
        picture(
            _histograms(m),
            "Histograms of episode lengths, scores and returns",
            "Lengths and scores (highest progress) of all episodes; returns (sum of recorded"
            f" rewards) of the {m.sampled_episodes} that were sampled.",
        ),
    ]
    if m.returns is None:
        parts.append(note("No step has a reward: returns are not known."))
    return "".join(parts)


def _coverage(m: StoreMeasures) -> str:
    quality = "not known" if m.trajectory_quality is None else f"{m.trajectory_quality:.2f}"
    rows = [
        ["trajectory quality", quality],
        ["state-action coverage", f"{m.coverage:.2f}"],
        ["state coverage", f"{m.unique_states:.2f}"],
    ]
    return table(["measure", "value"], rows) + paragraph(
        "Quality is the mean return between the worst and the best episode; coverage the number of"
        " different quantised states and actions (their three main components each, ten bins) per"
        " step. High quality and low coverage is an expert's store, made for imitation; low quality"
        " and high coverage is where reinforcement learning gains most."
    )


def _ends(m: StoreMeasures) -> str:
    e = m.ends
    rows = [
        ["terminal (the task is over, no value follows)", str(e.terminal)],
        ["truncated (the recording stops)", str(e.truncated)],
        ["neither: read as truncated", str(e.silent)],
        ["flags and outcome disagree", str(e.disagreeing)],
        ["recorded as success, annotated as failure", str(e.denied)],
        ["terminal exactly when time is up, none a success", str(e.by_the_clock)],
    ]
    return table([f"of {m.sampled_episodes} sampled episodes", "episodes"], rows)


def _actions(m: StoreMeasures) -> str:
    rows = [
        [
            s.name,
            f"{s.at_limit:.1%}",
            f"{s.outside:.1%}" if s.declared else "-",
            "declared" if s.declared else "extremes of the data",
        ]
        for s in m.saturation[:12]
    ]
    parts = [table(["action", "at a limit", "outside", "limits"], rows, "Share of steps.")]
    if m.delay is None:
        parts.append(note("No measured motion follows a command clearly: the delay is not known."))
    else:
        d = m.delay
        parts.append(
            paragraph(
                f"'{d.motion}' follows '{d.command}' {_ticks(d.ticks)} later ({1e3 * d.seconds:.0f}"
                f" ms), with a correlation of {d.correlation:.2f}; to within one tick.",
                "robolearn calibrate latency measures a known pair in milliseconds.",
            )
        )
    if m.ambiguity is None:
        parts.append(note("Too few episodes to compare what is done in near states."))
    else:
        a = m.ambiguity
        parts.append(
            paragraph(
                f"Among the nearest states of other episodes, {a.spread:.0%} of the variance of all"
                f" actions is left; in {a.two_modes:.0%} of {a.states} states these actions form"
                " two groups.",
                "Much variance without groups is noise, or something that the states do not show.",
            )
        )
    return "".join(parts)


def _limits(m: StoreMeasures, advice: Advice) -> str:
    said = list(advice.limits)
    if m.sampled_steps < m.steps:
        said.insert(
            0,
            f"All but lengths, scores and success is measured on {m.sampled_episodes} of"
            f" {m.episodes} episodes ({m.sampled_steps} of {m.steps} steps), drawn at random.",
        )
    if m.left_out:
        said.insert(0, f"{m.left_out} episodes have other signals or actions, and were left out.")
    return "".join(note(sentence) for sentence in said)


def _ticks(count: int) -> str:
    return f"{count} tick{'' if count == 1 else 's'}"


def _histograms(m: StoreMeasures) -> Plot:
    series: list[tuple[str, str, Sequence[float]]] = [
        ("Length", "episode length [s]", [n / m.rate_hz for n in m.lengths]),
        ("Score", "highest progress [%]", [100 * score for score in m.scores]),
    ]
    if m.returns is not None:
        series.append(("Return", "sum of rewards", m.returns))

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, len(series), squeeze=False)[0]
        for axes, (name, label, values) in zip(panels, series, strict=True):
            axes.hist(values, bins=24, color=COLOURS[0])
            axes.set(title=name, xlabel=label, ylabel="episodes")

    return drawn(draw, FULL, 3.0)
