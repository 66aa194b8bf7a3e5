"""Refuses paths that lead out of the folder that they belong to.

Manifests, logs, annotations, journals and foreign recordings name files. Whoever wrote them may
have written ``../../x``, ``/etc/x`` or put a link; every such name passes through
:func:`confined` where it is parsed, before anything is opened, moved or written by it.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

from robolearn.errors import UnsafePathError

NAME_BYTES = 255
"""The longest name of a file on common file systems [bytes]."""


def confined(
    name: object,
    where: object,
    *,
    single: bool = False,
    below: Path | None = None,
    whole: bool = False,
) -> str:
    """``name`` if it is a plain relative path ``a/b/c``; otherwise :class:`UnsafePathError`.

    ``single``: only one part, as the name of an episode's folder is. ``below``: the folder that
    the path is relative to; then no part of it may be a link, and with ``whole`` nothing below it
    either, at any depth. ``where`` says in the error who named it.
    """
    text = name if isinstance(name, str) else ""
    if not _relative(text) or (single and "/" in text):
        wanted = "one plain name" if single else "a plain relative path such as a/b"
        raise UnsafePathError(
            f"{where}: expected {wanted} (no '..', nothing absolute), got {str(name)[:200]!r};"
            " do not use this data before you know who wrote it"
        )
    if below is not None:
        _no_links(below, text, where, whole)
    return text


@functools.lru_cache(maxsize=4096)
def _relative(text: str) -> bool:
    """Every episode of a store has files of the same names."""
    return bool(text) and all(_plain(part) for part in text.split("/"))


def _plain(part: str) -> bool:
    if part.isascii() and part.isprintable():
        # As nearly every name is: a log names each of its episodes.
        return part not in ("", ".", "..") and "\\" not in part and len(part) <= NAME_BYTES
    return _plain_unusual(part)


@functools.lru_cache(maxsize=4096)
def _plain_unusual(part: str) -> bool:
    return (
        part not in ("", ".", "..")
        and "\\" not in part
        and all(c.isprintable() or c.isspace() for c in part)
        and not any(c in part for c in "\0\r\n")
        and len(part.encode("utf-8", "surrogatepass")) <= NAME_BYTES
        and not any("\ud800" <= c <= "\udfff" for c in part)
    )


def _no_links(below: Path, name: str, where: object, whole: bool) -> None:
    wanted, real = f"{os.path.realpath(below)}/{name}", os.path.realpath(below / name)
    link = "" if real == wanted else str(below / name)
    if whole and not link and Path(real).is_dir():
        link = _first_link(real)
    if link:
        raise UnsafePathError(
            f"{where}: {link} is a link or leads through one, to {os.path.realpath(link)};"
            " expected plain files and folders: copy what it points to"
        )


def _first_link(folder: str) -> str:
    """The first link anywhere below ``folder``; empty where there is none."""
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_symlink():
                return entry.path
            if entry.is_dir(follow_symlinks=False) and (inner := _first_link(entry.path)):
                return inner
    return ""
