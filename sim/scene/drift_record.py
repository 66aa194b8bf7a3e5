"""Keeps what was found when the real table was held against its scene: ``drift.json``.

    {"schema": 2, "scene": "my_cell", "scene_hash": "0123456789abcdef",
     "looks": {"camera top": [{"verdict": "moved", "moved_mm": 8.1, "moved_mm_within": 0.6,
                               "turned_deg": 0.4, "turned_deg_within": 0.1,
                               "said": "...", "source": "photograph of top, by 212 marks",
                               "checked_at": "2026-01-31T12:00:00+00:00"}], ...}}

The record lies in the package and says nothing of what the scene *is*, so the content hash leaves
it out. It holds for one content hash: of a scene that was changed since, nothing is recorded.

Of every part the last look of each kind (photograph, capture, touch) is kept, and a part counts as
moved while one of them says so: a look that tells nothing replaces none that does, and what a
photograph saw no touch of a single point takes back.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from robolearn.config import from_dict
from robolearn.errors import ConfigError, SceneError
from robolearn.files import write_atomic

FILE = "drift.json"
SCHEMA = 2
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
    # What it was measured by; the first word is the kind.
    source: str
    # UTC, ISO 8601.
    checked_at: str

    @property
    def kind(self) -> str:
        """What looks replace each other: photograph, capture, touch."""
        return self.source.partition(" ")[0].rstrip(",")


@dataclass(frozen=True, slots=True)
class DriftRecord:
    """The last look of every kind at each part of a cell, by its name (``camera top``)."""

    schema: int
    scene: str
    # Of the package that was looked at.
    scene_hash: str
    looks: dict[str, tuple[DriftPart, ...]]

    @property
    def parts(self) -> dict[str, DriftPart]:
        """What counts of every part: the last look that says it moved, else the last one."""
        return {name: max(looks, key=_counts) for name, looks in self.looks.items()}

    @property
    def moved(self) -> tuple[str, ...]:
        """Parts that are not where the scene has them: what depends on the scene is stale."""
        return tuple(name for name, part in self.parts.items() if part.verdict == "moved")


def _counts(part: DriftPart) -> tuple[bool, str, bool]:
    return part.verdict == "moved", part.checked_at, part.verdict == "not told"


def read_drift(folder: Path, scene_hash: str) -> DriftRecord | None:
    """What is recorded of the package ``folder`` as it is now; None when nothing is, or of another
    ``scene_hash`` only. SceneError for a file that is no record.
    """
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        record = from_dict(DriftRecord, _of_today(raw), str(path))
        if not all(record.looks.values()):
            raise ConfigError("a part has no look")
    except (ConfigError, ValueError) as error:
        raise SceneError(
            f"'{path}' is no drift record ({error}); delete it and run 'robolearn scene drift'"
            " again"
        ) from error
    return record if record.scene_hash == scene_hash else None


def _of_today(raw: Any) -> dict[str, Any]:
    """Records of schema 1 kept one look of every part."""
    document = cast("dict[str, Any]", raw) if isinstance(raw, dict) else {}
    parts: Any = document.get("parts")
    if document.get("schema") == 1 and isinstance(parts, dict):
        old = cast("dict[str, Any]", parts)
        kept = {key: value for key, value in document.items() if key != "parts"}
        return {**kept, "schema": SCHEMA, "looks": {name: [part] for name, part in old.items()}}
    if document.get("schema") != SCHEMA:
        raise ConfigError(f"expected an object with 'schema': {SCHEMA}")
    return document


def write_drift(
    folder: Path, scene: str, scene_hash: str, *found: Mapping[str, DriftPart]
) -> DriftRecord:
    """Add what was ``found`` now, by part, to what is recorded of this scene. A look replaces the
    one before of its kind; one that tells nothing does not replace one that says moved.
    """
    before = read_drift(folder, scene_hash)
    looks = {} if before is None else dict(before.looks)
    for parts in found:
        for name, part in parts.items():
            looks[name] = _joined(looks.get(name, ()), part)
    record = DriftRecord(SCHEMA, scene, scene_hash, looks)
    text = json.dumps(dataclasses.asdict(record), indent=1, allow_nan=False)
    write_atomic(folder / FILE, text + "\n")
    return record


def _joined(looks: tuple[DriftPart, ...], part: DriftPart) -> tuple[DriftPart, ...]:
    same = [look for look in looks if look.kind == part.kind]
    if part.verdict == "not told" and any(look.verdict == "moved" for look in same):
        return looks
    return (*(look for look in looks if look.kind != part.kind), part)
