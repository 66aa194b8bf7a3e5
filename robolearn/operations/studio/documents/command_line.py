"""Writes commands of the console script as a person types them, for documents that show some."""

from __future__ import annotations

import shlex


def command_line(verb: str, *given: object, **options: object) -> str:
    """``robolearn VERB GIVEN ... OPTIONS ...``, quoted where a shell needs it.

    Of ``options`` underscores become hyphens; True is an option alone, a tuple several values after
    one option; None and False leave it out.
    """
    words: list[object] = ["robolearn", *verb.split(), *given]
    for name, value in options.items():
        if value is None or value is False:
            continue
        words.append("-" * 2 + name.replace("_", "-"))
        if isinstance(value, tuple):
            words += value
        elif value is not True:
            words.append(value)
    return shlex.join(str(w) for w in words)
