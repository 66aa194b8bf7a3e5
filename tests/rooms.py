"""Writes the table of folders of ``docs/architecture.md``: ``python -m tests.rooms``.

Every folder with the first sentence of its ``__init__.py``; a test compares it with the page.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("robolearn", "sim", "hardware", "policies", "eval")
BEGIN, END = "<!-- rooms: python -m tests.rooms -->\n", "<!-- end of rooms -->\n"


def rooms() -> str:
    """The table, one row per folder with modules."""
    rows = ["| folder | what it is for |", "|---|---|"]
    for package in PACKAGES:
        for init in sorted((ROOT / package).rglob("__init__.py")):
            folder = init.parent.relative_to(ROOT).as_posix()
            rows.append(f"| `{folder}/` | {sentence(init)} |")
    return "\n".join(rows) + "\n"


def sentence(init: Path) -> str:
    """The first paragraph of a package's docstring, on one line."""
    text = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")


def written(page: str) -> str:
    """``page`` with the table as it should be."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}{rooms()}{END}{tail}"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
