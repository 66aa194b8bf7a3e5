"""``robolearn data`` imports, lists, shows, describes and checks episode stores.

The verbs that change something are in ``data_edit.py``.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from robolearn.cli.data.cache import CACHE_VERBS
from robolearn.cli.data.derive import DERIVE_VERBS
from robolearn.cli.data.edit import EDIT_VERBS
from robolearn.cli.data.export import EXPORT_VERBS
from robolearn.cli.data.judge import JUDGE_VERBS
from robolearn.cli.data.quality import QUALITY_VERBS
from robolearn.cli.data.report import REPORT_VERBS
from robolearn.cli.data.view import VIEW_VERBS
from robolearn.cli.shared.parse import counting, parse, print_json, say
from robolearn.cli.shared.verbs import run_verb
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.data.upkeep.findings import CheckReport
    from robolearn.operations.stores.importing import Imported


@dataclass(frozen=True)
class Import:
    """Import a foreign recording into a store (created if absent)."""

    # Store to append to.
    out: Path
    # Recording in a known format; left out: the bundled Push-T demonstrations.
    src: Annotated[Path | None, tyro.conf.Positional] = None
    # Format of the recording; auto: recognised by its content.
    format: str = "auto"
    # Import pictures too.
    images: bool = False
    # How the store keeps them: zstd or png (exact), jpeg or jpeg:QUALITY.
    codec: str = "zstd"
    # Rate of the recording [Hz] where the format does not say it.
    rate_hz: float | None = None
    # Import only the first episodes.
    limit: int | None = None
    # LeRobot: columns with other names, SOURCE=NAME, e.g. actions=action.
    rename: tuple[str, ...] = ()
    # Push-T: where the T should be, x,y,yaw [m, m, rad] in the table frame; left out: gym-pusht's.
    goal: str | None = None
    # Leave out episodes that cannot be read, and name them.
    skip_bad: bool = False
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Ls:
    """List the episodes of a store."""

    # Store to list.
    store: tyro.conf.Positional[Path]
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Show:
    """Show a store, or one of its episodes."""

    # Store to show.
    store: tyro.conf.Positional[Path]
    # Id of an episode.
    episode: Annotated[str | None, tyro.conf.Positional] = None
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Stats:
    """Statistics of every signal and action of a store."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # Take them from the data instead of from what was written with every episode.
    recompute: bool = False
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Check:
    """Verify every file of a store: exit code 0 sound, 2 damaged."""

    # Store to check.
    store: tyro.conf.Positional[Path]
    # Decode every array, check what an episode must satisfy, compare statistics with the data.
    deep: bool = False
    # Print one JSON document.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run one verb; returns the exit code."""
    return run_verb("data", "Episode stores.", VERBS, argv)


def _import(argv: list[str]) -> int:
    args = parse(Import, argv, "data import", Import.__doc__ or "")
    from robolearn.data.importers.recording import ImportOptions
    from robolearn.data.store.picture_codec import parse_codec
    from robolearn.operations.stores.importing import import_recording
    from robolearn.pusht import goal_pose

    with counting("import", quiet=args.json) as show:
        options = ImportOptions(
            images=args.images,
            codec=parse_codec(args.codec),
            rate_hz=args.rate_hz,
            limit=args.limit,
            rename=_renames(args.rename),
            goal=None if args.goal is None else goal_pose(args.goal.split(","), "--goal"),
            on_episode=show,
        )
        done = import_recording(
            args.out, args.src, kind=args.format, options=options, skip_bad=args.skip_bad
        )
    if args.json:
        print_json(_imported(done))
        return 0
    say(f"imported {len(done.ids)} episodes, {done.steps} steps, into {done.store}")
    if done.there_before:
        total = len(done.ids) + done.there_before + len(done.skipped)
        say(f"there before, bit for bit: {done.there_before} of {total} episodes")
    for index, why in done.skipped.items():
        say(f"skipped: episode {index}: {why}")
    say(f"left out: {', '.join(done.left_out) or 'nothing'}")
    return 0


def _imported(done: Imported) -> dict[str, Any]:
    return {
        "store": done.store,
        "source": done.source,
        "format": done.format,
        "imported": len(done.ids),
        "there_before": done.there_before,
        "skipped": {str(index): why for index, why in done.skipped.items()},
        "steps": done.steps,
        "first": done.ids[0] if done.ids else "",
        "last": done.ids[-1] if done.ids else "",
        "left_out": list(done.left_out),
    }


