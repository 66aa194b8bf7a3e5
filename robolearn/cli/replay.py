"""``robolearn replay STORE --scene SCENE``: recorded actions, open loop, in a simulated world."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError, DataError

if TYPE_CHECKING:
    from sim.identification.replay import ErrorSummary, ReplayError


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
    from robolearn.data.store.store import EpisodeStore
    from sim.identification.replay import replay_episode, summarize_after, summarize_final
    from sim.worlds import make_world

    times = _times(args.after)
    if args.plot is not None:
        output_file(args.plot, "--plot", (".png", ".pdf", ".svg"))
    store = EpisodeStore.open(args.store)
    ids = [info.id for info in store.list()]
    if args.episodes is not None and args.episodes < 1:
        raise ConfigError(f"--episodes must be at least 1, got {args.episodes}")
    ids = ids[: args.episodes]
    if not ids:
        raise DataError(f"'{args.store}' holds no episodes; collect or import some first")
    env = make_world(args.scene)
    if args.scene.startswith("robosuite/"):
        from robolearn.cli.replay_states import replay_states

        return replay_states(env, [store.read(name) for name in ids], args)
    errors: list[ReplayError] = []
    try:
        with progress("replay", len(ids), quiet=args.json) as advance:
            for name in ids:
                errors.append(replay_episode(env, store.read(name)))
                advance()
    finally:
        env.close()
    if args.plot is not None:
        _plot(errors, args.scene, args.plot)
    final = summarize_final(errors)
    after = {t: summarize_after(errors, t) for t in times}
    if args.json:
        print_json(_document(errors, final, after, args.scene, env.engine, env.scene_hash))
        return 0
    say(f"{len(errors)} episodes in {args.scene} ({env.engine}); median / 90th percentile")
    for label, summary in [("at the end", final)] + [
        (f"after {t:g} s", s) for t, s in after.items()
    ]:
        if not summary.episodes:
            say(f"  {label:<12} no episode is that long")
            continue
        say(
            f"  {label:<12} {summary.position_p50_mm:8.3f} / {summary.position_p90_mm:.3f} mm"
            f"   {summary.rotation_p50_deg:8.3f} / {summary.rotation_p90_deg:.3f} deg"
            f"   ({summary.episodes} episodes)"
        )
    diverged = [e.episode for e in errors if e.reason]
    if diverged:
        say(f"  physics diverged in {len(diverged)}: {', '.join(diverged[:5])}")
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


def _document(
    errors: Sequence[ReplayError],
    final: ErrorSummary,
    after: dict[float, ErrorSummary],
    scene: str,
    engine: str,
    scene_hash: str,
) -> dict[str, Any]:
    return {
        "episodes": len(errors),
        **_figures(final),
        "after_s": {f"{t:g}": {"episodes": s.episodes, **_figures(s)} for t, s in after.items()},
        "scene": scene,
        "scene_hash": scene_hash,
        "engine": engine,
        "diverged": sum(bool(e.reason) for e in errors),
        "per_episode": [
            {
                "id": e.episode,
                "final_position_error_mm": float(e.position_m[-1]) * 1e3,
                "final_rotation_error_deg": math.degrees(float(e.rotation_rad[-1])),
            }
            for e in errors
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


def _plot(errors: Sequence[ReplayError], scene: str, path: Path) -> None:
    from sim.identification.replay_plot import plot_replay

    plot_replay(errors, scene, path)
