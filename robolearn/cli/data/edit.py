"""``robolearn data`` annotates episodes, empties the trash, repairs, and writes new stores."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

import tyro

from robolearn.cli.shared.parse import parse, print_json, progress, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.data.store.writer import StoreWriter
    from robolearn.data.upkeep.edit import Selection

T = TypeVar("T")


@dataclass(frozen=True)
class Note:
    """Say something about episodes: outcome, labels, a note, a split; or take it back."""

    # Store with the episodes.
    store: tyro.conf.Positional[Path]
    # Ids of the episodes (left out with --undo).
    episodes: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    # How the episodes really ended.
    outcome: Literal["success", "failure"] | None = None
    # One word about the outcome.
    reason: str = ""
    # Labels to add.
    label: tuple[str, ...] = ()
    # Labels to take off.
    unlabel: tuple[str, ...] = ()
    # A note in plain words.
    text: Annotated[str, tyro.conf.arg(aliases=["--note"])] = ""
    # Split that the episodes belong to; '' for none.
    split: str | None = None
    # Moments at which something ends and the next begins [s since the start], where 'data cut'
    # cuts; instead of those that were recorded or said before.
    marker: tuple[float, ...] = ()
    # Take back an earlier annotation by its id (an_000012).
    undo: str = ""
    # Who says so; left out: the user who runs this.
    author: str = ""
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Log:
    """List what was said about episodes, and what was removed and restored."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Rm:
    """Move episodes to the trash of their store."""

    # Store with the episodes.
    store: tyro.conf.Positional[Path]
    # Ids of the episodes.
    episodes: tyro.conf.Positional[tuple[str, ...]]
    # Why, in plain words.
    text: str = ""
    # Who does it; left out: the user who runs this.
    author: str = ""
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Restore:
    """Bring episodes back from the trash."""

    # Store with the trash.
    store: tyro.conf.Positional[Path]
    # Ids of the episodes; left out: all of the trash.
    episodes: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    # Who does it; left out: the user who runs this.
    author: str = ""
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Repair:
    """List what was damaged or killed; rebuild the log, recover or discard recordings."""

    # Store that was recorded into.
    store: tyro.conf.Positional[Path]
    # Recordings as listed; left out: all.
    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    # Commit them as far as they were flushed.
    recover: bool = False
    # Delete them.
    discard: bool = False
    # Make a damaged commits.jsonl or store.json anew from manifests and annotations; the damaged
    # one is kept in the folder 'damaged' of the store.
    rebuild_log: bool = False
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Filter:
    """Copy the episodes that satisfy everything asked for into a new store."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # New store.
    out: Path
    # Ids to take.
    episodes: tuple[str, ...] = ()
    # Kinds to take (demonstration, scripted, rollout, online, deployment, play).
    kind: tuple[str, ...] = ()
    # Tasks to take.
    task: tuple[str, ...] = ()
    # Outcome, as annotated or else as recorded.
    outcome: Literal["success", "failure"] | None = None
    # Lowest score.
    min_score: float | None = None
    # Highest score.
    max_score: float | None = None
    # Fewest steps.
    min_steps: int = 0
    # Labels that an episode must have.
    label: tuple[str, ...] = ()
    # Labels that it must not have.
    without_label: tuple[str, ...] = ()
    # Split that it belongs to.
    split: str | None = None
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Split:
    """Deal episodes at random to named parts, as annotations or as new stores."""

    # Store to split.
    store: tyro.conf.Positional[Path]
    # Parts with their shares, e.g. train=0.8 val=0.2.
    parts: tuple[str, ...]
    # The same seed gives the same split.
    seed: int = 0
    # Folder for one new store per part; left out: the split is written as annotations.
    out: Path | None = None
    # Who does it; left out: the user who runs this.
    author: str = ""
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Merge:
    """Copy all episodes of stores into a new one, or append them to one that exists."""

    # Stores to read, in this order.
    stores: tyro.conf.Positional[tuple[Path, ...]]
    # New store; it appears when it is complete.
    out: Path | None = None
    # Store to append to (created if absent); what was merged before is left out.
    into: Path | None = None
    # Merge although embodiments differ.
    allow: bool = False
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Trash:
    """List removed episodes; --empty deletes them for good."""

    # Store with the trash.
    store: tyro.conf.Positional[Path]
    # Ids to delete; left out: all of the trash.
    episodes: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    # Delete them for good. Nothing brings them back; the log keeps who did it and when.
    empty: bool = False
    # Why, in plain words.
    text: str = ""
    # Who does it; left out: the user who runs this.
    author: str = ""
    # Print one JSON document.
    json: bool = False


@dataclass(frozen=True)
class Push:
    """Copy a store as it is, history included, to an object store or another place."""

    # Store to read.
    store: tyro.conf.Positional[Path]
    # s3://bucket/prefix, or a folder: absent, or an earlier copy that is to be brought up to date.
    to: tyro.conf.Positional[Path]
    # Print one JSON document.
    json: bool = False


def _note(argv: list[str]) -> int:
    args = parse(Note, argv, "data note", Note.__doc__ or "")
    from robolearn.data.store.annotations import Annotation, default_author
    from robolearn.data.store.store import EpisodeStore

    if bool(args.undo) == bool(args.episodes):
        raise ConfigError("name episodes, or an annotation with --undo, not both")
    store = EpisodeStore.open(args.store)
    annotation = Annotation(
        episodes=args.episodes,
        author=args.author or default_author(),
        success=None if args.outcome is None else args.outcome == "success",
        reason=args.reason,
        add_labels=args.label,
        remove_labels=args.unlabel,
        note=args.text,
        split=args.split,
        markers=args.marker,
        undoes=args.undo,
    )
    with store.writer() as writer:
        record = writer.annotate(annotation)
    episodes = store.annotations()[-1].episodes
    return _done(f"{record}: {', '.join(episodes)}", args.json, record=record, episodes=episodes)


def _log(argv: list[str]) -> int:
    args = parse(Log, argv, "data log", Log.__doc__ or "")
    from datetime import UTC, datetime

    from robolearn.data.store.store import EpisodeStore

    records = EpisodeStore.open(args.store).annotations()
    if args.json:
        print_json({"records": [dataclasses.asdict(r) for r in records]})
        return 0
    for r in records:
        when = datetime.fromtimestamp(r.wall_ns / 1e9, UTC).isoformat(timespec="seconds")
        parts = [
            {"rm": "removed", "rs": "restored", "pg": "deleted for good"}.get(r.id[:2], ""),
            f"undoes {r.undoes}" if r.undoes else "",
            "" if r.success is None else ("success" if r.success else "failure"),
            r.reason,
            *(f"+{name}" for name in r.add_labels),
            *(f"-{name}" for name in r.remove_labels),
            "" if r.split is None else f"split '{r.split}'",
            f'"{r.note}"' if r.note else "",
            *(f"|{time:g} s" for time in r.markers),
        ]
        what = " ".join(part for part in parts if part)
        say(f"{r.id}  {when}  {r.author}  {','.join(r.episodes)}  {what}")
    say(f"{len(records)} records")
    return 0


def _rm(argv: list[str]) -> int:
    args = parse(Rm, argv, "data rm", Rm.__doc__ or "")
    record = _changed(args, lambda writer, who: writer.remove(args.episodes, who, args.text))
    text = f"moved to the trash: {', '.join(args.episodes)}"
    return _done(text, args.json, record=record, episodes=args.episodes)


def _restore(argv: list[str]) -> int:
    args = parse(Restore, argv, "data restore", Restore.__doc__ or "")
    episodes = args.episodes or _trash_of(args.store)
    if not episodes:
        return _done("the trash is empty", args.json, record="", episodes=())
    record = _changed(args, lambda writer, who: writer.restore(episodes, who))
    return _done(f"restored: {', '.join(episodes)}", args.json, record=record, episodes=episodes)


def _trash(argv: list[str]) -> int:
    args = parse(Trash, argv, "data trash", Trash.__doc__ or "")
    if not args.empty:
        if args.episodes:
            raise ConfigError("say --empty to delete episodes for good")
        gone = _trash_of(args.store)
        return _done(f"in the trash: {', '.join(gone) or 'nothing'}", args.json, trash=gone)
    deleted = _changed(args, lambda writer, who: writer.empty_trash(who, args.text, args.episodes))
    text = f"deleted for good: {', '.join(deleted) or 'nothing'}"
    return _done(text, args.json, deleted=deleted)


def _changed(args: Rm | Restore | Trash, change: Callable[[StoreWriter, str], T]) -> T:
    """What ``change`` returns, which writes to the store in the author's name."""
    from robolearn.data.store.annotations import default_author
    from robolearn.data.store.store import EpisodeStore

    with EpisodeStore.open(args.store).writer() as writer:
        return change(writer, args.author or default_author())


