"""``robolearn data cache`` shows what training keeps outside the stores, and removes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from robolearn.data.reading.cache_folder import CacheEntry


@dataclass(frozen=True)
class Cache:
    """List the copies that training reads; --clear removes them (they are built again)."""

    # Remove them.
    clear: bool = False
    # Only those that nobody opened for so many days.
    days: float = 0.0
    # Print one JSON document.
    json: bool = False


def _cache(argv: list[str]) -> int:
    args = parse(Cache, argv, "data cache", Cache.__doc__ or "")
    from robolearn.data.reading.cache import user_cache_dir
    from robolearn.data.reading.cache_folder import cache_entries, clear_cache

    if not args.days >= 0:
        raise ConfigError(f"--days must be at least 0, got {args.days:g}")
    root = user_cache_dir()
    if args.clear:
        gone, busy = clear_cache(unused_days=args.days)
        if args.json:
            print_json({"folder": str(root), "removed": _plain(gone), "in_use": _plain(busy)})
            return 0
        say(f"removed: {len(gone)} copies, {_megabytes(gone)} MB of {root}")
        if busy:
            say(f"left alone: {len(busy)} that are being built")
        return 0
    found = [e for e in cache_entries() if e.unused_days >= args.days]
    if args.json:
        print_json({"folder": str(root), "copies": _plain(found)})
        return 0
    for entry in found:
        what = f"{entry.episodes} episodes: {', '.join(entry.signals)}"
        say(
            f"{entry.path.name}  {entry.size_bytes / 1e6:8.1f} MB  unused for"
            f" {entry.unused_days:.1f} days  {what if entry.complete else 'not complete'}"
        )
    advice = "; --clear removes them" if found else ""
    say(f"{len(found)} copies, {_megabytes(found)} MB in {root}{advice}")
    return 0


def _megabytes(entries: tuple[CacheEntry, ...] | list[CacheEntry]) -> str:
    return f"{sum(e.size_bytes for e in entries) / 1e6:.1f}"


def _plain(entries: tuple[CacheEntry, ...] | list[CacheEntry]) -> list[dict[str, object]]:
    return [dataclasses.asdict(e) for e in entries]


CACHE_VERBS: dict[str, tuple[type, Callable[[list[str]], int]]] = {"cache": (Cache, _cache)}
