"""Asks the operator at the terminal, who answers questions, presses keys, reads what happens."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from robolearn.cli.deploy.keys import HELP, Keys
from robolearn.cli.shared.consent import ask, require_terminal, wait_for_enter
from robolearn.cli.shared.parse import say
from robolearn.errors import ConfigError
from robolearn.types import TrialRecord


class TerminalOperator:
    """See :class:`robolearn.operations.deploy.operator.Operator`.

    ``yes``: has agreed, and places nothing; ``quiet``: nothing is printed. ``finished`` counts the
    trials that are scored and saved.
    """

    def __init__(self, *, yes: bool, quiet: bool) -> None:
        self._yes, self._quiet = yes, quiet
        # A terminal that answers questions also has the keys that score and stop.
        self._keys = Keys(sys.stdin.fileno()) if sys.stdin.isatty() else None
        self._listening = False
        self.finished = 0

    @property
    def judges(self) -> bool:
        """With keys."""
        return self._keys is not None

    @property
    def places(self) -> bool:
        """Unless asked not to ask."""
        return not self._yes

    @property
    def answers(self) -> bool:
        """Where there is a terminal, also one who agreed to everything."""
        return self._keys is not None

    def consent(self, what: str) -> None:
        """Ask."""
        ask(what, yes=self._yes)

    def place(self, text: str) -> None:
        """Say what to do and wait for Enter."""
        if self._keys is None:
            require_terminal(text)
        keys = self._keys if self._listening else None
        wait_for_enter(text, None if keys is None else keys.wait_enter)

    def choose(self, question: str, answers: Sequence[str]) -> int:
        """Ask for one of the numbers until one is given."""
        lines = [f"  {number}: {answer}" for number, answer in enumerate(answers)]
        text = "\n".join([question, *lines, "number: "])
        while True:
            typed = self._asked(text).strip()
            if typed.isascii() and typed.isdigit() and int(typed) < len(answers):
                return int(typed)
            text = f"a number from 0 to {len(answers) - 1}, then Enter: "

    def remark(self, question: str) -> str:
        """A line."""
        return self._asked(f"{question}: ").strip()

    def _asked(self, text: str) -> str:
        if self._keys is None:
            require_terminal(text, "answer at a terminal")
        print(text, end="", file=sys.stderr, flush=True)
        keys = self._keys if self._listening else None
        line = sys.stdin.readline() if keys is None else keys.wait_line()
        if line is None or (keys is None and not line):
            raise ConfigError(f"the terminal is gone, nobody answered: {text.splitlines()[0]}")
        if keys is not None:
            # Keys that are read one by one are not shown by the terminal.
            print(line, file=sys.stderr, flush=True)
        return line

    def listen(self, stop: Callable[[], None]) -> str:
        """Keys from now on, where there is a terminal."""
        if self._keys is None:
            return "no terminal: no emergency stop key, no score key"
        self._keys.start(stop)
        self._listening = True
        return HELP

    def forget(self) -> None:
        """Forget the last key."""
        if self._keys is not None:
            self._keys.forget()

    def verdict(self) -> str:
        """The last key since then."""
        return "" if self._keys is None else self._keys.verdict()

    def told(self, what: str, text: str) -> None:
        """One line."""
        say(f"  {what:<14} {text}", quiet=self._quiet)

    def ended(self, trial: TrialRecord) -> None:
        """Count it."""
        del trial
        self.finished += 1

    def close(self) -> None:
        """Give the terminal back."""
        if self._keys is not None:
            self._keys.close()
