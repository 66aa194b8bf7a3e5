"""Sits a person down at the terminal: questions before a session, its screen, lines after it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field

from hardware.teleop.device import View
from hardware.teleop.terminal.writer import Writer
from robolearn.cli.shared.parse import printable
from robolearn.cli.shared.session_screen import FullScreen, Lines, full_screen_possible
from robolearn.data.upkeep.repair import Recoverable, Recovered
from robolearn.operations.stores.collection import CollectListener


@dataclass(slots=True)
class Sitting:
    """One session at the terminal. ``where``: what the screen is called; ``begin``: told who acts
    and how many episodes there are, and may refuse; ``plain``: lines, no screen; ``yes``: has
    agreed to what is asked; ``to_stderr``: standard output is a document; ``store``: what repairs.
    """

    where: str
    begin: Callable[[str, int], None] | None = None
    plain: bool = False
    yes: bool = False
    to_stderr: bool = False
    store: str = ""
    _screen: FullScreen | None = None
    # Lines of a session: who drives an arm must not wait for the terminal.
    _writer: Writer | None = None
    _later: list[str] = field(default_factory=list[str])

    def listener(self) -> CollectListener:
        """What a collection tells, and asks."""
        lines = Lines(self._say)

        def show(view: View) -> None:
            """To whatever is there to show it."""
            if self._screen is not None:
                self._screen.show(view)
            else:
                lines.show(view)

        return CollectListener(
            on_begin=self.begin,
            on_saved=lambda name: self.tell(f"saved episode {name}"),
            on_page=lambda url: self.tell(f"open this page: {url}"),
            on_view=self._write,
            on_status=show,
            on_device=self._seat,
            on_recoverable=self._recover,
            on_recovered=_recovered,
        )

    def tell(self, text: str) -> None:
        """One line, when the terminal is free for it."""
        if self._screen is not None:
            self._later.append(text)
            return
        self._write_out(lambda: self._print(text))

    def close(self) -> None:
        """Give the terminal back and say what was saved meanwhile; safe to call twice."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        screen, self._screen = self._screen, None
        if screen is not None:
            screen.stop()
        later, self._later = self._later, []
        for text in later:
            self.tell(text)

    def _seat(self, device: str) -> bool:
        """All questions are answered. A page has a screen of its own, and its address must stay in
        sight.
        """
        if self.plain or device == "browser" or not full_screen_possible():
            self._writer = Writer()
            return False
        self._screen = FullScreen(self.where)
        self._screen.start()
        return True

    def _say(self, text: str) -> None:
        self._write_out(lambda: _line(text))

    def _write_out(self, job: Callable[[], None]) -> None:
        """Now, or in its turn where a session must not wait."""
        if self._writer is not None:
            self._writer.every(job)
        else:
            job()

    def _print(self, text: str) -> None:
        print(printable(text), file=sys.stderr if self.to_stderr else sys.stdout, flush=True)

    def _write(self, text: str) -> None:
        if self._screen is not None:
            self._screen.explain(text)
        else:
            print(text, end="", file=sys.stderr, flush=True)

    def _recover(self, found: tuple[Recoverable, ...]) -> bool:
        """Ask whether what was killed shall be recovered; where nobody can be asked, say how."""
        total = sum(r.duration_s for r in found)
        what = f"{len(found)} recording(s) of {total:.0f} s were killed before they were saved"
        if self.yes:
            _line(f"{what}: they are recovered")
            return True
        if not sys.stdin.isatty():
            _line(f"{what}; 'robolearn data repair {self.store}' recovers them")
            return False
        print(f"{what}. Recover them now? [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")


def _recovered(done: Recovered) -> None:
    for name in done.saved:
        _line(f"recovered as {name}: look at it, it ends where the recording was killed")
    for name, why in done.failed.items():
        _line(f"{name} cannot be recovered: {why}")


def _line(text: str) -> None:
    # A status line may stand where this one goes.
    clear = "\r\x1b[K" if sys.stderr.isatty() else ""
    print(f"{clear}{printable(text)}", file=sys.stderr, flush=True)
