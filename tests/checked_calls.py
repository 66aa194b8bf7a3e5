"""Checks types and shapes in the first calls of every function in every test.

Each call costs microseconds to check: in control loops and rollouts more than what is called. What
a test passes wrongly it passes in its first calls, so the later ones go unchecked. A check is built
when it is first needed (a millisecond each, for functions that are never called too otherwise).

jaxtyping's own check binds the arguments and checks them twice, before the call and beside the
result, which takes 50 microseconds also where no array is. Here beartype checks both around one
call, and shapes have a context where there are any.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

# How many calls of a function a test has checked.
CALLS = 3

_jaxtyped = jaxtyping.jaxtyped
_CONF = BeartypeConf(violation_type=jaxtyping.TypeCheckError)


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
            checked = _check(fn, typechecker)
        return checked(*args, **kwargs)

    return call


def _check(fn: FunctionType, typechecker: Any) -> Callable[..., Any]:
    """``fn`` with its arguments and result checked in every call."""
    hints = {name: _resolved(hint, fn.__globals__) for name, hint in fn.__annotations__.items()}
    shapes = [found for hint in hints.values() for found in _arrays(hint)]
    # What is yielded is not looked at, and a length may be that of an argument, by its name.
    later = inspect.isgeneratorfunction(fn) or inspect.iscoroutinefunction(fn)
    if later or any("{" in str(getattr(shape, "dim_str", "")) for shape in shapes):
        return _jaxtyped(fn, typechecker=typechecker)
    told = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    told.__kwdefaults__, told.__qualname__ = fn.__kwdefaults__, fn.__qualname__
    told.__module__, told.__annotations__ = fn.__module__, hints
    checked = beartype(conf=_CONF)(told)
    if not shapes:
        return checked

    def call(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        with _jaxtyped("context"):
            return checked(*args, **kwargs)

    return call


def _resolved(hint: Any, names: dict[str, Any]) -> Any:
    """What an annotation means; what only type checkers understand may be anything."""
    if not isinstance(hint, str):
        return hint
    try:
        return eval(hint, names)
    except Exception:  # noqa: BLE001 - a name or a subscript of type checkers alone
        return Any


def _arrays(hint: Any) -> list[Any]:
    """The annotations of shapes in another one."""
    own = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return [hint] if own else [found for part in get_args(hint) for found in _arrays(part)]


def install() -> None:
    """Let the import hook use this; before anything of ours is imported."""
    jaxtyping.jaxtyped = _first_calls
