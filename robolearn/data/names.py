"""Says which names of policies, tasks and worlds can be shown: they come from people, from files of
others, and from servers that say themselves what they are called.
"""

from __future__ import annotations

import unicodedata

# Classes of characters that set the direction of those that follow (Unicode, annex 9).
_TURNS = frozenset(("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"))
# They end a line for programs that split text, as a line feed does.
_BREAKS = frozenset("\u2028\u2029")


def steering(text: str) -> str:
    """The first character of ``text`` that steers a terminal, ends a line, or turns round what
    follows it, as ``U+202E``; nobody sees them in a table. "": none.
    """
    # As nearly every text is: a table of trials has thousands of names.
    if text.isprintable():
        return ""
    return next((f"U+{ord(c):04X}" for c in text if _steers(c)), "")


def plain_name(text: str) -> str:
    """``text`` with one way of writing each letter, and single spaces between words.

    :class:`ValueError`, to go on after what it is about, for one that is empty or cannot be shown.
    """
    # The same letters may be written by different code points.
    name = " ".join(unicodedata.normalize("NFC", text).split())
    if not name:
        raise ValueError("is empty; expected a name")
    found = steering(name)
    if found:
        raise ValueError(
            f"has the control character {found} in it; expected a name of letters that can be seen"
        )
    return name


def shown(text: str) -> str:
    """``text`` with characters that steer written out; line feeds and tabs stay."""
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode("ascii") if c not in "\n\t" and _steers(c) else c
        for c in text
    )


def _steers(c: str) -> bool:
    return (
        unicodedata.category(c) in ("Cc", "Cs")
        or unicodedata.bidirectional(c) in _TURNS
        or c in _BREAKS
    )
