"""The console script ``robolearn``: a table of commands, each in a file of its own.

Nothing heavy is imported here, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import sys

from robolearn.errors import RobolearnError, did_you_mean

COMMANDS: dict[str, tuple[str, str]] = {
    "data": ("robolearn.cli.data", "import, list, check and repair episode stores"),
    "collect": ("robolearn.cli.collect", "record episodes: browser, keyboard or scripted operator"),
    "replay": (
        "robolearn.cli.replay",
        "replay recorded actions open loop in a scene; report errors",
    ),
    "identify": ("robolearn.cli.identify", "find a scene's physics from recordings"),
    "scene": ("robolearn.cli.scene", "check and render scene packages"),
    "train": ("robolearn.cli.train", "train a policy from a store"),
    "evaluate": ("robolearn.cli.evaluate", "paired rollouts of policies over fixed conditions"),
    "lab": ("robolearn.cli.lab", "run the virtual lab (emulated robot, PyBullet physics)"),
    "deploy": ("robolearn.cli.deploy", "run a policy on a robot under the safety supervisor"),
    "report": ("robolearn.cli.report", "one self-contained HTML page from results"),
    "demo": ("robolearn.cli.demo", "the whole chain on real human data"),
    "doctor": ("robolearn.cli.doctor", "check this machine: libraries, ports, permissions"),
}


def usage() -> str:
    """The top-level help page."""
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:<{width}}  {text}" for name, (_, text) in COMMANDS.items()]
    return (
        "usage: robolearn [--debug] COMMAND ...\n\n"
        "Robot learning from demonstration to deployment.\n\ncommands:\n"
        + "\n".join(lines)
        + "\n\n'robolearn COMMAND --help' explains a command. --debug shows tracebacks.\n"
        "exit codes: 0 done, 2 you can fix it, 1 a bug in robolearn.\n"
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    if not args or args[0] in ("-h", "--help"):
        print(usage(), end="")
        return 0
    if args[0] == "--version":
        from robolearn import __version__

        print(__version__)
        return 0
    name = args[0]
    if name not in COMMANDS:
        print(
            f"robolearn: no command '{name}'.{did_you_mean(name, COMMANDS)}"
            f" Commands: {', '.join(COMMANDS)}",
            file=sys.stderr,
        )
        return 2
    # Two torch threads beside a busy core are 7-22x slower with spinning barriers; this must be
    # set before torch is imported (see docs/results.md).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        module = importlib.import_module(COMMANDS[name][0])
        return int(module.main(args[1:]) or 0)
    except KeyboardInterrupt:
        print(
            "\nrobolearn: stopped by Ctrl-C; everything committed so far is kept", file=sys.stderr
        )
        return 130
    except RobolearnError as error:
        if debug:
            raise
        print(f"robolearn {name}: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        return 0
    except OSError as error:
        if debug:
            raise
        print(f"robolearn {name}: {_os_error(error)}", file=sys.stderr)
        return 2
    except Exception as error:
        if debug:
            raise
        print(
            f"robolearn {name}: internal error: {type(error).__name__}: {error}\n"
            "This is a bug; run again with --debug for the traceback.",
            file=sys.stderr,
        )
        return 1


def _os_error(error: OSError) -> str:
    where = f" '{error.filename}'" if error.filename else ""
    return f"{error.strerror or error}{where}: check the path, its permissions and the free space"


if __name__ == "__main__":
    sys.exit(main())
