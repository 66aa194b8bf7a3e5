"""Run every ``bench_<area>.py`` and write ``runs/bench/<area>.json``.

Each area has ``rows(long: bool) -> list[dict]`` with the keys of :data:`KEYS`. A row that could not
be measured has ``holds: None`` and says why. Each area runs in a process of its own, so that one
that dies does not take the others with it.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
KEYS = ("name", "unit", "ours", "reference", "ratio", "floor", "holds", "why")
AREA_TIMEOUT_S, LONG_TIMEOUT_S = 900, 3600


def areas() -> list[str]:
    """Names of the areas, from the files."""
    return sorted(p.stem.removeprefix("bench_") for p in HERE.glob("bench_*.py"))


def run_area(area: str, long: bool) -> list[dict[str, object]]:
    """Measure one area in this process and write its file."""
    rows = importlib.import_module(f"tests.benchmarks.bench_{area}").rows(long=long)
    for row in rows:
        missing = [k for k in KEYS if k not in row]
        if missing:
            raise ValueError(f"bench_{area}: row {row.get('name')!r} lacks {missing}")
    out = ROOT / "runs" / "bench" / f"{area}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(rows, indent=2) + "\n")
    return rows


def main(argv: list[str]) -> int:
    """Run the named areas (all without names) and print one line per row."""
    long = "--long" in argv
    names = [a for a in argv if not a.startswith("-")]
    if "--here" in argv:
        run_area(names[0], long)
        return 0
    unknown = [n for n in argv if n not in (*areas(), "--long")]
    if unknown:
        print(f"bench: no area {unknown}; areas: {areas()}, and --long", file=sys.stderr)
        return 2
    failed = False
    for area in names or areas():
        start = time.monotonic()
        command = [sys.executable, "-m", "tests.benchmarks.run", "--here", area]
        try:
            code = subprocess.run(
                command + (["--long"] if long else []),
                cwd=ROOT,
                timeout=LONG_TIMEOUT_S if long else AREA_TIMEOUT_S,
            ).returncode
        except subprocess.TimeoutExpired:
            code = -1
        print(f"{area}: {time.monotonic() - start:.0f} s", flush=True)
        if code != 0:
            failed = True
            print(f"  did not finish (exit {code})")
            continue
        for row in json.loads((ROOT / "runs" / "bench" / f"{area}.json").read_text()):
            print("  " + _line(row))
    return 1 if failed else 0


def _line(row: dict[str, object]) -> str:
    verdict = {True: "holds", False: "MISSED"}.get(row["holds"], "not measured")
    figures = f"{row['ours']} {row['unit']}, reference {row['reference']}, ratio {row['ratio']}"
    return f"{verdict:<12} {row['name']}: {figures} (floor {row['floor']}) {row['why'] or ''}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
