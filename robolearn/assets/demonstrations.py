"""Finds the demonstrations that come with the package."""

from __future__ import annotations

from pathlib import Path


def pusht_demonstrations_path() -> Path:
    """The 206 human Push-T demonstrations (state and action), as ``robolearn data import`` reads.

    Source and licence: ``pusht/SOURCE.md`` and ``pusht/LICENSE`` beside it.
    """
    return Path(__file__).resolve().parent / "pusht" / "pusht_human.zarr"
