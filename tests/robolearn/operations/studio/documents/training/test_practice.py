"""What each version came to is told as far as it can be read."""

import json
from pathlib import Path

from robolearn.operations.practice.records import LINES, STANDING
from robolearn.operations.studio.documents.training.practice import practice_document
from robolearn.operations.studio.encoding import encode
from tests.robolearn.operations.practice.flights import TEST, practised


def test_versions_and_their_tests(tmp_path: Path):
    practised(tmp_path / "run")
    found = json.loads(encode(practice_document(tmp_path / "run")))
    assert found["problems"] == []
    assert [v["version"] for v in found["versions"]] == [None, 4, 7]
    assert found["tests"][0]["successes"] == TEST.successes
    assert found["worlds"] == ["toy"]


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
