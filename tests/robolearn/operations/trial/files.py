"""Files of blinded trials on an emulated arm: a cell, a suite of two starts, two runs."""

from pathlib import Path

import yaml

from tests.hardware.lab import CONFIG, cell_file

RUNS = ("kestrel", "osprey")
PLAN = ("--robot", "cell.yaml", "--policies", *RUNS, "--suite", "suite.yaml", "--out", "out")


def write_files(folder: Path, last: int) -> None:
    """An engine-less lab at an address of its own, and the rest."""
    cell_file(folder, last)
    suite = yaml.safe_load((CONFIG.parents[1] / "eval" / "pusht.yaml").read_text())
    suite["conditions"], suite["subset"] = suite["conditions"][:2], 1
    (folder / "suite.yaml").write_text(yaml.safe_dump(suite))
    for name in RUNS:
        (folder / name).mkdir()
        (folder / name / "config.yaml").write_text(f"policy: {name}\n")
