"""``robolearn data quality`` judges episodes one by one and says what is wrong with each."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from robolearn.cli.shared.parse import counting, parse, print_json, say
from robolearn.data.insight.verdict import Thresholds

if TYPE_CHECKING:
    from robolearn.data.insight.verdict import Verdict


@dataclass(frozen=True)
class Quality:
    """Judge episodes: length, standing still, limits, jitter, lost frames, ages, outcome, stops."""

    # Store to look at.
    store: tyro.conf.Positional[Path]
    # Ids of the episodes; left out: all.
    episode: tuple[str, ...] = ()
    # Give this label to the episodes with which something is wrong (data note takes it back).
    label: str = ""
    # From where on it is said.
    limits: Annotated[Thresholds, tyro.conf.arg(name="")] = field(default_factory=Thresholds)
    # Print one JSON document.
    json: bool = False


def quality(argv: list[str]) -> int:
    """Run the verb; returns the exit code."""
    args = parse(Quality, argv, "data quality", Quality.__doc__ or "")
    from robolearn.operations.stores.quality import judge_quality, label_doubtful

    with counting("quality", quiet=args.json) as show:
        found = judge_quality(args.store, args.limits, episodes=args.episode, on_judged=show)
    labelled = label_doubtful(args.store, found, args.label) if args.label else ()
    if args.json:
        episodes = [_document(v) for v in found.verdicts]
        print_json({"store": found.store, "episodes": episodes, "labelled": list(labelled)})
        return 0
    for verdict in found.verdicts:
        for line in verdict_lines(verdict):
            say(line)
    if not found.verdicts:
        say("the store has no episodes")
        return 0
    wrong = len(found.doubtful)
    say(f"{wrong} of {len(found.verdicts)} episodes: something is wrong" if wrong else "all sound")
    if args.label:
        say(f"labelled '{args.label}': {', '.join(labelled) or 'none that was not before'}")
    return 0


def verdict_lines(verdict: Verdict) -> list[str]:
    """A verdict in words: one line, and one for every remark."""
    m = verdict.measures
    figures = [
        f"{m.duration_s:.1f} s",
        "success" if m.success else f"best progress {m.score:.0%}",
        f"idle {m.idle:.0%}",
        f"at limits {m.saturated:.0%}",
        f"late ticks {m.late:.1%}",
    ]
    if m.cameras:
        figures.append(f"frames lost {sum(c.lost for c in m.cameras)}")
    rank = verdict.ranks.get("duration_s")
    if rank is not None:
        figures.append(f"longer than {rank:.0%} of {verdict.earlier} earlier")
    lines = [f"{m.id or 'this episode'}  {'  '.join(figures)}"]
    lines += [f"  ! {remark.text}; {remark.advice}" for remark in verdict.remarks]
    return lines


def _document(verdict: Verdict) -> dict[str, Any]:
    m = verdict.measures
    raw = dataclasses.asdict(verdict)
    raw["measures"] |= {"idle": m.idle, "saturated": m.saturated, "lost_frames": m.lost_frames}
    raw["measures"]["events"] = {str(k): v for k, v in m.events.items()}
    raw["measures"]["slowed_s"] = {str(k): v for k, v in m.slowed_s.items()}
    return raw | {"sound": verdict.sound}


QUALITY_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"quality": (Quality, quality)}
