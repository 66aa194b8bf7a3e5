"""``robolearn replay STORE`` repeats recorded actions: in a simulated world, or on an arm."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from hardware.cell.limits import RunLimits
from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import counting, parse, print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError
from robolearn.machine.threads import one_thread

if TYPE_CHECKING:
    from robolearn.operations.cell.replay import ArmReplay
    from robolearn.operations.replay import Replayed, StatesReplayed
    from sim.adapters.robosuite.replay import StateReplay
    from sim.identification.replay import ErrorSummary

STATES_AFTER_S = (1.0, 5.0, 10.0)
# Options that count on an arm alone, and in a scene alone.
_ARMS = ("episode", "speed", "another_arm", "start_lab", "lab_seed", "limits", "yes")
_SCENES = ("episodes", "after", "plot")


@dataclass(frozen=True, slots=True)
class Args:
    """Replay recorded actions open loop: in a scene, or one episode on an arm under its supervisor.

    Reports how far the block ends from the recording (in a robosuite world: sets the recorded
    states, and replays the actions of the same recording), or the arm was from the recorded way.
    """

    # Episode store with the recordings.
    store: Annotated[Path, tyro.conf.Positional]
    # Packaged scene, scene folder, gym_pusht, or robosuite/TASK for its recordings.
    scene: str = ""
    # Use the first N episodes of the store; default every one.
    episodes: int | None = None
    # Also report the error after these times [s], for instance 1,5.
    after: str = "1,5"
    # Write a picture of the errors over time (PNG, PDF, SVG).
    plot: Path | None = None
    # A file of configs/hardware/ instead of a scene: one episode is played on its arm.
    robot: Path | None = None
    # With --robot: id of the episode; default: the newest.
    episode: str = ""
    # With --robot: share of the recorded speed, above 0 and at most 1.
    speed: float = 1.0
    # With --robot: joint positions that were recorded on an arm of another name are meant for this.
    another_arm: bool = False
    # With --robot: start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # With --robot: seed of the lab's hidden physics and noise.
    lab_seed: int = 0
    # With --robot: tighter limits for this run.
    limits: Annotated[RunLimits, tyro.conf.arg(name="")] = field(default_factory=RunLimits)
    # With --robot: do not ask before the arm moves.
    yes: bool = False
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "replay", Args.__doc__ or "")
    if bool(args.scene) == (args.robot is not None):
        raise ConfigError(
            "say where: --scene for a simulated world, or --robot configs/hardware/FILE.yaml for an"
            " arm"
        )
    if args.robot is not None:
        return _on_arm(args, args.robot)
    refuse_without_use(args, _ARMS, "for --robot; leave out here")
    from robolearn.operations.replay import replay, replay_states, sets_states

    times = _times(args.after)
    by_states = sets_states(args.scene)
    if by_states:
        refuse_without_use(args, ("after", "plot"), "of Push-T replays alone; leave out here")
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


def _on_arm(args: Args, robot: Path) -> int:
    """Play one episode on an arm; Ctrl-C stops it (exit code 130)."""
    refuse_without_use(args, _SCENES, "for --scene; an arm plays one --episode")
    if not args.yes:
        from robolearn.cli.shared.consent import require_terminal

        require_terminal("the arm will move")
    one_thread()
    from robolearn.cli.deploy.terminal import TerminalOperator
    from robolearn.operations.cell.replay import ArmReplayOptions, replay_on_arm

    options = ArmReplayOptions(
        store=args.store,
        robot=robot,
        episode=args.episode,
        speed=args.speed,
        another_arm=args.another_arm,
        start_lab=args.start_lab,
        lab_seed=args.lab_seed,
        limits=args.limits,
    )
    try:
        found = replay_on_arm(options, TerminalOperator(yes=args.yes, quiet=args.json))
    except KeyboardInterrupt:
        say("\nstopped: the arm stands", quiet=args.json)
        return 130
    if args.json:
        print_json(asdict(found) | {"interventions": dict(found.interventions)})
        return 0
    for line in _arm_lines(found):
        say(line)
    return 0


def _arm_lines(found: ArmReplay) -> list[str]:
    whole = "to its end" if found.ended == "whole" else f"until it ended ({found.ended})"
    lines = [f"{found.episode} on {found.robot}: {found.steps} ticks, {whole}; {found.start}"]
    for t in found.tracking:
        scale, unit = (1e3, "mm") if t.unit == "m" else (1.0, t.unit)
        median, p95, most, final = (scale * v for v in (t.median, t.p95, t.most, t.final))
        lines.append(
            f"  {t.signal}: {median:.3g} {unit} from the recording (median), {p95:.3g} (95 %),"
            f" {most:.3g} at most, {final:.3g} at the end"
        )
    events = ", ".join(f"{cause} {n}x" for cause, n in found.interventions.items())
    lines.append(f"  supervisor: {events or 'nothing to do'}")
    return lines


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
