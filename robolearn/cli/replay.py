"""``robolearn replay STORE --scene SCENE`` repeats recorded actions in a simulated world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import counting, parse, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.operations.replay import Replayed, StatesReplayed
    from sim.adapters.robosuite.replay import StateReplay
    from sim.identification.replay import ErrorSummary

STATES_AFTER_S = (1.0, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Args:
    """Replay recorded actions open loop and report how far the block ends from the recording.

    In a robosuite world: set the recorded states, and replay the actions of the same recording.
    """

    # Episode store with the recordings.
    store: Annotated[Path, tyro.conf.Positional]
    # Packaged scene, scene folder, gym_pusht, or robosuite/TASK for its recordings.
    scene: str
    # Use the first N episodes of the store; default every one.
    episodes: int | None = None
    # Also report the error after these times [s], for instance 1,5.
    after: str = "1,5"
    # Write a picture of the errors over time (PNG, PDF, SVG).
    plot: Path | None = None
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "replay", Args.__doc__ or "")
    from robolearn.operations.replay import replay, replay_states, sets_states

    times = _times(args.after)
    by_states = sets_states(args.scene)
    if args.plot is not None and by_states:
        raise ConfigError("--plot draws Push-T replays only; leave it out here")
    if args.plot is not None:
        output_file(args.plot, "--plot", (".png", ".pdf", ".svg"))
    if by_states:
        with counting("replay", quiet=args.json) as show:
            states = replay_states(args.store, args.scene, episodes=args.episodes, on_replayed=show)
        return _report_states(states, as_json=args.json)
    with counting("replay", quiet=args.json) as show:
        result = replay(args.store, args.scene, episodes=args.episodes, on_replayed=show)
    if args.plot is not None:
        _plot(result, args.plot)
    if args.json:
        print_json(_document(result, times))
        return 0
    say(
        f"{len(result.errors)} episodes in {result.scene} ({result.engine});"
        " median / 90th percentile"
    )
    for label, summary in [("at the end", result.final())] + [
        (f"after {t:g} s", result.after(t)) for t in times
    ]:
        if not summary.episodes:
            say(f"  {label:<12} no episode is that long")
            continue
        say(
            f"  {label:<12} {summary.position_p50_mm:8.3f} / {summary.position_p90_mm:.3f} mm"
            f"   {summary.rotation_p50_deg:8.3f} / {summary.rotation_p90_deg:.3f} deg"
            f"   ({summary.episodes} episodes)"
        )
    if result.diverged:
        say(f"  physics diverged in {len(result.diverged)}: {', '.join(result.diverged[:5])}")
    if args.plot is not None:
        say(f"plot: {args.plot}")
    return 0


def _times(text: str) -> list[float]:
    try:
        times = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"--after takes seconds like 1,5; got '{text}'") from error
    if any(not math.isfinite(t) or t <= 0 for t in times):
        raise ConfigError(f"--after takes positive seconds, got '{text}'")
    return times


def _document(result: Replayed, times: Sequence[float]) -> dict[str, Any]:
    after = {t: result.after(t) for t in times}
    return {
        "episodes": len(result.errors),
        **_figures(result.final()),
        "after_s": {f"{t:g}": {"episodes": s.episodes, **_figures(s)} for t, s in after.items()},
        "scene": result.scene,
        "scene_hash": result.scene_hash,
        "engine": result.engine,
        "diverged": len(result.diverged),
        "per_episode": [
            {
                "id": e.episode,
                "final_position_error_mm": float(e.position_m[-1]) * 1e3,
                "final_rotation_error_deg": math.degrees(float(e.rotation_rad[-1])),
            }
            for e in result.errors
        ],
    }


def _figures(s: ErrorSummary) -> dict[str, dict[str, float | None]]:
    return {
        "final_position_error_mm": {
            "p50": _finite(s.position_p50_mm),
            "p90": _finite(s.position_p90_mm),
        },
        "final_rotation_error_deg": {
            "p50": _finite(s.rotation_p50_deg),
            "p90": _finite(s.rotation_p90_deg),
        },
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _report_states(found: StatesReplayed, *, as_json: bool) -> int:
    import numpy as np

    if as_json:
        rows = [_row(r) for r in found.replays]
        print_json({"scene": found.scene, "engine": found.engine, "per_episode": rows})
        return 0
    say(f"{len(found.replays)} episodes in {found.scene} ({found.engine})")
    for result in found.replays:
        apart = [result.tool_after(t) * 1e3 for t in STATES_AFTER_S]
        say(
            f"  {result.episode}: states exact to {result.state_error:.1e},"
            f" their end {'succeeds' if result.states_succeed else 'is no success'} here"
        )
        say(
            f"    actions: tool {np.median(result.one_step_m) * 1e3:.2f} mm apart one tick after a"
            f" recorded state (median), {apart[0]:.1f} / {apart[1]:.1f} / {apart[2]:.1f} mm after"
            f" 1 / 5 / 10 s open loop; the task {'succeeds' if result.actions_succeed else 'fails'}"
        )
    return 0


def _row(result: StateReplay) -> dict[str, Any]:
    import numpy as np

    return {
        "id": result.episode,
        "state_error": result.state_error,
        "states_succeed": result.states_succeed,
        "one_step_tool_mm": float(np.median(result.one_step_m)) * 1e3,
        "tool_mm_after_s": {f"{t:g}": _finite(result.tool_after(t) * 1e3) for t in STATES_AFTER_S},
        "actions_succeed": result.actions_succeed,
    }


def _plot(result: Replayed, path: Path) -> None:
    from sim.identification.replay_plot import plot_replay

    plot_replay(result.errors, result.scene, path)
