"""``robolearn hardware guide``: what it prints, and what ends it."""

from __future__ import annotations

import os

import pytest

from robolearn.cli.main import main
from robolearn.cli.shared import consent
from tests.robolearn.operations.cell.test_guide import FAKE

PLACE = "joints [0.0, 0.5, -0.5] rad; limits: 1.50 rad"


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "cell.yaml"
    path.write_text(FAKE)
    return str(path)


def test_it_says_where_the_arm_is_until_the_time_is_over(config, capsys):
    assert main(["hardware", "guide", "--config", config, "--yes", "--seconds", "0.2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:4] == ["freedrive: guide the arm; Enter ends it", PLACE, "the arm holds", PLACE]
    assert lines[4].startswith("  freedrive (value")


@pytest.mark.parametrize("typed", [b"\n", b""], ids=["enter", "end of the input"])
def test_enter_ends_it(config, capsys, monkeypatch, typed):
    theirs, ours = os.pipe()
    os.write(ours, typed)
    os.close(ours)
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(consent.sys, "stdin", stdin)
        assert main(["hardware", "guide", "--config", config, "--yes"]) == 0
    assert "the arm holds" in capsys.readouterr().out


def test_without_consent_the_arm_stays_stiff(config, capsys):
    assert main(["hardware", "guide", "--config", config, "--seconds", "-1"]) == 2
    assert "--seconds must be 0 or more, got -1" in capsys.readouterr().err
    assert main(["hardware", "guide", "--config", config]) == 2
    told = capsys.readouterr()
    assert "the arm gives way to your hand; hold it, and there is no terminal to ask" in told.err
    assert told.out == ""
