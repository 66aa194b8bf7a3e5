"""Lists the files of a scene package, and refuses models that need others: what the hash of a
package does not cover could be changed without anybody seeing it.
"""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

from robolearn.errors import SceneError

# Folders that MuJoCo's compiler looks into for the files that elements name.
_FOLDERS = ("assetdir", "meshdir", "texturedir")
_UNSEEN = (".", "__pycache__")


def package_files(folder: Path) -> list[Path]:
    """All files in order, those of linked folders too, but for hidden ones and Python's own."""
    found: list[Path] = []
    walked: set[str] = set()
    for root, folders, names in os.walk(folder, followlinks=True):
        real = os.path.realpath(root)
        if real in walked:
            # A link to a folder above it, or one that is there twice.
            folders.clear()
            continue
        walked.add(real)
        folders[:] = [name for name in folders if not name.startswith(_UNSEEN)]
        found += [Path(root, name) for name in names if not name.startswith(_UNSEEN)]
    return sorted(path for path in found if path.is_file())


def check_references(folder: Path) -> None:
    """Raise :class:`SceneError` where the model needs a file that is not one of the package.

    A model that is no XML is left to the compiler, which says so.
    """
    ways, waiting, done = [""], ["scene.xml"], set[str]()
    while waiting:
        name = waiting.pop()
        if name in done:
            continue
        done.add(name)
        try:
            elements = list(ET.parse(folder / name).iter())  # noqa: S314 (MuJoCo reads it next)
        except (ET.ParseError, OSError, UnicodeDecodeError):
            continue
        ways += [e.attrib[way] for e in elements for way in _FOLDERS if way in e.attrib]
        for element in elements:
            named = [v for key, v in element.attrib.items() if key.startswith("file") and v]
            for file in named:
                _check(folder, name, file, ways)
            if element.tag in ("include", "model"):
                waiting += named


def _check(folder: Path, model: str, file: str, ways: list[str]) -> None:
    for way in ways:
        path = Path(os.path.normpath(folder / way / file))
        if not path.is_file():
            continue
        inside = path.is_relative_to(folder)
        parts = path.relative_to(folder).parts if inside else ()
        if not inside or any(part.startswith(_UNSEEN) for part in parts):
            what = "hidden" if inside else "not in the scene's folder"
            raise SceneError(
                f"{folder}/{model} needs '{file}', which is {what} ({path}): changing it would"
                " change the scene and not its hash; copy it into the folder, under a name that"
                " does not begin with a dot"
            )
