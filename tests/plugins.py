"""Packages that look installed."""

from __future__ import annotations

import tomllib
from pathlib import Path


def installed(folder: Path, *packages: Path) -> list[str]:
    """Folders for the module path that make packages look installed, as pip leaves them."""
    for package in packages:
        project = tomllib.loads((package / "pyproject.toml").read_text("utf-8"))["project"]
        info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        lines: list[str] = []
        for group, points in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {place}" for name, place in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return [str(folder), *map(str, packages)]
