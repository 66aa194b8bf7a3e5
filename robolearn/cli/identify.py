"""``robolearn identify`` finds a scene's physics: of a block that was pushed (``STORE``), of an arm
by moving it (``--robot``) or from what was recorded of it (``--episodes``, ``--capture``).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from sim.identification.replay import ErrorSummary
    from sim.identification.search import Identified


@dataclass(frozen=True, slots=True)
class Args:
    """Find a scene's physics: a pushed block's from the demonstrations of STORE, or an arm's
    servos, friction, payload and delay by moving it (--robot), from episodes (--episodes) or from
    the motion of a capture (--capture).
    """

    # Episode store with pushes of a planar scene; only demonstrations are used.
    store: Annotated[Path | None, tyro.conf.Positional] = None
    # Folder of the scene package to write.
    out: Path | None = None
    # A file of configs/hardware/: its arm moves, by a motion chosen for what it tells.
    robot: Path | None = None
    # With --robot: start the virtual lab of the config and end it afterwards.
    start_lab: bool = False
    # With --robot: do not ask before the arm moves.
    yes: bool = False
    # With --robot: how long it moves to be fitted [s].
    seconds: float = 60.0
    # An episode store of an arm with its joints and their set-points. With STORE: a number, the
    # first N episodes are used (some to fit, others to check); default every one.
    episodes: str = ""
    # A capture whose arm was excited (motion/): that is fitted, and nothing moves now.
    capture: Path | None = None
    # Of an arm: the scene that it is identified in (with --robot default: a packaged one that is
    # commanded as the cell is).
    scene: str = ""
    # With --episodes or --capture: the file of configs/hardware/ of the cell that was recorded; the
    # scene's tool then moves within its limits, as that of --robot does.
    cell: Path | None = None
    # Of an arm: episodes in the scene end where the supervisor of that cell would stop the robot
    # for its force.
    force_stop: bool = False
    # With STORE: the scene whose parameters are the start.
    template: str = "pusht_naive"
    # Chooses training and held-out episodes and windows; of an arm the motions.
    seed: int = 0
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "identify", Args.__doc__ or "")
    if args.out is None:
        raise ConfigError("--out is missing: the folder of the scene package to write")
    recorded = args.store is None and args.episodes != ""
    captured = args.capture is not None
    if sum((args.store is not None, args.robot is not None, recorded, captured)) != 1:
        raise ConfigError(
            "give one of: STORE (a pushed block), --robot CELL (an arm that moves now), --episodes"
            " STORE --scene SCENE (an arm that was recorded), --capture FOLDER --scene SCENE (one"
            " that was moved for a capture)"
        )
    _refuse_unused(args)
    output_folder(args.out, "--out", "a scene package")
    from sim.scene.package import require_replaceable

    require_replaceable(args.out, "identified")
    if args.store is not None:
        return _planar(args, args.out, args.store)
    from robolearn.cli import identify_arm

    if args.robot is not None:
        options = identify_arm.Moving(
            *(args.robot, args.scene, args.seconds, args.seed, args.start_lab, args.yes),
            force_stop=args.force_stop,
        )
        return identify_arm.moved(options, args.out, json=args.json)
    told = identify_arm.Recorded(args.scene, args.out, args.seed, args.cell, args.force_stop)
    if args.capture is not None:
        return identify_arm.captured(args.capture, told, json=args.json)
    return identify_arm.recorded(Path(args.episodes), told, json=args.json)


def _refuse_unused(args: Args) -> None:
    """ConfigError for options that what is identified has no use for."""
    if args.robot is None:
        refuse_without_use(args, ("start_lab", "yes", "seconds"), "with --robot alone")
    if args.store is None:
        refuse_without_use(args, ("template",), "with STORE alone (an arm's is --scene)")
    else:
        refuse_without_use(args, ("scene",), "of an arm, not with STORE (there it is --template)")
        refuse_without_use(args, ("force_stop",), "of an arm: with --robot or --cell")
    if args.store is not None or args.robot is not None:
        refuse_without_use(args, ("cell",), "with --episodes STORE --scene SCENE, or --capture")


def _planar(args: Args, out: Path, store: Path) -> int:
    """Of a pushed block."""
    from robolearn.operations.identify import identify
    from sim.identification.replay import summarize_final
    from sim.identification.search import IdentifyConfig, describe, heldout_summary

    identified = identify(
        store,
        out,
        template=args.template,
        episodes=_count(args.episodes),
        config=IdentifyConfig(seed=args.seed),
        on_note=lambda text: say(text, quiet=args.json),
    )
    result = identified.found
    if args.json:
        print_json(_document(result, identified.scene.content_hash, out))
        return 0
    say(f"before: {describe(result.before)}")
    say(f"after:  {describe(result.after)}")
    for label, errors in (("before", result.heldout_before), ("after", result.heldout_after)):
        five, end = heldout_summary(errors, 5.0), summarize_final(errors)
        say(
            f"held-out error {label:<6}: after 5 s {_text(five)}; at the end {_text(end)}"
            " (median / 90th percentile)"
        )
    say(f"{result.evaluations} evaluations in {result.duration_s:.1f} s")
    say(f"scene package: {out}")
    return 0


def _count(text: str) -> int | None:
    """How many episodes of STORE; ConfigError for what is no number."""
    if not text:
        return None
    if not text.isdecimal():
        raise ConfigError(
            f"--episodes: with STORE a number is expected (the first N episodes), got '{text}'; a"
            " store of an arm's episodes is given without STORE"
        )
    return int(text)


def _text(s: ErrorSummary) -> str:
    return (
        f"{s.position_p50_mm:.2f} / {s.position_p90_mm:.2f} mm,"
        f" {s.rotation_p50_deg:.2f} / {s.rotation_p90_deg:.2f} deg"
    )


def _document(result: Identified, scene_hash: str, out: Path) -> dict[str, Any]:
    from sim.identification.write_scene import figures

    return {
        "scene": str(out),
        "scene_hash": scene_hash,
        **figures(result),
        "train_episodes": len(result.train_ids),
        "heldout_episodes": len(result.heldout_ids),
        "duration_s": result.duration_s,
    }
