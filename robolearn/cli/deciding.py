"""What decides a simulated trial, as a hash: trials of other code are not taken for the same."""

from __future__ import annotations

import hashlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The sources that decide a simulated trial; reports and statistics may change without it.
DECIDING = (
    *("robolearn/*.py", "robolearn/data/dataset.py", "robolearn/data/stats.py"),
    *("robolearn/cli/build.py", "policies/**/*.py", "sim/**/*.py"),
    *("eval/rollouts.py", "eval/judge.py", "eval/episode_tools.py"),
)


def deciding_hash() -> str:
    """SHA-256 (16 digits) over the sources that decide a simulated trial."""
    digest = hashlib.sha256()
    for path in sorted({p for pattern in DECIDING for p in ROOT.glob(pattern)}):
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
