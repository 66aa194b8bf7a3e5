"""Strengths from preferences exist where the outcomes pin them down, and nowhere else."""

import itertools
import json
import math
import re

import numpy as np
import pytest
from scipy.optimize import linprog

from eval.statistics.preferences import Preference, bradley_terry
from robolearn.cli.main import main

TIES, APART, OVER, ANSWER = "every comparison was a tie", "never", "same group won", "no win was"


def outcomes(text: str) -> list[Preference]:
    """ "A>B*20 A=B*3": twenty wins of A over B, three ties."""
    found: list[Preference] = []
    for part in text.split():
        pair, _, count = part.partition("*")
        preference = Preference(pair[0], pair[2], 1.0 if pair[1] == ">" else 0.5)
        found += [preference] * int(count or 1)
    return found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("A=B*10", TIES),
        ("A=B", TIES),
        ("A>B", r"groups \{A\} and \{B\}.*same group won"),
        ("A>B*1000", OVER),
        ("A>B*20 A=B*3", ANSWER),
        ("A>B*20 B>C*20 A>C*20 A=B", OVER),
        ("A>B*5 B=C*5", OVER),
        ("A>B B>A C>D D>C", r"\{A, B\} and \{C, D\} were never compared with each other"),
        ("A>B B>A C=D", APART),
        ("A>B B>A C>D D>C A>C B>D", r"groups \{A, B\} and \{C, D\}"),
        ("A>B B>C C>A", ""),
        ("A>B B>C C>A A=B*9", ""),
        ("A=B*19 A>B B>A", ""),
        ("A>B B>A B=C*5", ""),
        # One win is answered by one tie: twice as far apart is as likely.
        ("A>B B=A", ANSWER),
        ("A>B B>C C=A", ""),
        ("A>B B>C C=D D=A", ANSWER),
    ],
)
def test_strengths_are_told_where_outcomes_pin_them_down(text, why):
    found = bradley_terry(outcomes(text))
    assert found.identified == (not why)
    values = [v for e in found.theta.values() for v in (e.value, e.low, e.high)]
    if why:
        assert re.search(why, found.note)
        assert all(map(math.isnan, [*values, found.nu]))
        assert {found.rating(name) for name in found.theta} == {None}
    else:
        assert max(map(abs, values)) < 20


def has_finite_estimate(preferences: list[Preference]) -> bool:
    """By linear programs: no direction raises some gap between terms of an outcome that came and
    another's while it lowers none (Albert and Anderson 1984, for Davidson's three outcomes).
    """
    names = sorted({n for p in preferences for n in (p.first, p.second)})
    ties = any(p.score == 0.5 for p in preferences)
    rows: list[np.ndarray] = []
    for p in preferences:
        half = np.zeros(len(names) + 1)
        half[names.index(p.first)], half[names.index(p.second)] = 0.5, -0.5
        terms = {1.0: half, 0.0: -half}
        if ties:
            terms[0.5] = np.eye(len(names) + 1)[-1]
        rows += [terms[p.score] - t for score, t in terms.items() if score != p.score]
    gaps = np.array(rows)
    best = linprog(-gaps.sum(axis=0), A_ub=-gaps, b_ub=np.zeros(len(gaps)), bounds=(-1, 1))
    # What leaves all gaps alone has to be the common shift.
    free = len(names) + ties - np.linalg.matrix_rank(gaps)
    return -best.fun < 1e-9 and free == 1


def test_the_condition_is_that_of_linear_programs():
    rng = np.random.default_rng(0)
    seen = {True: 0, False: 0}
    for _ in range(300):
        pairs = list(itertools.combinations("ABCD"[: rng.integers(2, 5)], 2))
        scores = (1.0, 0.0) if rng.random() < 0.3 else (1.0, 0.5, 0.0)
        preferences = [
            Preference(*pairs[rng.integers(len(pairs))], float(rng.choice(scores)))
            for _ in range(rng.integers(1, 9))
        ]
        expected = has_finite_estimate(preferences)
        assert bradley_terry(preferences).identified == expected, preferences
        seen[expected] += 1
    assert min(seen.values()) > 50


def test_a_table_of_judgements_says_what_is_not_known(tmp_path, capsys):
    path = tmp_path / "judged.csv"
    path.write_text("a,b,1\n" * 20 + "a,b,0.5\n" * 3)
    assert main(["stats", "preferences", str(path)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("strengths have no finite estimate: no win was answered by a loss")
    assert "rating" not in said
    assert main(["stats", "preferences", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["identified"], found["nu"]) == (False, None)
    assert found["theta"]["a"]["value"] is found["theta"]["a"]["low"] is None
