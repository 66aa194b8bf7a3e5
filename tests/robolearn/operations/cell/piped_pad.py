"""The command line where a named pipe may stand for a gamepad: ``python -m ... collect ...``."""

import sys

from hardware.teleop.devices import gamepad
from robolearn.cli.main import main


def _any_file(path: str) -> None:
    """A pipe tells no buttons, as the kernel's event devices do."""
    del path


if __name__ == "__main__":
    gamepad.require_gamepad = _any_file
    sys.exit(main())
