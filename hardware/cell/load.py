"""Reads a hardware config: the sections ``robot`` (the cell), ``lab`` and ``certificate``."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from hardware.cell.config import CellConfig
from hardware.cell.sanity import require_sane
from robolearn.config import find_config, from_dict, load_yaml
from robolearn.errors import ConfigError, did_you_mean
from robolearn.table import look_in

SECTIONS = ("lab", "robot", "certificate")


def load_sections(path: Path) -> dict[str, Any]:
    """The file's sections, by name; ConfigError for an unknown one."""
    raw = load_yaml(path)
    for key in raw:
        if key not in SECTIONS:
            raise ConfigError(
                f"{path}: unknown section '{key}'.{did_you_mean(str(key), SECTIONS)}"
                f" Sections: {list(SECTIONS)}"
            )
    return raw


def load_cell(path: Path) -> CellConfig:
    """The section ``robot``, checked (:func:`require_sane`); ``lab`` belongs to the virtual lab.

    Files that it names are beside this one, wherever the command is started.
    """
    section = load_sections(path).get("robot")
    if not isinstance(section, dict):
        raise ConfigError(f"{path} has no section 'robot' that describes the cell")
    cell = from_dict(CellConfig, section, where=f"{path}, robot")
    folder = find_config(path).parent
    if ":" in str(cell.driver.get("kind", "")):
        look_in(str(folder.resolve()))
    if "calibration" in cell.driver:
        calibration = folder / str(cell.driver["calibration"])
        cell = dataclasses.replace(cell, driver={**cell.driver, "calibration": str(calibration)})
    require_sane(cell, f"{path}: robot")
    return cell