def _trash_of(store: Path) -> tuple[str, ...]:
    from robolearn.data.store.store import EpisodeStore

    return EpisodeStore.open(store).trash()


def _repair(argv: list[str]) -> int:
    args = parse(Repair, argv, "data repair", Repair.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.upkeep import rebuild, repair

    if args.recover + args.discard + args.rebuild_log > 1:
        raise ConfigError("choose one of --recover, --discard and --rebuild-log")
    if args.names and not (args.recover or args.discard):
        raise ConfigError("say what to do with them: --recover or --discard")
    if args.rebuild_log:
        made = rebuild.rebuild_log(args.store)
        text = f"the log is sound, {made.commits} commits"
        if made.problems:
            text = f"rebuilt: {made.commits} commits, {len(made.made)} lines anew"
            text += f"; kept: {', '.join(made.aside)}"
        return _done(text, args.json, **dataclasses.asdict(made))
    store = EpisodeStore.open(args.store)
    if args.recover:
        report = repair.recover(store, args.names)
        text = f"recovered: {', '.join(report.saved) or 'nothing'}"
        text += "".join(f"\nnot recovered: {name}: {why}" for name, why in report.failed.items())
        _done(text, args.json, recovered=report.saved, failed=dict(report.failed))
        return 2 if report.failed else 0
    if args.discard:
        gone = repair.discard(store, args.names)
        return _done(f"discarded: {', '.join(gone) or 'nothing'}", args.json, discarded=gone)
    damage = rebuild.find_damage(store.path)
    found = repair.find_recoverable(store)
    if args.json:
        print_json({"damage": damage, "recoverable": [dataclasses.asdict(r) for r in found]})
        return 0
    for problem in damage:
        say(f"{problem}; run again with --rebuild-log")
    for r in found:
        state = r.problem or (f"recovered already as {r.saved_as}" if r.saved_as else "")
        line = f"{r.name}  {r.kind} of '{r.task}'  {r.steps} steps  {r.duration_s:.1f} s  {state}"
        say(line.rstrip())
    advice = "; run again with --recover or --discard" if found else ""
    say(f"{len(found)} killed recordings{advice}")
    return 0


def _filter(argv: list[str]) -> int:
    args = parse(Filter, argv, "data filter", Filter.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.upkeep.edit import filter_store, select

    store = EpisodeStore.open(args.store)
    selection = selection_of(args)
    with progress("filter", len(select(store, selection)), quiet=args.json) as advance:
        made = filter_store(store, selection, args.out, advance)
    count = len(made.ids())
    return _done(f"{count} episodes in {made.path}", args.json, store=made.path, episodes=count)


def selection_of(args: Filter) -> Selection:
    """What the options of a filter ask for."""
    from robolearn.data.upkeep.edit import Selection

    return Selection(
        ids=args.episodes,
        kinds=args.kind,
        tasks=args.task,
        success=None if args.outcome is None else args.outcome == "success",
        min_score=args.min_score,
        max_score=args.max_score,
        min_steps=args.min_steps,
        labels=args.label,
        without_labels=args.without_label,
        split=args.split,
    )


def _split(argv: list[str]) -> int:
    args = parse(Split, argv, "data split", Split.__doc__ or "")
    from robolearn.data.store.annotations import default_author
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.upkeep.edit import split_apart, split_store

    store = EpisodeStore.open(args.store)
    parts = _parts(args.parts)
    if args.out is None:
        dealt = split_store(store, parts, args.seed, args.author or default_author())
    else:
        dealt = split_apart(store, parts, args.seed, args.out)
    text = ", ".join(f"{name} {len(ids)}" for name, ids in dealt.items())
    return _done(text, args.json, **dealt)


def _parts(texts: tuple[str, ...]) -> dict[str, float]:
    parts: dict[str, float] = {}
    for text in texts:
        name, _, share = text.partition("=")
        try:
            value = float(share)
        except ValueError:
            raise ConfigError(f"expected NAME=SHARE such as train=0.8, got '{text}'") from None
        if not name or "/" in name or name in parts:
            raise ConfigError(f"expected a new name before '=', got '{text}'")
        parts[name] = value
    return parts


def _merge(argv: list[str]) -> int:
    args = parse(Merge, argv, "data merge", Merge.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.upkeep.edit import merge_into, merge_stores

    if (args.out is None) == (args.into is None):
        raise ConfigError("name a new store with --out, or one to append to with --into")
    stores = [EpisodeStore.open(path) for path in args.stores]
    total = sum(len(store.ids()) for store in stores)
    with progress("merge", total, quiet=args.json) as advance:
        if args.into is not None:
            made = EpisodeStore.open_or_create(args.into)
            new = merge_into(stores, made, allow=args.allow, advance=advance)
            text = f"{len(new)} episodes added to {made.path}, {total - len(new)} were there before"
            return _done(text, args.json, store=made.path, episodes=len(made.ids()), added=new)
        made = merge_stores(stores, args.out or Path(), allow=args.allow, advance=advance)
    return _done(f"{total} episodes in {made.path}", args.json, store=made.path, episodes=total)


def _push(argv: list[str], verb: str = "push") -> int:
    args = parse(Push, argv, f"data {verb}", Push.__doc__ or "")
    from robolearn.data.store.store import EpisodeStore
    from robolearn.data.upkeep.mirror import copy_store

    source = EpisodeStore.open(args.store)
    with progress(verb, len(source.log()) - 1, quiet=args.json) as advance:
        made, new = copy_store(source, args.to, advance)
    text = f"{made.path}: {new} new records, {len(made.ids())} episodes"
    return _done(text, args.json, store=made.path, records=new, episodes=len(made.ids()))


def _pull(argv: list[str]) -> int:
    return _push(argv, "pull")


def _done(text: str, as_json: bool, **result: object) -> int:
    if as_json:
        print_json(result)
    else:
        say(text)
    return 0


EDIT_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {
    "repair": (Repair, _repair),
    "note": (Note, _note),
    "log": (Log, _log),
    "rm": (Rm, _rm),
    "restore": (Restore, _restore),
    "filter": (Filter, _filter),
    "split": (Split, _split),
    "merge": (Merge, _merge),
    "trash": (Trash, _trash),
    "push": (Push, _push),
    "pull": (Push, _pull),
}
