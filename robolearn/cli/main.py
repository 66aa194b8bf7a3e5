"""Dispatches the console script ``robolearn``: a table of commands, each in a file of its own.

Nothing heavy is imported here, so that ``--help`` answers at once.
"""

from __future__ import annotations

import importlib
import os
import re
import select
import sys
from collections.abc import Collection

from robolearn.errors import RobolearnError, did_you_mean
from robolearn.machine.interrupt import remembered, stopped_by
from robolearn.machine.threads import prepare_numerics

COMMANDS: dict[str, tuple[str, str]] = {
    "data": ("robolearn.cli.data.commands", "import, list, check and repair episode stores"),
    "collect": (
        "robolearn.cli.collect",
        "record episodes: a person at a device, or the scripted expert",
    ),
    "teleoperate": (
        "robolearn.cli.teleoperate",
        "drive a world or a cell by a device; nothing is recorded",
    ),
    "replay": (
        "robolearn.cli.replay",
        "replay recorded actions open loop in a scene; report errors",
    ),
    "identify": ("robolearn.cli.identify", "find a scene's physics from recordings"),
    "capture": ("robolearn.cli.capture", "pictures and poses of a real cell, guided and checked"),
    "reconstruct": ("robolearn.cli.reconstruct", "make a scene of a real table from a capture"),
    "video": ("robolearn.cli.video", "videos of stored episodes, all cameras side by side"),
    "scene": ("robolearn.cli.scene", "check and render scene packages"),
    "train": ("robolearn.cli.learning.train", "train a policy from a store"),
    "finetune": (
        "robolearn.cli.learning.finetune",
        "let a trained policy practise; keep what it learned",
    ),
    "compose": (
        "robolearn.cli.learning.compose",
        "one policy of several, weighted on held-out conditions",
    ),
    "export-policy": (
        "robolearn.cli.learning.export_policy",
        "write a trained policy as an ONNX graph",
    ),
    "success": (
        "robolearn.cli.learning.success",
        "train a classifier of success from labelled pictures",
    ),
    "evaluate": (
        "robolearn.cli.evaluation.evaluate",
        "paired rollouts of policies over fixed conditions",
    ),
    "sweep": (
        "robolearn.cli.learning.sweep",
        "find settings by trying; report the choice on fresh trials",
    ),
    "suite": (
        "robolearn.cli.evaluation.suite",
        "draw, check and show suites of starting conditions",
    ),
    "compare": (
        "robolearn.cli.evaluation.compare",
        "policies side by side: effects, letters, conclusions",
    ),
    "trust": (
        "robolearn.cli.evaluation.trust",
        "how far a simulator may be trusted to order policies",
    ),
    "explain": (
        "robolearn.cli.evaluation.explain",
        "which parameter of a scene explains its gap to reality",
    ),
    "certify": (
        "robolearn.cli.evaluation.certify",
        "write down what was shown of a policy, for deploy to rely on",
    ),
    "trial": (
        "robolearn.cli.evaluation.trial",
        "blinded trials of several policies on a robot, in turns",
    ),
    "rank": (
        "robolearn.cli.evaluation.rank",
        "order policies by recordings alone; plan which to try next",
    ),
    "stats": (
        "robolearn.cli.evaluation.stats",
        "intervals, comparisons and plans of success rates",
    ),
    "studio": ("robolearn.cli.studio", "one local page over everything a lab keeps"),
    "lab": ("robolearn.cli.lab", "run the virtual lab (emulated robot, PyBullet physics)"),
    "servos": (
        "robolearn.cli.hardware.servos",
        "find, calibrate and release arms of serial servos",
    ),
    "deploy": (
        "robolearn.cli.deploy.command",
        "run a policy on a robot under the safety supervisor",
    ),
    "calibrate": ("robolearn.cli.calibrate.latency", "latencies of a robot cell, into its config"),
    "hardware": (
        "robolearn.cli.hardware.check",
        "check a robot cell: contract tests on the device",
    ),
    "serve": ("robolearn.cli.serve", "a policy over a websocket, for deploy --server"),
    "report": ("robolearn.cli.evaluation.report", "one self-contained HTML page from results"),
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
        "exit codes: 0 done, 2 you can fix it, 1 a bug in robolearn,\n"
        "130 stopped by Ctrl-C (or SIGTERM, SIGHUP).\n"
        "With --json errors are JSON on standard output, too: error, exit_code.\n"
    )


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in args
    args = [a for a in args if a != "--debug"]
    name = args[0] if args else ""
    try:
        with remembered():
            try:
                code = _command(args)
            except SystemExit:
                # Help that is still buffered would break where nobody handles it.
                sys.stdout.flush()
                raise
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        print(file=sys.stderr)
        text = f"robolearn: stopped by {stopped_by()}; everything committed so far is kept"
        _report(text, 130, args)
        return 130
    except Exception as error:
        if isinstance(error, BrokenPipeError) and _reader_gone():
            return 0
        if debug:
            raise
        text, code = _explain(error)
        _report(f"robolearn {name}: {_as_option(text, args)}", code, args)
        return code


