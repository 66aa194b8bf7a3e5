"""``robolearn studio DIR`` serves one page over everything that is kept under some folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from robolearn.cli.shared.page import serve_page
from robolearn.cli.shared.parse import parse


@dataclass(frozen=True, slots=True)
class Args:
    """One page over every store, run, evaluation, trial session, scene, capture and certificate
    under the folders, until Ctrl-C or SIGTERM. Nothing is copied, and nothing is changed but what
    you say about episodes. The token comes from ROBOLEARN_TOKEN; without one a new one is made.
    """

    # Folders to look into.
    folders: tyro.conf.Positional[tuple[Path, ...]]
    # Network address to listen on; other than loopback: with TLS, for who has the token.
    host: str = "127.0.0.1"
    # 0: any free port.
    port: int = 8730
    # Print one JSON document when ready and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Run the command."""
    args = parse(Args, argv, "studio", Args.__doc__ or "")
    serve_page(args.folders, args.host, args.port, as_json=args.json)
    return 0
