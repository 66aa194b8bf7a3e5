"""Takes values out of mappings whose shape nobody promises: files by hand, of other releases."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast


def mapping(value: Any) -> Mapping[str, Any]:
    """``value`` where it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def listed(value: Any) -> tuple[Any, ...]:
    """The members of a list, none of anything else."""
    return tuple(cast("list[Any]", value)) if isinstance(value, list | tuple) else ()


def at(value: Any, *keys: str) -> Any:
    """What stands under ``keys``, one inside of the other; None where nothing does."""
    for key in keys:
        value = mapping(value).get(key)
    return value


def number(value: Any) -> float | None:
    """A finite number, else None."""
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if plain and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    """A whole number, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def texts(value: Any) -> Mapping[str, str]:
    """A mapping's values as text."""
    return {str(k): str(v) for k, v in mapping(value).items()}
