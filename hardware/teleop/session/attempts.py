"""Keeps what was recorded, or forgets it, and counts what became of every attempt.

An attempt that is kept is written while the arm goes to the next start. It survives a kill since it
ended (``robolearn/data/store/journal.py``), so nobody has to wait for the disk.
"""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from hardware.teleop.session.config import Recorder, Reviewer
from robolearn.errors import RobolearnError

_log = logging.getLogger(__name__)


class Attempts:
    """Of one session, to be used with ``with``: what is kept at its end is kept whatever ended it.
    ``recorder`` None: nothing is.
    """

    def __init__(self, recorder: Recorder | None, reviewer: Reviewer | None) -> None:
        self.saved: list[str] = []
        self.counts: Counter[str] = Counter()
        # What became of the last one, in words.
        self.note = ""
        self._recorder, self._reviewer = recorder, reviewer
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="keep")
        # What is being written, and whether the task is solved in it.
        self._writing: tuple[Future[str], bool] | None = None

    def __enter__(self) -> Attempts:  # noqa: PYI034 - beartype cannot check Self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.settle()
        except RobolearnError as failed:
            if error is None:
                raise
            # It must not hide what ended the session.
            _log.error("the last episode was not saved: %s", failed)
        finally:
            self._pool.shutdown()

    @property
    def writing(self) -> bool:
        """Whether one is being written."""
        return self._writing is not None

    @property
    def kept(self) -> int:
        """How many were, with one that is being written."""
        return len(self.saved) + self.writing

    @property
    def saved_in_words(self) -> str:
        """How many were saved, for whoever looks at the end."""
        if self._recorder is None:
            return "Nothing was recorded."
        count = len(self.saved)
        return f"{count} episode{'s' if count != 1 else ''} saved."

    @property
    def lost_frames(self) -> int:
        """Pictures that did not reach the disk."""
        return 0 if self._reviewer is None else self._reviewer.lost_frames

    def keep(self, *, solved: bool, judged: bool | None) -> None:
        """Write the attempt that ended from now on; :meth:`settle` tells what became of it.
        ``judged``: what the person says of it instead of the task.
        """
        recorder, reviewer = self._recorder, self._reviewer
        assert recorder is not None
        recorder.spare()
        self.settle()

        def write() -> str:
            episode = recorder.keep()
            if reviewer is not None:
                # What the person said of it must not wait for the arm either.
                reviewer.kept(episode, judged)
            return episode

        self._writing = self._pool.submit(write), solved

    def settle(self) -> None:
        """Wait for what is being written. Raises what the recorder did."""
        writing, self._writing = self._writing, None
        if writing is not None:
            future, solved = writing
            episode = future.result()
            self.saved.append(episode)
            self.counts["success" if solved else "no success"] += 1
            self.note = f"Saved as {episode}. Press space for the next one."

    def discard(self, *, again: bool) -> None:
        """Forget the attempt that ended; ``again``: the same start comes next."""
        if self._recorder is None:
            return
        self._recorder.discard()
        self.counts["discarded"] += 1
        following = "the same start again" if again else "the next one"
        self.note = f"Discarded. Press space to try {following}."
