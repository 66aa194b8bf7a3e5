import contextlib
import json
import subprocess
import sys
import types

import pytest

from robolearn.cli import main as cli
from robolearn.cli.main import COMMANDS, main, usage
from robolearn.cli.shared.parse import print_json, progress, say
from robolearn.errors import ConfigError

HEAVY = ("torch", "diffusers", "zarr", "mujoco", "pybullet", "scipy", "matplotlib", "cv2", "numpy")


def test_help_lists_every_command(capsys):
    assert main(["--help"]) == 0
    assert main([]) == 0
    text = capsys.readouterr().out
    for name in COMMANDS:
        assert f"  {name} " in text
    assert "exit codes: 0 done, 2 you can fix it, 1 a bug" in usage()


def test_version(capsys):
    from robolearn import __version__

    assert main(["--version"]) == 0
    assert capsys.readouterr().out.strip() == __version__


def test_unknown_commands_suggest_the_nearest(capsys):
    assert main(["colect"]) == 2
    text = capsys.readouterr().err
    assert "no command 'colect'. Did you mean 'collect'?" in text
    assert len(text.strip().splitlines()) == 1


def imported_by(*arguments):
    code = (
        "import sys; from robolearn.cli.main import main\n"
        f"try:\n  code = main({list(arguments)!r})\n"
        "except SystemExit as error:\n  code = error.code\n"
        f"print(code, *(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    return result.stderr.strip().splitlines()[-1].split()


def test_the_package_is_the_command_too(tmp_path):
    """From any folder, with the exit code of the command."""
    called = [sys.executable, "-m", "robolearn", "colect"]
    result = subprocess.run(called, capture_output=True, text=True, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (2, "")
    assert "no command 'colect'. Did you mean 'collect'?" in result.stderr


def test_help_imports_nothing_heavy():
    assert imported_by("--help") == ["0"]


@pytest.mark.parametrize("command", ["collect", "doctor"])
def test_help_of_commands_imports_nothing_heavy(command):
    code, *heavy = imported_by(command, "--help")
    assert code == "0"
    assert set(heavy) <= {"numpy"}


class Failing(types.ModuleType):
    def __init__(self, error):
        super().__init__("failing")
        self.error = error

    def main(self, argv):
        raise self.error


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("key 'x' is missing"), 2, "robolearn data: key 'x' is missing"),
        (PermissionError(13, "Permission denied", "/x"), 2, "Permission denied '/x': check"),
        (OSError("odd"), 2, "odd"),
        (RuntimeError("can't allocate memory: you tried"), 2, "not that much memory (can't alloc"),
        (MemoryError(), 2, "not that much memory (MemoryError); make what was asked for smaller"),
        (ZeroDivisionError("oops"), 1, "internal error: ZeroDivisionError: oops"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C; everything committed so far is kept"),
        (BrokenPipeError(), 2, "BrokenPipeError: check"),
        (
            ImportError("libGL.so.1: cannot open shared object file: No such file or directory"),
            2,
            "file or directory): apt-get install libgl1 (Debian, Ubuntu), then run",
        ),
        (ImportError("cannot import name 'x' from 'y'"), 1, "internal error: ImportError"),
    ],
)
def test_errors_become_one_line_and_an_exit_code(monkeypatch, capsys, error, code, text):
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Failing(error))
    assert main(["data"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert "Traceback" not in err


def test_a_parameter_is_called_as_it_was_typed(monkeypatch, capsys):
    error = ConfigError("max_steps must be at least 1, got 0")
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Failing(error))
    for words in (["--max-steps", "0"], ["--max-steps=0", "--json"]):
        assert main(["data", *words]) == 2
        assert "robolearn data: --max-steps must be at least 1" in capsys.readouterr().err
    # Whoever did not give the option, in a file for instance, reads the name there.
    assert main(["data", "--steps", "0"]) == 2
    assert "robolearn data: max_steps must be" in capsys.readouterr().err


@pytest.mark.parametrize("error", [ConfigError("x"), OSError("x"), ZeroDivisionError("x")])
def test_debug_shows_the_traceback(monkeypatch, error):
    monkeypatch.setattr(cli.importlib, "import_module", lambda name: Failing(error))
    with pytest.raises(type(error)):
        main(["--debug", "data"])


def test_bad_arguments_exit_with_2(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["doctor", "--jsn"])
    assert exit_.value.code == 2
    assert "--json" in capsys.readouterr().err


def test_json_takes_arrays_and_paths(capsys):
    import numpy as np

    print_json({"a": np.arange(2), "b": np.float64(0.5), "c": sys})
    assert '"a": [\n    0,\n    1\n  ]' in capsys.readouterr().out
    say("x", quiet=True)
    with progress("work", 2, quiet=True) as advance:
        advance(1, "half")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (["trian"], 2, "no command 'trian'"),
        (["data", "lsx"], 2, "no verb 'lsx'"),
        (["collect", "--out", "x", "--evn", "y"], 2, "Unrecognized"),
        (["collect", "--out", "x"], 2, "--config configs/collect/FILE.yaml or --env WORLD"),
    ],
)
def test_with_json_errors_are_documents_too(capsys, words, code, text):
    try:
        ended = main([*words, "--json"])
    except SystemExit as error:
        ended = error.code
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert ended == document["exit_code"] == code
    assert text in document["error"]
    assert document["error"] in err
    with contextlib.suppress(SystemExit):
        main(words)
    assert not capsys.readouterr().out, "without --json the text alone"


def test_with_json_ctrl_c_is_a_document_too(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "robolearn.cli.collect", Failing(KeyboardInterrupt()))
    assert main(["collect", "--json"]) == 130
    assert json.loads(capsys.readouterr().out)["exit_code"] == 130
    assert "130 stopped by Ctrl-C" in usage()


@pytest.mark.parametrize("command", ["compare", "compose", "collect", "train", "video"])
def test_help_speaks_of_options_not_of_the_parser(capsys, command):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    page = capsys.readouterr().out
    for odd in ("[[", "...]]", "{None}", "None)", "(default: )", "default: '')"):
        assert odd not in page
    widths = {len(line) for line in page.splitlines() if line.startswith(("│", "╭", "╰"))}
    assert len(widths) <= 1, "boxes stay whole where they are drawn"


def test_a_level_of_logging_that_is_none_is_no_bug(monkeypatch, capsys):
    monkeypatch.setenv("ROBOLEARN_LOG", "loud")
    assert main(["data", "ls", "nowhere"]) == 2
    assert "ROBOLEARN_LOG is 'LOUD'" in capsys.readouterr().err
