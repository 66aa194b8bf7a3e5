"""Programs of tests: a process of its own that calls a function of a module of tests."""

import sys


def program(module: str, function: str) -> list[str]:
    """The beginning of a command that calls the function with the words that follow.

    Not ``python -m MODULE``: each process that such a program spawns (a supervisor, a policy)
    imports its main module again, with all that it imports, which takes seconds.
    """
    call = f"import sys; from {module} import {function}; sys.exit({function}(sys.argv[1:]))"
    return [sys.executable, "-c", call]
