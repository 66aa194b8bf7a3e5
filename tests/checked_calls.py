"""Checks types and shapes in the first calls of every function in every test.

Each call costs some ten microseconds to check: in control loops and rollouts more than what is
called. What a test passes wrongly it passes in its first calls, so the later ones go unchecked.
A check is built when it is first needed (a millisecond each, for functions that are never called
too otherwise).
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import jaxtyping

# How many calls of a function a test has checked.
CALLS = 3

_jaxtyped = jaxtyping.jaxtyped


@dataclass(slots=True)
class _Count:
    """How many calls are still to be checked in the test it was last called in."""

    test: int = -1
    left: int = 0


_counts: dict[CodeType, _Count] = {}
_running = _Count(test=0)


def begin_test() -> None:
    """Check first calls anew: another test begins."""
    _running.test += 1


def _first_calls(thing: Any = None, *, typechecker: Any) -> Any:
    """What jaxtyping's import hook puts on every function and class."""
    wrap = functools.partial(_first_calls, typechecker=typechecker)
    if thing is None:
        return wrap
    if inspect.isclass(thing):
        if dataclasses.is_dataclass(thing) and "__init__" in vars(thing):
            thing.__init__ = wrap(thing.__init__)
        return thing
    if isinstance(thing, classmethod | staticmethod):
        return type(thing)(wrap(thing.__func__))
    if isinstance(thing, property):
        ways = (thing.fget, thing.fset, thing.fdel)
        return property(*(way and wrap(way) for way in ways))
    return _counted(thing, typechecker) if inspect.isfunction(thing) else thing


def _counted(fn: Any, typechecker: Any) -> Any:
    # By code: a function that is defined anew in every call of another one shares its count.
    count = _counts.setdefault(fn.__code__, _Count())
    checked: Callable[..., Any] | None = None

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        nonlocal checked
        if count.test != _running.test:
            count.test, count.left = _running.test, CALLS
        if count.left == 0:
            return fn(*args, **kwargs)
        count.left -= 1
        if checked is None:
            checked = _jaxtyped(fn, typechecker=typechecker)
        return checked(*args, **kwargs)

    return call


def install() -> None:
    """Let the import hook use this; before anything of ours is imported."""
    jaxtyping.jaxtyped = _first_calls
