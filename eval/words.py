"""Puts counts and differences into words: one policy, two policies, less than 0.001."""

from __future__ import annotations

# Beyond what adding up in another order changes.
_NOTHING = 1e-12


def count_of(n: int, one: str, several: str = "") -> str:
    """``1 policy``, ``2 policies``; ``several``: its plural, if not with an s."""
    return f"{n} {one if n == 1 else several or f'{one}s'}"


def size(value: float, digits: int = 3) -> str:
    """A difference without its sign, which is not rounded to none: ``less than 0.001``."""
    found = f"{abs(value):.{digits}f}"
    if abs(value) > _NOTHING and float(found) == 0.0:
        return f"less than {10.0**-digits:.{digits}f}"
    return found


def is_nothing(value: float) -> bool:
    """Whether a difference is none."""
    return abs(value) <= _NOTHING
