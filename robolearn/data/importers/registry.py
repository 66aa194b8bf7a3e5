"""Finds the importer of a foreign recording, by the format's name or by looking at the source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from robolearn.data.importers.foreign import reading, refuse_pointer
from robolearn.data.importers.recording import Importer
from robolearn.data.store.manifest import STORE_FILE
from robolearn.errors import DataError
from robolearn.table import CALLABLE, Table

# In the order in which a source is tried.
IMPORTERS = Table[Callable[[], Importer]](
    {
        "diffusion-policy": "robolearn.data.importers.diffusion_policy:DiffusionPolicyImporter",
        "lerobot-v2.1": "robolearn.data.importers.lerobot_v21:LeRobotV21Importer",
        "lerobot-v3.0": "robolearn.data.importers.lerobot_v30:LeRobotV30Importer",
        "robomimic": "robolearn.data.importers.robomimic:RobomimicImporter",
        "minari": "robolearn.data.importers.minari:MinariImporter",
        "d4rl": "robolearn.data.importers.offline:D4RLImporter",
        "ogbench": "robolearn.data.importers.offline:OGBenchImporter",
        "csv": "robolearn.data.importers.csv_folder:CsvImporter",
    },
    what="format",
    group="robolearn.importers",
    wanted=CALLABLE,
)


def importer(name: str) -> Importer:
    """The importer of a format; the error lists all."""
    return IMPORTERS.find(name, error=DataError)()


def find_importer(path: Path, name: str = "auto") -> tuple[str, Importer]:
    """The importer called ``name``, or with ``auto`` the one that recognises ``path``."""
    if name != "auto":
        return name, importer(name)
    if not path.exists():
        raise DataError(f"no recording at {path}: the path does not exist")
    if (path / STORE_FILE).is_file():
        raise DataError(
            f"{path} is an episode store already; 'robolearn data merge {path} --into STORE' adds"
            " its episodes to another one"
        )
    refuse_pointer(path)
    for known in IMPORTERS:
        found = importer(known)
        with reading(path):
            recognised = found.recognise(path)
        if recognised:
            return known, found
    looked = "; ".join(f"{known}: {importer(known).looked_for}" for known in IMPORTERS)
    raise DataError(
        f"{path} is in no known format. Looked for: {looked}."
        " Name one with --format to see what it misses"
    )
