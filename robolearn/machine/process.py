"""Child processes that never outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading


def exit_with_parent() -> None:
    """Call first in a spawned child: it ends when the parent ends, however that happened.

    A daemon thread waits on the parent's sentinel (closed by the kernel, so SIGKILL counts too).
    Ctrl-C is left to the parent, which decides in which order its children stop.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, name="exit-with-parent", daemon=True).start()
