"""``robolearn identify STORE --out SCENE`` finds a scene's physics from recordings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say

if TYPE_CHECKING:
    from sim.identification.replay import ErrorSummary
    from sim.identification.search import Identified


@dataclass(frozen=True, slots=True)
class Args:
    """Fit contact friction, damping ratio, centre of mass and contact stiffness to recordings."""

    # Episode store; only demonstrations are used.
    store: Annotated[Path, tyro.conf.Positional]
    # Folder of the scene package to write.
    out: Path
    # Scene whose parameters are the start.
    template: str = "pusht_naive"
    # Use the first N episodes of the store (some to fit, others to check); default every one.
    episodes: int | None = None
    # Chooses training and held-out episodes and windows.
    seed: int = 0
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    args = parse(Args, argv, "identify", Args.__doc__ or "")
    from robolearn.operations.identify import identify
    from sim.identification.replay import summarize_final
    from sim.identification.search import IdentifyConfig, describe, heldout_summary

    output_folder(args.out, "--out", "a scene package")
    identified = identify(
        args.store,
        args.out,
        template=args.template,
        episodes=args.episodes,
        config=IdentifyConfig(seed=args.seed),
        on_note=lambda text: say(text, quiet=args.json),
    )
    result = identified.found
    if args.json:
        print_json(_document(result, identified.scene.content_hash, args.out))
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
    say(f"scene package: {args.out}")
    return 0


def _text(s: ErrorSummary) -> str:
    return (
        f"{s.position_p50_mm:.2f} / {s.position_p90_mm:.2f} mm,"
        f" {s.rotation_p50_deg:.2f} / {s.rotation_p90_deg:.2f} deg"
    )


def _document(result: Identified, scene_hash: str, out: Path) -> dict[str, Any]:
    from sim.identification.replay import summarize_final
    from sim.identification.search import heldout_summary

    return {
        "scene": str(out),
        "scene_hash": scene_hash,
        "parameters": {
            name: {"before": getattr(result.before, name), "after": getattr(result.after, name)}
            for name in dataclasses.asdict(result.before)
        },
        "residual_median_mm": {
            "before": result.residual_before_mm,
            "after": result.residual_after_mm,
        },
        "heldout": {
            when: {
                "after_5_s": dataclasses.asdict(heldout_summary(errors, 5.0)),
                "final": dataclasses.asdict(summarize_final(errors)),
            }
            for when, errors in (
                ("before", result.heldout_before),
                ("after", result.heldout_after),
            )
        },
        "train_episodes": len(result.train_ids),
        "heldout_episodes": len(result.heldout_ids),
        "windows": result.windows,
        "evaluations": result.evaluations,
        "duration_s": result.duration_s,
    }
