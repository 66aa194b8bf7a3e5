"""``robolearn calibrate`` measures how late commands act and cameras see."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.calibrate.camera import CameraArgs
from robolearn.cli.calibrate.camera import run as calibrate_camera
from robolearn.cli.calibrate.cameras import CamerasArgs
from robolearn.cli.calibrate.cameras import run as calibrate_cameras
from robolearn.cli.calibrate.hand_eye import HandEyeArgs
from robolearn.cli.calibrate.hand_eye import run as calibrate_hand_eye
from robolearn.cli.shared.consent import ask, wait_for_enter
from robolearn.cli.shared.parse import counting, parse, print_json, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from hardware.commissioning.latencies import CellLatencies
    from robolearn.operations.cell.latency import RecordedLatencies


@dataclass(frozen=True)
class Latency:
    """Measure latencies: move the arm a little, or read a recorded episode."""

    # A file of configs/hardware/: the arm moves by --amplitude.
    config: Path | None = None
    # How long it moves [s].
    seconds: float = 15.0
    # How far to either side [m, or rad in joint space]; less than the tool's width, so that a
    # camera's picture follows the position.
    amplitude: float = 0.012
    # Start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # Do not ask before the arm moves.
    yes: bool = False
    # A camera with stamps of this machine's clock (clock: monotonic): tells how late the arm's own
    # signals are. Without one they count as right (state_latency_s as configured).
    anchor: str = ""
    # Write the results into the config (comments stay).
    write: bool = False
    # Read an episode of this store instead of moving anything.
    store: str = ""
    # Its id (default: every episode, median).
    episode: str = ""
    # With --store: the action signal.
    command: str = ""
    # With --store: the signal that follows it.
    response: str = ""
    # Only look for responses that are late.
    force_positive: bool = False
    # Print one JSON document.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run a verb."""
    return run_verb("calibrate", "Calibrations of a robot cell.", VERBS, argv)


def _latency(argv: list[str]) -> int:
    args = parse(Latency, argv, "calibrate latency", Latency.__doc__ or "")
    if args.store and args.config is None:
        document = _from_store(args)
    elif args.config is not None and not args.store:
        document = _from_robot(args, args.config)
    else:
        raise ConfigError("give either --config (the arm moves) or --store (a recording)")
    if args.json:
        print_json(document)
    return 0


def _from_store(args: Latency) -> dict[str, Any]:
    if not (args.command and args.response):
        raise ConfigError("--store needs --command and --response: names of two signals")
    from robolearn.operations.cell.latency import recorded_latencies

    found = recorded_latencies(
        Path(args.store),
        args.command,
        args.response,
        episode=args.episode,
        force_positive=args.force_positive,
        on_skipped=lambda episode, why: say(f"{episode}: {why}", quiet=args.json),
    )
    low, median, high = found.quartiles_s()
    say(
        f"{found.response} follows {found.command} after {1e3 * median:.1f} ms (median of"
        f" {len(found.episodes)} episode(s), quartiles {1e3 * low:.1f} to {1e3 * high:.1f} ms)",
        quiet=args.json,
    )
    return _recorded_document(found)


def _recorded_document(found: RecordedLatencies) -> dict[str, Any]:
    low, median, high = found.quartiles_s()
    rows = [{"episode": e.episode, **dataclasses.asdict(e.found)} for e in found.episodes]
    return {"median_s": median, "quartiles_s": [low, high], "episodes": rows}


def _from_robot(args: Latency, config: Path) -> dict[str, Any]:
    from hardware.commissioning.latencies import store_latencies
    from robolearn.operations.cell.latency import measure_latencies
    from robolearn.operations.cell.operator import CellOperator

    operator = CellOperator(partial(ask, yes=args.yes), None if args.yes else wait_for_enter)
    with counting("moving", quiet=args.json) as show:
        found = measure_latencies(
            config,
            operator,
            seconds=args.seconds,
            amplitude=args.amplitude,
            anchor=args.anchor,
            start_lab=args.start_lab,
            on_moved=show,
        )
    _show(found, quiet=args.json)
    if args.write:
        store_latencies(config, found)
        say(f"written to {config}", quiet=args.json)
    return {name: dataclasses.asdict(row) for name, row in found.rows().items()}


def _show(found: CellLatencies, *, quiet: bool) -> None:
    for name, row in found.rows().items():
        say(
            f"{name:<16} {1e3 * row.latency_s:7.1f} ms  +- {1e3 * row.error_s:.1f} ms"
            f"  (correlation {row.correlation:.2f}, configured {1e3 * row.configured_s:.1f})",
            quiet=quiet,
        )


VERBS = {
    "latency": (Latency, _latency),
    "camera": (CameraArgs, calibrate_camera),
    "cameras": (CamerasArgs, calibrate_cameras),
    "handeye": (HandEyeArgs, calibrate_hand_eye),
}
