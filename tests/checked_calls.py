"""Checks types and shapes in the first calls of every function in every test.

Each call costs some ten microseconds to check: in control loops and rollouts more than what is
called. What a test passes wrongly it passes in its first calls, so the later ones go unchecked.
A check is built when it is first needed (a millisecond each, for functions that are never called
too otherwise).
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import jaxtyping
from jaxtyping import _decorator

# How many calls of a function a test has checked.
CALLS = 8

_jaxtyped = _decorator.jaxtyped


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


def _first_calls(fn: Any = None, *, typechecker: Any) -> Any:
    """What jaxtyping's import hook puts on every function and class."""
    if fn is None:
        return functools.partial(_first_calls, typechecker=typechecker)
    if not inspect.isfunction(fn):
        # Classes and descriptors: it calls this function for the functions in them.
        return _jaxtyped(fn, typechecker=typechecker)
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
    jaxtyping.jaxtyped = _decorator.jaxtyped = _first_calls
