"""Preferences of blinded pairs: only votes of this plan count, and what cannot be known is said."""

import dataclasses
import json
import shutil
import sqlite3

import pytest

from eval.blinded import votes as votes_file
from eval.blinded.votes import add_vote, read_votes
from eval.rule import Rule
from eval.trials.table import read_trials
from robolearn.cli.main import main
from robolearn.errors import ConfigError, StoreCorruptError
from robolearn.operations.trial.options import DesignOptions
from robolearn.operations.trial.preferences import rank_by_preferences
from robolearn.operations.trial.report import trial_report, unblind, void_trial
from tests.robolearn.operations.trial.toy import STEPS, Life, Person, forget_count, live, plan_toy


def test_votes_of_another_plan_are_no_preferences_of_this_one(tmp_path):
    """Row numbers of two plans are alike: another folder's votes were ranked as if cast here."""
    trials = plan_toy(tmp_path / "a", trials=6, pairs=True)
    other = plan_toy(tmp_path / "b", trials=6, pairs=True, seed=5)
    assert live(other, Person(1), Life())
    assert live(trials, Person(0), Life(), at_most=8)
    begun = len(read_trials(trials.folder / "blind"))
    shutil.copy(other.folder / "votes.jsonl", trials.folder / "votes.jsonl")
    expected = f"line 1 is no vote.*cast under plan {other.locked.hash}, exp.*{trials.locked.hash}"
    person = Person()
    for read in (
        lambda: trial_report(trials.folder),
        lambda: unblind(trials.folder, reason="why not"),
        lambda: live(trials, person, Life()),
    ):
        with pytest.raises(StoreCorruptError, match=expected):
            read()
    assert (person.asked, len(read_trials(trials.folder / "blind"))) == ([], begun)
    # So are those that are exchanged after unblinding.
    shutil.rmtree(trials.folder)
    trials = plan_toy(trials.folder, trials=6, pairs=True)
    assert live(trials, Person(0), Life())
    unblind(trials.folder)
    shutil.copy(other.folder / "votes.jsonl", trials.folder / "votes.jsonl")
    with pytest.raises(StoreCorruptError, match="line 1 is no vote of this plan"):
        rank_by_preferences(trials.folder)


def test_preferences_that_are_cut_while_blinded_are_missed_and_not_asked_again(tmp_path):
    """The pair was asked about again, until the answer was the wanted one."""
    trials = plan_toy(tmp_path, trials=4, pairs=True)
    assert live(trials, Person(0), Life(), at_most=6)
    path, person = tmp_path / "votes.jsonl", Person(1)
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    for left in ("".join(lines[:2]), lines[0], whole[:-1], ""):
        path.write_text(left)
        count = left.count("\n")
        for read in (
            lambda: live(trials, person, Life()),
            lambda: trial_report(tmp_path),
            lambda: unblind(tmp_path, reason="why not"),
            lambda: void_trial(tmp_path, 1, "bumped"),
        ):
            with pytest.raises(StoreCorruptError, match=f"has {count} preferences, 3 were cast"):
                read()
    path.unlink()
    with pytest.raises(StoreCorruptError, match="has 0 preferences, 3 were cast: lines were taken"):
        live(trials, person, Life())
    assert not person.asked
    path.write_text(whole)
    assert live(trials, person, Life())
    assert len(person.asked) == 1
    assert trial_report(tmp_path).complete


def test_preferences_that_are_cast_anew_with_sound_digests_are_missed(tmp_path):
    trials = plan_toy(tmp_path, trials=4, pairs=True)
    assert live(trials, Person(0), Life())
    other = tmp_path / "forged"
    other.mkdir()
    for vote in read_votes(tmp_path):
        add_vote(other, dataclasses.replace(vote, better=vote.second))
    shutil.copy(other / "votes.jsonl", tmp_path)
    with pytest.raises(StoreCorruptError, match="line 1 is not the preference that was cast then"):
        trial_report(tmp_path)


@pytest.mark.parametrize("statement", ["DELETE FROM votes", "UPDATE votes SET digest = ''"])
def test_what_counts_preferences_does_not_change(tmp_path, statement):
    trials = plan_toy(tmp_path, trials=3, pairs=True)
    assert live(trials, Person(0), Life())
    with sqlite3.connect(tmp_path / "blind" / "trials.sqlite") as db:
        with pytest.raises(sqlite3.IntegrityError, match=r"never deleted|does not change"):
            db.execute(statement)
        db.execute("DROP TRIGGER votes_stay")
        db.execute("DELETE FROM votes WHERE id = 3")
    db.close()
    with pytest.raises(StoreCorruptError, match=r"lacks preferences .*\(2 of 3 are there\)"):
        trial_report(tmp_path)


