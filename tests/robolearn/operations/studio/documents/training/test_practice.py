"""What each version came to is told as far as it can be read."""

import dataclasses
import json
from pathlib import Path

from robolearn.operations.practice.records import LINES, STANDING, read_standing, write_standing
from robolearn.operations.studio.documents.training.practice import (
    PracticeOutcome,
    practice_document,
)
from robolearn.operations.studio.documents.training.run import run_document
from robolearn.operations.studio.encoding import encode
from tests.robolearn.operations.practice.flights import TEST, practised


def test_versions_and_their_tests(tmp_path: Path):
    practised(tmp_path / "run")
    found = json.loads(encode(practice_document(tmp_path / "run")))
    assert found["problems"] == []
    assert [v["version"] for v in found["versions"]] == [None, 4, 7]
    assert found["tests"][0]["successes"] == TEST.successes
    assert found["worlds"] == ["toy"]


def test_why_it_was_over_is_told(tmp_path: Path):
    practised(tmp_path)
    assert run_document(tmp_path).outcome is None
    why = "the parent is clearly better; version 7 solves 3 of 20 held-out starts, the parent 12"
    result = {"ended": why, "kept": "tested", "sound": False, "regret": 4, "dip": 6}
    standing = read_standing(tmp_path)
    assert standing is not None
    write_standing(tmp_path, dataclasses.replace(standing, result=result))
    cost = "Practising cost 4 success(es) beside the parent on the same starts; it had cost 6 at"
    sentences = (
        f"Over: {why}.",
        "The run holds the best version that was tested, not the last one.",
        f"{cost} most.",
    )
    assert run_document(tmp_path).outcome == PracticeOutcome(sentences, sound=False)
    # What an earlier version left out, or somebody else wrote.
    odd = {"ended": "12 episodes were practised", "kept": "all of it", "dip": "6"}
    write_standing(tmp_path, dataclasses.replace(standing, result=odd))
    said = ("Over: 12 episodes were practised.",)
    assert run_document(tmp_path).outcome == PracticeOutcome(said, sound=True)
    (tmp_path / STANDING).write_text("{")
    assert run_document(tmp_path).outcome is None


def test_one_damaged_part_leaves_the_other(tmp_path: Path):
    practised(tmp_path)
    (tmp_path / STANDING).write_text("{")
    found = practice_document(tmp_path)
    assert len(found.versions) == 3
    assert [p.where for p in found.problems] == ["tests"]
    practised(tmp_path)
    (tmp_path / LINES).write_text("[]\n")
    found = practice_document(tmp_path)
    assert (found.versions, found.tests) == ((), (TEST,))
    assert "line 1" in found.problems[0].words
    assert "not there any more" in practice_document(tmp_path / "gone").problems[0].words