def _report(text: str, code: int, args: list[str]) -> None:
    from robolearn.cli.shared.parse import report_error

    report_error(text, code, as_json="--json" in args)


def _command(args: list[str]) -> int:
    if not args or args[0] in ("-h", "--help"):
        print(usage(), end="", flush=True)
        return 0
    if args[0] == "--version":
        from robolearn import __version__

        print(__version__)
        return 0
    name = args[0]
    if name not in COMMANDS:
        near = did_you_mean(name, COMMANDS)
        known = ", ".join(COMMANDS)
        _report(f"robolearn: no command '{name}'.{near} Commands: {known}", 2, args)
        return 2
    prepare_numerics()
    module = importlib.import_module(COMMANDS[name][0])
    return int(module.main(args[1:]) or 0)


def _reader_gone() -> bool:
    """Whether it is standard output that broke (``| head``), not some device or process.

    What is still buffered then goes nowhere, or the interpreter would complain at its end.
    """
    try:
        out = sys.stdout.fileno()
    except (OSError, ValueError):
        return False
    watch = select.poll()
    watch.register(out, select.POLLOUT)
    if not any(event & select.POLLERR for _, event in watch.poll(0)):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), out)
    return True


def _explain(error: Exception) -> tuple[str, int]:
    """The line for an error, and the exit code."""
    if isinstance(error, RobolearnError):
        return str(error), 2
    if isinstance(error, OSError):
        return _os_error(error), 2
    if isinstance(error, ImportError) and _library(error):
        return _library(error), 2
    # torch on a CPU has no error of its own for it.
    if isinstance(error, MemoryError) or "can't allocate memory" in str(error):
        said = " ".join(str(error).split()) or type(error).__name__
        return (
            f"there is not that much memory ({said}); make what was asked for smaller (networks,"
            " batches, lanes, pictures), or stop other programs"
        ), 2
    renderer = os.environ.get("MUJOCO_GL", "")
    if renderer not in ("", "egl") and _raised_in(error, ("mujoco", "OpenGL")):
        # MuJoCo loads the renderer that this variable names when it is imported.
        return f"MUJOCO_GL is '{renderer}', which does not load ({error}); unset it, or use egl", 2
    bug = f"internal error: {type(error).__name__}: {error}"
    return f"{bug}\nThis is a bug; run again with --debug for the traceback.", 1


def _as_option(text: str, args: list[str]) -> str:
    """``text``, which begins with the option that was given where it begins with a parameter:
    operations say ``max_steps must be at least 1`` to whoever calls them. ``camera 'eye': ...``
    begins with a thing that is called something, and stays.
    """
    name = re.split(r"\W", text, maxsplit=1)[0]
    if text[len(name) :].startswith(" '"):
        return text
    option = f"--{name.replace('_', '-')}"
    given = any(word.partition("=")[0] == option for word in args)
    return option + text[len(name) :] if given else text


def _raised_in(error: Exception, packages: Collection[str]) -> bool:
    """Whether the innermost frame belongs to one of ``packages``."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    name = "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] in packages


# Debian and Ubuntu packages of the libraries that wheels expect of the system.
_PACKAGES = {
    "libGL": "libgl1",
    "libEGL": "libegl1",
    "libOSMesa": "libosmesa6",
    "libX11": "libx11-6",
}


def _library(error: ImportError) -> str:
    """What to do about a shared library that does not load; empty for any other import error."""
    found = re.search(r"(lib[\w+-]+)\.so[.\d]*", str(error))
    if not found:
        return ""
    package = _PACKAGES.get(found[1])
    how = f"apt-get install {package} (Debian, Ubuntu)" if package else "install the library"
    return f"a system library does not load ({error}): {how}, then run 'robolearn doctor'"


def _os_error(error: OSError) -> str:
    where = f" '{error.filename}'" if error.filename else ""
    what = error.strerror or str(error) or type(error).__name__
    return f"{what}{where}: check the path, its permissions and the free space"


if __name__ == "__main__":
    sys.exit(main())
