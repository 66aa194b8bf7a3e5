"""``robolearn calibrate``: how late commands act and cameras see, how and from where they look."""

from __future__ import annotations

import dataclasses
import math
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robolearn.cli.calibrate.camera import CameraArgs
from robolearn.cli.calibrate.camera import run as calibrate_camera
from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError
from robolearn.files import write_atomic

if TYPE_CHECKING:
    from hardware.cell.config import CellConfig
    from hardware.commissioning.latency_motions import Swing
    from robolearn.calibration.latency import TimeSeries


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
    if (args.config is None) == (not args.store):
        raise ConfigError("give either --config (the arm moves) or --store (a recording)")
    if not (args.seconds > 0 and args.amplitude > 0):
        raise ConfigError("--seconds and --amplitude must be positive")
    document = _from_store(args) if args.store else _from_robot(args)
    if args.json:
        print_json(document)
    return 0


# -- a recording -----------------------------------------------------------------------------------


def _from_store(args: Latency) -> dict[str, Any]:
    import numpy as np

    from robolearn.calibration.latency import TimeSeries, latency
    from robolearn.data.store.store import EpisodeStore
    from robolearn.errors import DataError

    if not (args.command and args.response):
        raise ConfigError("--store needs --command and --response: names of two signals")
    store = EpisodeStore.open(args.store)
    ids = (args.episode,) if args.episode else store.ids()
    found: list[dict[str, Any]] = []
    for name in ids:
        episode = store.read(name)
        if args.command not in episode.action or args.response not in episode.streams:
            raise DataError(
                f"episode {name} has the actions {sorted(episode.action)} and the signals"
                f" {sorted(episode.streams)}, not '{args.command}' and '{args.response}'"
            )
        stream = episode.streams[args.response]
        asked = episode.action[args.command]
        try:
            result = latency(
                TimeSeries(episode.tick_t_ns * 1e-9, asked.reshape(len(asked), -1)),
                TimeSeries(stream.t_ns * 1e-9, stream.value.reshape(len(stream.value), -1)),
                force_positive=args.force_positive,
            )
        except DataError as error:
            say(f"{name}: {error}", quiet=args.json)
            continue
        found.append({"episode": name, **dataclasses.asdict(result)})
    if not found:
        raise DataError(f"none of {len(ids)} episode(s) shows a latency; see above")
    values = [f["latency_s"] for f in found]
    low, middle, high = (float(v) for v in np.percentile(values, [25, 50, 75]))
    say(
        f"{args.response} follows {args.command} after {1e3 * middle:.1f} ms (median of"
        f" {len(found)} episode(s), quartiles {1e3 * low:.1f} to {1e3 * high:.1f} ms)",
        quiet=args.json,
    )
    return {"median_s": middle, "quartiles_s": [low, high], "episodes": found}


# -- the robot -------------------------------------------------------------------------------------


def _from_robot(args: Latency) -> dict[str, Any]:
    if args.config is None:
        raise ConfigError("--config is missing")
    from hardware.cell.load import load_cell

    cell = load_cell(args.config)
    _require_anchor(cell, args.anchor)
    recorded = _record(args, args.config, cell)
    document = measured(recorded, cell, args.anchor)
    for name, row in document.items():
        say(
            f"{name:<16} {1e3 * row['latency_s']:7.1f} ms  +- {1e3 * row['error_s']:.1f} ms"
            f"  (correlation {row['correlation']:.2f}, configured {1e3 * row['configured_s']:.1f})",
            quiet=args.json,
        )
    if args.write:
        _write(args.config, cell, document)
        say(f"written to {args.config}", quiet=args.json)
    return document


