"""Says whether a figure of drawn worlds keeps to what is allowed, as a row of a benchmark."""

from __future__ import annotations

from typing import Any


def at_most(name: str, unit: str, value: float, most: float) -> dict[str, Any]:
    """A row that holds where ``value`` is ``most`` or less."""
    return {
        "name": name,
        "unit": unit,
        "ours": round(value, 3),
        "reference": most,
        "ratio": round(value / most, 3),
        "floor": 1.0,
        "holds": bool(value <= most),
        "why": "drawn worlds; the reference is the most that is allowed",
    }
