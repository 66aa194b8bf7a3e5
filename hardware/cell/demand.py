"""Says whether a cell demands a certificate of the policies that drive it: the section
``certificate`` of its config.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hardware.cell.load import load_sections
from robolearn.config import from_dict
from robolearn.errors import ConfigError

SECTION = "certificate"
# As a signature names its key; another spelling would equal none.
_KEY = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class CertificateDemand:
    """What ``deploy`` asks for before a policy drives this cell."""

    # required or optional; "": required of a real cell, optional in a virtual lab.
    demand: Literal["", "required", "optional"] = ""
    # Real success that a certificate must vouch for; null: what it says itself.
    least_success: float | None = None
    # Public keys (Ed25519, 64 hexadecimal digits) of whom a certificate is believed; []: anybody's,
    # signed or not.
    keys: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.least_success is not None and not 0.0 < self.least_success < 1.0:
            raise ConfigError(
                f"certificate.least_success must be between 0 and 1, got {self.least_success:g}"
            )
        for key in self.keys:
            if not _KEY.fullmatch(key):
                raise ConfigError(
                    "certificate.keys: expected public keys of 64 hexadecimal digits in lower case"
                    f" ('robolearn certify' prints that of whoever signs), got '{key[:80]}'"
                )

    def required(self, *, lab: bool) -> bool:
        """Whether a cell that is a virtual lab, or is none, demands one."""
        return self.demand == "required" or (not self.demand and not lab)


def load_demand(path: Path) -> CertificateDemand:
    """The section ``certificate`` (``certificate: required`` is short for its ``demand``), or what
    holds without one; :class:`ConfigError` for what it cannot say.
    """
    raw = load_sections(path).get(SECTION, {})
    section = {"demand": raw} if isinstance(raw, str) else raw
    if not isinstance(section, dict):
        raise ConfigError(f"{path}, {SECTION}: expected required, optional or a mapping, got {raw}")
    return from_dict(CertificateDemand, section, where=f"{path}, {SECTION}")