def _record(args: Latency, config: Path, cell: CellConfig) -> Swing:
    from hardware.commissioning.latency_motions import swing
    from hardware.commissioning.no_task import NoScore, clear_table, middle
    from hardware.emulators.lab.launch import LabProcess
    from hardware.env.real_env import RealEnv
    from robolearn.cli.shared.consent import ask, wait_for_enter

    with ExitStack() as stack:
        lab = None
        if args.start_lab:
            lab = stack.enter_context(LabProcess(config, address=cell.address or "127.0.0.1"))
        ask(f"the arm moves by {args.amplitude:g} for {args.seconds:g} s", yes=args.yes)
        place = clear_table(cell, lab, None if args.yes else wait_for_enter)
        env = RealEnv(cell, place=place, scorer=NoScore())
        stack.callback(env.close)
        ticks = round(args.seconds * cell.rate_hz)
        with progress("moving", ticks, quiet=args.json) as bar:
            recorded = swing(
                env,
                middle(cell),
                seconds=args.seconds,
                amplitude=args.amplitude,
                progress=bar,
            )
        env.home()
    return recorded


def measured(recorded: Swing, cell: CellConfig, anchor: str = "") -> dict[str, dict[str, float]]:
    """Latencies of commands and cameras by name, with what is configured now; with ``anchor``, the
    name of a camera whose times are right, also that of the arm's state.
    """
    from robolearn.calibration.latency import TimeSeries, latency, principal_motion

    def series(t_s: Any, value: Any) -> TimeSeries:
        return TimeSeries(t_s, value.reshape(len(t_s), -1))

    _require_anchor(cell, anchor)
    sent = series(*_ascending(recorded.sent_t_s, recorded.sent))
    state = series(*_ascending(recorded.measured_t_s, recorded.measured))
    found = latency(sent, state, force_positive=True)
    seen = {
        camera.stream.name: latency(
            state,
            series(
                recorded.picture_t_s[camera.signal_name],
                principal_motion(recorded.pictures[camera.signal_name]),
            ),
            any_sign=True,
        )
        for camera in cell.cameras
        if camera.signal_name in recorded.pictures
    }
    # By how much the state is later than its times say: pictures that are right seem early then.
    state_s = -seen[anchor].latency_s if anchor else 0.0
    rows = {"command": _row(found, found.latency_s - state_s, cell.command_latency_s)}
    if anchor:
        # What is taken off the sum is only as sure as the anchor.
        rows["command"]["error_s"] = math.hypot(found.error_s, seen[anchor].error_s)
        total = cell.state_latency_s + state_s
        rows["state"] = _row(seen[anchor], total, cell.state_latency_s)
    for camera in cell.cameras:
        result = seen.get(camera.stream.name)
        if result is None or camera.stream.name == anchor:
            continue
        # Pictures carry corrected times already: what is found is what is still missing. Stamps of
        # this machine's own clock are taken as they are.
        total = result.latency_s + state_s + camera.stream.delay_s
        rows[f"camera {camera.stream.name}"] = _row(result, total, camera.stream.latency_s)
    return rows


def _row(found: Any, latency_s: float, configured_s: float) -> dict[str, float]:
    return {
        **dataclasses.asdict(found),
        "latency_s": latency_s,
        "configured_s": configured_s,
    }


def _require_anchor(cell: CellConfig, anchor: str) -> None:
    right = [c.stream.name for c in cell.cameras if c.signal and c.stream.clock == "monotonic"]
    if anchor and anchor not in right:
        raise ConfigError(
            f"--anchor: no camera '{anchor}' with clock: monotonic that is a signal;"
            f" {cell.name} has: {right}"
        )


def _ascending(t_s: Any, value: Any) -> tuple[Any, Any]:
    import numpy as np

    keep: Any = np.append(True, np.diff(t_s) > 0)
    return t_s[keep], value[keep]


def _write(path: Path, cell: CellConfig, document: dict[str, dict[str, float]]) -> None:
    from robolearn.cli.shared.yaml_edit import set_number

    text = path.read_text(encoding="utf-8")
    for name in ("command", "state"):
        if name in document:
            value = round(max(0.0, document[name]["latency_s"]), 5)
            text = set_number(text, ("robot", f"{name}_latency_s"), value)
    for i, camera in enumerate(cell.cameras):
        row = document.get(f"camera {camera.stream.name}")
        if row is not None and camera.stream.clock != "monotonic":
            value = round(max(0.0, row["latency_s"]), 5)
            text = set_number(text, ("robot", "cameras", i, "stream", "latency_s"), value)
    write_atomic(path, text)


VERBS = {"latency": (Latency, _latency), "camera": (CameraArgs, calibrate_camera)}
