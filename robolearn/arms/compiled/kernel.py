"""Compiles functions of plain numbers and arrays (numba) before they are needed.

Compiled code is kept on disk, beside the source or in the user's cache, and holds for the sources
of this whole folder: functions call each other across files, which numba does not look at. Where
nothing can be written every process compiles anew. ``NUMBA_DISABLE_JIT=1`` runs the same functions
as Python, for a debugger.

Compiled arithmetic is that of Python, in the same order: nothing is reassociated or contracted.
Three things differ, so functions here mind them: the root of a negative number is NaN rather than
an error, a whole number cannot be made of NaN, and an index is not checked. Loops stand where numpy
would take slices: they compile in a tenth of the time.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, config, dispatcher

log = logging.getLogger(__name__)
_HERE = Path(__file__).parent
Function = TypeVar("Function", bound=Callable[..., Any])
# Its types do not know of wrappers that are left out.
_njit: Any = numba.njit
# All that are compiled.
KERNELS: list[Any] = []


@functools.cache
def sources_digest() -> bytes:
    """Of all that is compiled, and of how."""
    digest = hashlib.sha256()
    for path in sorted(_HERE.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


class InNamedPlace(caching.UserProvidedCacheLocator):
    """In the folder that ``NUMBA_CACHE_DIR`` names, as long as the sources are the same."""

    def get_source_stamp(self) -> bytes:
        """See :func:`sources_digest`."""
        return sources_digest()


class BesideSource(caching.InTreeCacheLocator):
    """In ``__pycache__``."""

    def get_source_stamp(self) -> bytes:
        """See :func:`sources_digest`."""
        return sources_digest()


class InUserCache(caching.UserWideCacheLocator):
    """In the user's folder of caches."""

    def get_source_stamp(self) -> bytes:
        """See :func:`sources_digest`."""
        return sources_digest()


_FunctionCache: Any = caching.FunctionCache


class Kept(_FunctionCache):
    """What cannot be read or written is compiled anew: no full disk and no damaged file of a cache
    keeps an arm from being driven.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """None where nothing was kept, or nothing that could be read."""
        try:
            inherited: Any = super()
            found = inherited.load_overload(sig, target_context)
        except Exception as error:  # noqa: BLE001  (whatever damaged bytes make of a pickle)
            log.warning("compiled code in '%s' cannot be read: %r", self.cache_path, error)
            found = None
        if found is None:
            _tell()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep it, or say why not."""
        try:
            inherited: Any = super()
            inherited.save_overload(sig, data)
        except Exception as error:  # noqa: BLE001  (the damaged file is read before it is written)
            log.warning("compiled code cannot be kept in '%s': %r", self.cache_path, error)


@functools.cache
def _tell() -> None:
    """Once, to whoever waits."""
    log.warning("compiling what drives an arm; once on this machine, it takes up to a minute")


def kernel(function: Function) -> Function:
    """Compile it for the types of its first call; hand over the same ones ever after.

    Sizes of arrays are not looked at: whoever calls it has checked them.
    """
    try:
        with _own_places():
            made = _njit(cache=True)(_plain(function))
    except RuntimeError:
        # There is no place to keep it.
        made = _njit(_plain(function))
    KERNELS.append(made)
    return cast("Function", made)


def part(function: Function) -> Function:
    """Of kernels: never called by anybody else, which makes it half the work to compile."""
    made = _njit(no_cpython_wrapper=True, no_cfunc_wrapper=True)(_plain(function))
    KERNELS.append(made)
    return cast("Function", made)


def _plain(function: Any) -> Any:
    # Checks of shapes that are put around every function in tests cannot be compiled.
    return inspect.unwrap(function)


@contextmanager
def _own_places() -> Generator[None]:
    settings: Any = config
    places = (InNamedPlace, BesideSource, InUserCache)
    made: Any = dispatcher
    before = settings.CACHE_LOCATOR_CLASSES, made.FunctionCache
    settings.CACHE_LOCATOR_CLASSES = ",".join(f"{c.__module__}.{c.__name__}" for c in places)
    made.FunctionCache = Kept
    try:
        yield
    finally:
        settings.CACHE_LOCATOR_CLASSES, made.FunctionCache = before