def test_a_vote_that_was_written_but_not_counted_is_one(tmp_path, monkeypatch):
    """Its process died in between; so do trials of an earlier release go on."""
    trials = plan_toy(tmp_path, trials=4, pairs=True)
    with monkeypatch.context() as dying:
        dying.setattr(votes_file, "count_votes", lambda *_: None)
        assert live(trials, Person(0), Life(), at_most=6)
    assert live(trials, Person(0), Life())
    path = tmp_path / "votes.jsonl"
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:3]))
    with pytest.raises(StoreCorruptError, match="has 3 preferences, 4 were cast"):
        trial_report(tmp_path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"block": 99}, "the plan has no pair 99"),
        ({"block": 3}, "pair 3 is planned as"),
        ({"rows": (5, 99)}, "about the trials 5 and 99, the table has 6"),
        ({"rows": (0, 4)}, "about the trials 0 and 4"),
        ({"rows": (1, 2)}, "slots of pair 2 are 3 and 4, its trials 1 and 2 are of 1 and 2"),
        ({"rows": (4, 3)}, "its trials 4 and 3 are of 4 and 3"),
    ],
)
def test_a_vote_is_about_the_two_trials_of_its_pair(tmp_path, changed, said):
    trials = plan_toy(tmp_path, trials=3, pairs=True)
    assert live(trials, Person(), Life())
    second = read_votes(tmp_path)[1]
    (tmp_path / "votes.jsonl").unlink()
    forget_count(tmp_path)
    add_vote(tmp_path, dataclasses.replace(second, **changed))
    with pytest.raises(StoreCorruptError, match=said):
        trial_report(tmp_path)


def test_aliases_of_a_vote_are_those_of_its_pair(tmp_path):
    trials = plan_toy(tmp_path, trials=3, pairs=True)
    assert live(trials, Person(), Life())
    vote = read_votes(tmp_path)[0]
    (tmp_path / "votes.jsonl").unlink()
    forget_count(tmp_path)
    add_vote(tmp_path, dataclasses.replace(vote, first=vote.second, second=vote.first))
    with pytest.raises(StoreCorruptError, match=f"the vote is about {vote.second} and"):
        trial_report(tmp_path)


def test_a_ranking_says_who_was_not_compared_and_that_the_plan_was_not_done(tmp_path, capsys):
    """A policy without a vote vanished, and an early end was not told."""
    trials = plan_toy(tmp_path, trials=6, pairs=True)
    assert live(trials, Person(0), Life(), at_most=3)
    unblind(tmp_path, reason="impatient")
    found = rank_by_preferences(tmp_path)
    compared = {p.policy for p in found.policies}
    assert (len(compared), set(found.without)) == (2, set(STEPS) - compared)
    assert (found.complete, found.identified) == (False, False)
    said = "\n".join(found.lines)
    assert f"  {found.without[0]}: nobody compared it" in said
    assert "done (impatient): 9 of 12 trials are left; exploratory" in said
    # One win: neither strength nor rating, as only the ridge would make them.
    assert "strengths have no finite estimate" in said
    assert "rating" not in said
    assert main(["compare", "--preferences", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert {(p["strength"]["value"], p["rating"]) for p in told["policies"]} == {(None, None)}
    assert (told["complete"], told["reason"]) == (False, "impatient")


class Turns(Person):
    """Prefers the second trial and the first one in turns."""

    def choose(self, question, answers):
        self.asked.append(question)
        return len(self.asked) % 2


def test_a_repeated_pair_is_the_same_two_the_other_way_round_and_no_further_comparison(tmp_path):
    """It met two others, so that hardly any policy repeated what it had tried."""
    trials = plan_toy(tmp_path, trials=6, repeats=4, pairs=True)
    slots = trials.locked.plan.slots
    tried = {(s.condition, s.repetition): [] for s in slots}
    for s in slots:
        tried[s.condition, s.repetition].append(s.alias)
    again = [(tried[c, 0], names) for (c, repetition), names in tried.items() if repetition]
    assert [names for _, names in again] == [first[::-1] for first, _ in again]
    assert len(again) == 4
    # Always the first one: a repetition, the other way round, comes out otherwise.
    assert live(trials, Person(0), Life())
    unblind(tmp_path)
    found = rank_by_preferences(tmp_path)
    assert (found.comparisons, found.repeated, found.alike) == (6, 4, 0)
    assert "4 repeated comparisons are left out; 0 came out as the first time" in found.lines


def test_options_that_preferences_do_not_know_are_refused(tmp_path, capsys):
    trials = plan_toy(tmp_path, trials=12, pairs=True)
    assert live(trials, Turns(), Life())
    unblind(tmp_path)
    words = ["compare", "--preferences", str(tmp_path)]
    for more, said in (
        (("--common", "--group", "x=a,b"), "--group, --common: "),
        (("--margin", "0.1", "--question", "equivalence"), "--margin, --question: "),
        (("--by", "score", "--rule", "fixed", "--n-max", "3"), "--by, --rule, --n-max: "),
        (("--mixed", "--out", str(tmp_path / "page.md")), "--mixed, --out: "),
        (("--alpha", "1.5"), "--alpha"),
    ):
        assert main([*words, *more]) == 2
        assert said in capsys.readouterr().err
    assert main([*words[:1], str(tmp_path), *words[1:]]) == 2
    assert "leave out the results" in capsys.readouterr().err
    widths: list[float] = []
    for alpha in ("0.05", "0.001"):
        assert main([*words, "--alpha", alpha, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["complete"]
        assert found["identified"], found["note"]
        assert found["level"] == pytest.approx(1 - float(alpha))
        strength = found["policies"][0]["strength"]
        widths.append(strength["high"] - strength["low"])
    assert widths[1] > 1.5 * widths[0]
    assert main([*words, "--alpha", "0.001"]) == 0
    assert "99.9 % intervals" in capsys.readouterr().out


def test_pairs_have_no_sequential_rule(tmp_path, capsys):
    with pytest.raises(ConfigError, match="a sequential rule would decide nothing there"):
        DesignOptions(pairs=True, rule=Rule(kind="sequential"))
    words = ["trial", "--out", str(tmp_path / "o"), "--ab", "--rule", "sequential", "--yes"]
    assert main(words) == 2
    assert "leave out the sequential rule, or the pairs" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
