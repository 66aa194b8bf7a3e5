"""An emulated terminal on a pty: what it is told, and what its person types."""

import contextlib
import os
import re
import select
import threading

# Arrow keys end a sequence by a letter of their own.
_ARROWS = {"up": "A", "down": "B", "right": "C", "left": "D"}
_CODES = {"space": 32, "enter": 13, "escape": 27, "backspace": 127}
_LEGACY = {
    "space": b" ", "enter": b"\r", "escape": b"\x1b", "backspace": b"\x7f",
    "up": b"\x1b[A", "down": b"\x1b[B", "right": b"\x1b[C", "left": b"\x1b[D",
}  # fmt: skip
_TOLD = re.compile(rb"\x1b\[(\?u|5n|>\d+u|<u|\?1004[hl]|\?2004[hl])")


class EmulatedTerminal:
    """``kitty``: it speaks that keyboard protocol; use as a context manager."""

    def __init__(self, *, kitty: bool, holds: int = 15) -> None:
        self.kitty, self._holds = kitty, holds
        self.master, self.slave = os.openpty()
        # Modes that were pushed; whether it tells its focus, and pastes; whether it answers.
        self.stack: list[int] = [0]
        self.tells_focus, self.tells_pastes, self.frozen = False, False, False
        self.pings = 0
        # Whether programs have left the other screen.
        self.left_screen = False
        # What the program says beside the terminal, line by line.
        self.written: list[str] = []
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        os.write(self._wake, b"x")
        self._thread.join(5.0)
        for fd in (self.master, self.slave, self._woken, self._wake):
            with contextlib.suppress(OSError):
                os.close(fd)

    def hang_up(self) -> None:
        """The window is closed."""
        os.write(self._wake, b"x")
        self._thread.join(5.0)
        os.close(self.master)

    def press(self, *names: str, shift: bool = False) -> None:
        for name in names:
            self._key(name, 1, shift)

    def repeat(self, name: str) -> None:
        self._key(name, 2, False)

    def release(self, *names: str) -> None:
        for name in names:
            self._key(name, 3, False)

    def focus(self, on: bool) -> None:
        if self.tells_focus:
            self.type(b"\x1b[I" if on else b"\x1b[O")

    def type(self, data: bytes) -> None:
        os.write(self.master, data)

    def _key(self, name: str, kind: int, shift: bool) -> None:
        if not self.stack[-1]:
            if kind < 3:
                letter = name.upper() if shift else name
                self.type(_LEGACY.get(name) or letter.encode())
            return
        mods = f"{2 if shift else 1}:{kind}"
        if name in _ARROWS:
            self.type(f"\x1b[1;{mods}{_ARROWS[name]}".encode())
        else:
            self.type(f"\x1b[{_CODES.get(name) or ord(name)};{mods}u".encode())

    def _serve(self) -> None:
        told = b""
        while True:
            ready = select.select([self.master, self._woken], [], [])[0]
            if self._woken in ready:
                return
            try:
                told += os.read(self.master, 4096)
            except OSError:
                return
            self.left_screen = self.left_screen or b"\x1b[?1049l" in told
            end = 0
            for match in _TOLD.finditer(told):
                end = match.end()
                self._obey(match[1])
            told = told[end:][-16:]

    def _obey(self, order: bytes) -> None:
        if self.frozen:
            return
        if order == b"5n":
            self.pings += 1
            self.type(b"\x1b[0n")
        elif order.startswith(b"?1004"):
            self.tells_focus = order.endswith(b"h")
        elif order.startswith(b"?2004"):
            self.tells_pastes = order.endswith(b"h")
        elif not self.kitty:
            return
        elif order == b"?u":
            self.type(b"\x1b[?%du" % self.stack[-1])
        elif order.startswith(b">"):
            self.stack.append(int(order[1:-1]) & self._holds)
        elif len(self.stack) > 1:
            self.stack.pop()
