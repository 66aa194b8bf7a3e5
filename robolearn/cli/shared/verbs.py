"""Commands that have verbs of their own (``robolearn stats interval``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from robolearn.cli.shared.parse import report_error
from robolearn.errors import did_you_mean

# verb -> (arguments as a dataclass whose docstring is the help, what runs them)
Verbs = Mapping[str, tuple[type[Any], Callable[[list[str]], int]]]


def run_verb(group: str, title: str, verbs: Verbs, argv: list[str]) -> int:
    """Run ``robolearn GROUP VERB ...``; the help page without one; exit code 2 for a wrong one."""
    if not argv or argv[0] in ("-h", "--help"):
        width = max(len(name) for name in verbs)
        lines = [f"  {name:<{width}}  {kind.__doc__ or ''}" for name, (kind, _) in verbs.items()]
        print(
            f"usage: robolearn {group} VERB ...\n\n{title}\n\nverbs:\n"
            + "\n".join(lines)
            + f"\n\n'robolearn {group} VERB --help' explains a verb."
        )
        return 0
    if argv[0] not in verbs:
        text = (
            f"robolearn {group}: no verb '{argv[0]}'.{did_you_mean(argv[0], verbs)}"
            f" Verbs: {', '.join(verbs)}"
        )
        report_error(text, 2, as_json="--json" in argv)
        return 2
    return verbs[argv[0]][1](argv[1:])
