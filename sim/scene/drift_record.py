"""Keeps what was found when the real table was held against its scene: ``drift.json``.

    {"schema": 1, "scene": "my_cell", "scene_hash": "0123456789abcdef",
     "parts": {"camera top": {"verdict": "moved", "moved_mm": 8.1, "moved_mm_within": 0.6,
                              "turned_deg": 0.4, "turned_deg_within": 0.1,
                              "said": "...", "source": "photo top.png",
                              "checked_at": "2026-01-31T12:00:00+00:00"}, ...}}

The record lies in the package and says nothing of what the scene *is*, so the content hash leaves
it out. It holds for one content hash: of a scene that was changed since, nothing is recorded. A
part is replaced when it is looked at again; one that nobody looked at again keeps its verdict.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from robolearn.config import from_dict
from robolearn.errors import ConfigError, SceneError
from robolearn.files import write_atomic

FILE = "drift.json"
SCHEMA = 1
Verdict = Literal["moved", "unmoved", "not told"]


@dataclass(frozen=True, slots=True)
class DriftPart:
    """One thing of the cell, and how far from the scene it was when somebody looked.

    Sizes come with half of their 95 % interval; None: not measured.
    """

    verdict: Verdict
    moved_mm: float | None
    moved_mm_within: float | None
    turned_deg: float | None
    turned_deg_within: float | None
    # What a person should know and do.
    said: str
    # What it was measured by.
    source: str
    # UTC, ISO 8601.
    checked_at: str


@dataclass(frozen=True, slots=True)
class DriftRecord:
    """The last verdict on every part of a cell, by its name (``camera top``, ``table``)."""

    schema: int
    scene: str
    # Of the package that was looked at.
    scene_hash: str
    parts: dict[str, DriftPart]

    @property
    def moved(self) -> tuple[str, ...]:
        """Parts that are not where the scene has them: what depends on the scene is stale."""
        return tuple(name for name, part in self.parts.items() if part.verdict == "moved")


def read_drift(folder: Path, scene_hash: str) -> DriftRecord | None:
    """What is recorded of the package ``folder`` as it is now; None when nothing is, or of another
    ``scene_hash`` only. SceneError for a file that is no record.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(raw, dict) or raw.get("schema") != SCHEMA:
            raise ConfigError(f"expected an object with 'schema': {SCHEMA}")
        record = from_dict(DriftRecord, raw, str(path))
    except (ConfigError, ValueError) as error:
        raise SceneError(
            f"'{path}' is no drift record ({error}); delete it and run 'robolearn scene drift'"
            " again"
        ) from error
    return record if record.scene_hash == scene_hash else None


def write_drift(
    folder: Path, scene: str, scene_hash: str, parts: dict[str, DriftPart]
) -> DriftRecord:
    """Add ``parts`` to what is recorded of this scene; those of the same names are replaced."""
    before = read_drift(folder, scene_hash)
    merged = {**(before.parts if before is not None else {}), **parts}
    record = DriftRecord(SCHEMA, scene, scene_hash, merged)
    text = json.dumps(dataclasses.asdict(record), indent=1, allow_nan=False)
    write_atomic(folder / FILE, text + "\n")
    return record
