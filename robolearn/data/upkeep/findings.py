"""Says what a check of a store found: deviations one by one, and what was looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "note"]
Kind = Literal[
    "missing", "altered", "size", "extra", "log", "unreadable", "content", "leftover", "foreign"
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One deviation. An ``error`` is damage; a ``note`` is harmless."""

    severity: Severity
    kind: Kind
    path: str
    message: str


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What ``check_store`` looked at and found.

    ``commits``: lines of the log whose chain holds; ``annotations``: records that were read;
    ``files`` and ``bytes``: compared by SHA-256; ``decoded``: episodes whose arrays were all
    decoded and validated (``deep``).
    """

    store: str
    episodes: int
    files: int
    findings: tuple[Finding, ...]
    commits: int = 0
    annotations: int = 0
    bytes: int = 0
    decoded: int = 0

    @property
    def sound(self) -> bool:
        """No damage (notes do not count)."""
        return all(f.severity != "error" for f in self.findings)