def _renames(texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for source, equals, name in pairs:
        if not (source and equals and name):
            raise ConfigError(
                "--rename: expected SOURCE=NAME such as actions=action,"
                f" got '{source}{equals}{name}'"
            )
    return {source: name for source, _, name in pairs}


def _ls(argv: list[str]) -> int:
    args = parse(Ls, argv, "data ls", Ls.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore

    store = EpisodeStore.open(args.store)
    found = store.list(strict=False)
    if args.json:
        print_json({"episodes": [dataclasses.asdict(info) for info in found]})
    else:
        for info in found:
            marks = [info.split, *info.labels, "success" if info.success else ""]
            mark = " ".join(m for m in marks if m)
            say(
                f"{info.id}  {info.steps:5d} steps  {info.duration_s:7.1f} s  {info.kind:<13}"
                f"  {info.task:<10}  score {info.score:.3f}  {mark}".rstrip()
            )
        say(f"{len(found)} episodes")
    damaged = len(store.ids()) - len(found)
    if damaged:
        print(
            f"robolearn data ls: {damaged} damaged episodes left out;"
            f" run 'robolearn data check {store.path}'",
            file=sys.stderr,
        )
    return 2 if damaged else 0


def _show(argv: list[str]) -> int:
    args = parse(Show, argv, "data show", Show.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.view.summary import episode_summary, store_summary

    store = EpisodeStore.open(args.store)
    if args.episode is None:
        summary: dict[str, Any] = dataclasses.asdict(store_summary(store))
    else:
        summary = dataclasses.asdict(episode_summary(store, args.episode))
        if args.json:
            meta = store.meta(args.episode)
            summary |= {"versions": meta.versions, "provenance": meta.provenance}
    if args.json:
        print_json(summary)
        return 0
    for key, value in summary.items():
        rows = cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)
        for index, row in enumerate(rows):
            say(f"{key if index == 0 else '':<14}{_plain(row)}")
    return 0


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return "  ".join(f"{k} {_plain(v)}" for k, v in items)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _stats(argv: list[str]) -> int:
    args = parse(Stats, argv, "data stats", Stats.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.view.summary import store_stats

    rows = store_stats(EpisodeStore.open(args.store), recompute=args.recompute)
    if args.json:
        print_json({"signals": [dataclasses.asdict(row) for row in rows]})
        return 0
    for row in rows:
        unit = f" [{row.unit}]" if row.unit else ""
        error = f", ranks of quantiles within {row.stats.rank_error:.2%}"
        say(f"{row.role} {row.name}{unit}, {row.stats.count} values{error}")
        for key in ("minimum", "q01", "q10", "q50", "q90", "q99", "maximum", "mean", "std"):
            values = "  ".join(f"{v:10.5g}" for v in getattr(row.stats, key))
            say(f"  {key:<8}{values}")
    return 0


def _check(argv: list[str]) -> int:
    args = parse(Check, argv, "data check", Check.__doc__ or "")
    from robolearn.data.upkeep.check import check_store

    with counting("check", quiet=args.json) as show:
        report = check_store(args.store, deep=args.deep, on_episode=show)
    if args.json:
        print_json(dataclasses.asdict(report) | {"sound": report.sound})
    else:
        for finding in report.findings:
            say(f"{finding.severity}: {finding.kind}: {finding.path}: {finding.message}")
        say(f"verified: {_verified(report)}")
        say(
            f"{report.episodes} episodes, {report.files} files checked:"
            f" {'sound' if report.sound else 'DAMAGED'}"
        )
    return 0 if report.sound else 2


def _verified(report: CheckReport) -> str:
    parts = [
        "store.json",
        f"the chain of {report.commits} commits",
        f"{report.episodes} manifests",
        f"{report.annotations} annotations",
        f"{report.files} files, {report.bytes / 1e6:.1f} MB, by SHA-256",
    ]
    if report.decoded:
        parts.append(f"all arrays of {report.decoded} episodes, decoded")
    return ", ".join(parts)


VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {
    "import": (Import, _import),
    "ls": (Ls, _ls),
    "show": (Show, _show),
    "stats": (Stats, _stats),
    "check": (Check, _check),
    **EDIT_VERBS,
    **DERIVE_VERBS,
    **EXPORT_VERBS,
    **JUDGE_VERBS,
    **QUALITY_VERBS,
    **REPORT_VERBS,
    **VIEW_VERBS,
    **CACHE_VERBS,
}
