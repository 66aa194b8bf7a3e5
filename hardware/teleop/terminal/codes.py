"""Decodes what a terminal sends: keys as they always were, and those of the kitty protocol."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Kind = Literal["press", "repeat", "release"]

FOCUS_IN, FOCUS_OUT = b"\x1b[I", b"\x1b[O"
# Around text that is pasted.
PASTE_BEGINS, PASTE_ENDS = b"\x1b[200~", b"\x1b[201~"
# The answer to a request for the terminal's status.
ALIVE = b"\x1b[0n"
_KINDS: dict[int, Kind] = {1: "press", 2: "repeat", 3: "release"}
_SHIFT, _ALT, _CTRL, _SUPER = 1, 2, 4, 8
_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
_NAMED = {9: "tab", 13: "enter", 10: "enter", 27: "escape", 32: "space", 8: "backspace"}
_NAMED |= {127: "backspace", 57414: "enter", 57441: "shift", 57447: "shift"}
# Longer sequences are none of a key.
_LONGEST = 64
_FLAGS = re.compile(rb"\x1b\[\?(\d{1,4})u")
_EVENT = re.compile(rb"\x1b\[([\d:]*)(?:;([\d:]*))?(?:;[\d:]*)?([A-Du])")


@dataclass(frozen=True, slots=True)
class Key:
    """``name``: a character (lower case), or ``up``, ``enter``, ``space``, ``escape``, ..."""

    name: str
    kind: Kind = "press"
    shift: bool = False
    ctrl: bool = False
    # Alt or the key of the window manager: not meant for this program.
    other: bool = False


def split_codes(data: bytes) -> tuple[list[bytes], bytes]:
    """Cut terminal input into key codes; an unfinished escape sequence is the rest."""
    codes: list[bytes] = []
    while data:
        size = _size(data)
        if size == 0:
            return codes, data
        codes.append(data[:size])
        data = data[size:]
    return codes, b""


def _size(data: bytes) -> int:
    """Bytes of the first code; 0 while it is not complete."""
    if data[:1] != b"\x1b":
        return 1
    if data[1:2] == b"":
        return 0
    if data[1:2] == b"O":
        return 3 if len(data) > 2 else 0
    if data[1:2] != b"[":
        return 1
    for i, byte in enumerate(data[2:_LONGEST], start=2):
        if 0x40 <= byte <= 0x7E:
            return i + 1
        if not 0x20 <= byte <= 0x3F:
            # No sequence has this: the escape stands alone.
            return 1
    return 0 if len(data) < _LONGEST else _LONGEST


def flags_told(code: bytes) -> int | None:
    """The modes that a terminal of the kitty protocol says it has; None for any other code."""
    told = _FLAGS.fullmatch(code)
    return int(told[1]) if told else None


def decode(code: bytes) -> Key | None:
    """The key of one code, None for what is none."""
    if len(code) == 1:
        return _plain(code[0])
    if len(code) == 3 and code[:2] == b"\x1bO":
        return Key(_ARROWS[code[2:]]) if code[2:] in _ARROWS else None
    event = _EVENT.fullmatch(code)
    if event is None:
        return None
    numbers, modifiers = (_numbers(part) for part in (event[1], event[2]))
    mods = max(0, (modifiers[0] if modifiers else 1) - 1)
    kind = _KINDS.get(modifiers[1] if len(modifiers) > 1 else 1)
    name = _ARROWS.get(event[3]) or _name(numbers)
    if kind is None or not name:
        return None
    other = bool(mods & (_ALT | _SUPER))
    return Key(name, kind, bool(mods & _SHIFT), bool(mods & _CTRL), other)


def _numbers(part: bytes | None) -> list[int]:
    return [int(n) if n else 0 for n in (part or b"").split(b":")] if part else []


def _name(numbers: list[int]) -> str:
    """Of a key's number; on a keyboard of other letters, that of the key at its place."""
    if not numbers:
        return ""
    code = numbers[0]
    if code > 126 and code not in _NAMED and len(numbers) > 2 and numbers[2]:
        code = numbers[2]
    if code in _NAMED:
        return _NAMED[code]
    return chr(code).lower() if 32 < code < 127 else ""


def _plain(byte: int) -> Key | None:
    if byte in _NAMED:
        return Key(_NAMED[byte])
    if byte in (3, 28):
        return Key("c" if byte == 3 else "\\", ctrl=True)
    if not 32 < byte < 127:
        return None
    character = chr(byte)
    return Key(character.lower(), shift=character.isupper())
