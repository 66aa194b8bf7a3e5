"""Runs the command line as ``python -m robolearn``, where no script of that name is on the path."""

from __future__ import annotations

import sys

from robolearn.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
