"""Asks the person at the terminal: before anything moves, before anything is appended to."""

from __future__ import annotations

import select
import sys
from collections.abc import Callable

from robolearn.errors import ConfigError


def ask(what: str, question: str = "Cell clear?", *, yes: bool) -> None:
    """Say ``what`` is about to happen and go on only when the operator agrees; raises ConfigError
    otherwise, and without a terminal. ``yes``: agreed already.
    """
    if yes:
        return
    require_terminal(what)
    print(f"{what}. {question} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("not confirmed: nothing of this was done")


def require_terminal(what: str, instead: str = "pass --yes") -> None:
    """Raise ConfigError, which says what to do ``instead``, unless somebody can be asked."""
    if not sys.stdin.isatty():
        raise ConfigError(f"{what}, and there is no terminal to ask: {instead}")


def wait_for_enter(text: str, pressed: Callable[[], bool] | None = None) -> None:
    """Tell the operator what to do and wait for Enter, by ``pressed`` where somebody else reads the
    terminal; ConfigError when nobody can answer.
    """
    print(f"{text}, then press Enter: ", end="", file=sys.stderr, flush=True)
    if not (sys.stdin.readline() if pressed is None else pressed()):
        raise ConfigError("there is no terminal to answer from; pass --yes")


def entered(wait_s: float) -> str | None:
    """The line that was entered within ``wait_s`` [s]; None for none, "" when the input ended."""
    return sys.stdin.readline() if select.select([sys.stdin], [], [], wait_s)[0] else None
