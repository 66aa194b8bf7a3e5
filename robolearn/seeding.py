"""Derives seeds from one number; a child's stream depends only on its name and parent."""

from __future__ import annotations

import hashlib


def child_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed derived from ``seed`` and a path of names; stable across versions and hosts."""
    text = "/".join([str(seed), *[str(n) for n in names]])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1
