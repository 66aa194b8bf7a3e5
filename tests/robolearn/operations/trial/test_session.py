"""Sessions of blinded trials that die at every write: nothing lost, nothing twice, order kept."""

import shutil

import pytest

from eval.blinded.queue import counted, standing
from eval.blinded.votes import read_votes
from eval.trials.table import read_trials
from robolearn.cli.main import main as robolearn
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import (
    CameraError,
    ClockError,
    ConfigError,
    DataError,
    InferenceError,
    LinkStopError,
    RemoteError,
    SafetyStopError,
    StoreCorruptError,
    StoreError,
)
from robolearn.operations.compare import compare
from robolearn.operations.deploy import trials as rows_of_trials
from robolearn.operations.trial import session as sessions
from robolearn.operations.trial.preferences import rank_by_preferences
from robolearn.operations.trial.report import trial_report, unblind, void_trial
from robolearn.operations.trial.successor import require_rows
from tests.mocks import Listener
from tests.robolearn.operations.trial.toy import (
    ERRORS,
    STEPS,
    Life,
    Person,
    PointStage,
    live,
    plan_toy,
)


def told_once(trials, person):
    """Every slot has one trial that counts, in the plan's order, with an episode of its own."""
    rows = read_trials(trials.folder / "blind")
    now = standing(trials.locked, rows)
    assert now.left == 0
    kept = counted(now, rows)
    assert [r.slot for r in kept] == [s.number for s in trials.locked.plan.slots]
    store = EpisodeStore.open(trials.folder / "store")
    assert len({r.episode for r in kept}) == len(kept)
    assert {r.episode for r in kept} <= set(store.ids())
    assert all(r.standard_errors == ERRORS and r.achieved for r in kept)
    assert not any(name in " ".join(person.heard) for name in STEPS)
    return [(r.slot, r.alias, r.condition, r.success, round(r.score, 9), r.steps) for r in kept]


@pytest.mark.parametrize("after", [False, True])
def test_a_session_that_dies_at_every_write_goes_on(tmp_path, after):
    trials, person = plan_toy(tmp_path, trials=2), Person()
    alone, life = plan_toy(tmp_path / "alone", trials=2), Life()
    assert live(alone, Person(), life)
    assert life.writes == 3 * len(alone.locked.plan.slots)
    deaths = 0
    while not live(trials, person, Life(deaths % 4, after)):
        deaths += 1
        assert deaths < 5 * life.writes
    assert deaths > 6
    assert told_once(trials, person) == told_once(alone, Person())


class FullDisk(Life):
    """From the write number ``left`` on nothing can be written any more."""

    def write(self, act):
        self.writes += 1
        if self.left is not None and self.writes > self.left:
            raise StoreError("the disk is full")
        return act()


def test_a_disk_that_is_full_at_any_write_costs_no_trial_and_repeats_none(tmp_path):
    trials, person = plan_toy(tmp_path, trials=2), Person()
    alone = plan_toy(tmp_path / "alone", trials=2)
    assert live(alone, Person(), Life())
    for left in (0, 1, 2, 3, 4, 1, 2, 0):
        with pytest.raises(StoreError, match="disk is full"):
            live(trials, person, FullDisk(left))
    assert live(trials, person, Life())
    assert told_once(trials, person) == told_once(alone, Person())
    # What never came to an end is no failure of a policy.
    assert {r.status for r in read_trials(tmp_path / "blind")} == {"finished", "voided"}


def test_a_plan_that_is_edited_while_a_session_runs_stops_the_next_one(tmp_path):
    trials = plan_toy(tmp_path, trials=2)
    assert live(trials, Person(), Life(), at_most=2)
    path = tmp_path / "plan.yaml"
    before = path.read_text()
    path.write_text(before.replace("max_steps: 8", "max_steps: 9"))
    # The session that runs holds to what it read; whoever comes after it is refused.
    assert live(trials, Person(), Life(), at_most=1)
    for look in (trial_report, unblind, lambda folder: void_trial(folder, 1, "bumped")):
        with pytest.raises(ConfigError, match="was edited"):
            look(tmp_path)
    # Another plan with a hash of its own does not explain these trials.
    other = plan_toy(tmp_path / "other", trials=2, seed=1)
    path.write_text((other.folder / "plan.yaml").read_text())
    with pytest.raises(DataError, match="run under plan"):
        trial_report(tmp_path)
    path.write_text(before)
    assert trial_report(tmp_path).done == 3


def test_pairs_are_compared_once_whenever_the_process_dies(tmp_path):
    trials, person, deaths = plan_toy(tmp_path, trials=3, pairs=True), Person(1), 0
    while not live(trials, person, Life(2 + deaths % 5)):
        deaths += 1
        assert deaths < 40
    assert deaths
    votes = read_votes(tmp_path)
    assert [v.block for v in votes] == [1, 2, 3]
    assert all(v.better == v.second for v in votes)
    assert trial_report(tmp_path).complete
    unblind(tmp_path)
    ranking = rank_by_preferences(tmp_path)
    assert {p.policy for p in ranking.policies} == set(STEPS)
    assert ranking.comparisons == 3


def test_preferences_that_are_taken_away_after_unblinding_are_missed(tmp_path):
    """A line says what was before it, and nothing about the last ones: the ranking went on with
    the rest.
    """
    trials = plan_toy(tmp_path, trials=3, pairs=True)
    assert live(trials, Person(1), Life())
    unblind(tmp_path)
    path = tmp_path / "votes.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    for left in (lines[:2], []):
        path.write_text("".join(left))
        for again in (rank_by_preferences, unblind):
            with pytest.raises(
                StoreCorruptError, match=f"has {len(left)} preferences, 3 were cast"
            ):
                again(tmp_path)
    path.write_text("".join(lines))
    assert rank_by_preferences(tmp_path).comparisons == 3
    shutil.rmtree(tmp_path / "blind")
    with pytest.raises(StoreCorruptError, match=r"line 1 is no vote of this plan.*the table has 0"):
        rank_by_preferences(tmp_path)


def test_results_are_told_when_all_trials_are_done(tmp_path, capsys):
    trials = plan_toy(tmp_path, trials=4, repeats=2)
    assert live(trials, Person(), Life(), at_most=5)
    assert "success" not in " ".join(trial_report(tmp_path).lines)
    with pytest.raises(ConfigError, match="13 of 18 trials are left"):
        unblind(tmp_path)
    assert void_trial(tmp_path, 2, "the table was bumped") == 1
    assert live(trials, Person(), Life())
    report = trial_report(tmp_path)
    assert (report.complete, report.voided) == (True, {"the table was bumped": 1})
    named = unblind(tmp_path)
    assert unblind(tmp_path).trials == named.trials == read_trials(tmp_path)
    assert {r.policy for r in named.trials} == set(STEPS)
    fast = [r.success for r in named.trials if r.policy == "fast" and r.status == "finished"]
    assert fast == [True] * 6
    (world,) = compare([tmp_path]).worlds
    assert {e.name for e in world.entries} == set(STEPS)
    assert all(s.planned for s in compare([tmp_path]).standings)
    with pytest.raises(ConfigError, match="were unblinded"):
        void_trial(tmp_path, 3, "late")
    assert robolearn(["trial", "report", str(tmp_path), "--json"]) == 0
    assert not any(name in capsys.readouterr().out for name in STEPS)


def test_a_clock_that_was_set_back_is_refused(tmp_path, monkeypatch):
    trials = plan_toy(tmp_path)
    assert live(trials, Person(), Life(), at_most=1)
    monkeypatch.setattr(sessions, "utc_now", lambda: "2020-01-01T00:00:00.000+00:00")
    with pytest.raises(ClockError, match="set the clock"):
        live(trials, Person(), Life())


@pytest.mark.parametrize("pairs", [False, True])
def test_a_trial_under_a_clock_that_was_ahead_is_voided_and_the_plan_goes_on(
    tmp_path, monkeypatch, pairs
):
    trials = plan_toy(tmp_path, pairs=pairs)
    assert live(trials, Person(), Life(), at_most=3)
    with monkeypatch.context() as ahead:
        for module in (sessions, rows_of_trials):
            ahead.setattr(module, "utc_now", lambda: "2131-01-01T00:00:00.000+00:00")
        assert live(trials, Person(), Life(), at_most=1)
    wrong = read_trials(tmp_path / "blind")[3].slot
    with pytest.raises(ClockError, match="void that trial"):
        live(trials, Person(), Life())
    with pytest.raises(ConfigError, match="void that trial first"):
        void_trial(tmp_path, 1, "bumped")
    assert void_trial(tmp_path, wrong, "the clock was ahead") == (2 if pairs else 1)
    assert void_trial(tmp_path, 1, "bumped") == (2 if pairs else 1)
    assert live(trials, Person(), Life())
    assert trial_report(tmp_path).complete
    rows = read_trials(tmp_path / "blind")
    assert len(rows) == len(trials.locked.plan.slots) + (4 if pairs else 2)
    assert [r.slot for r in rows[-(4 if pairs else 2) :]] == ([3, 4, 1, 2] if pairs else [4, 1])


@pytest.mark.parametrize("pairs", [False, True])
def test_one_that_died_under_a_clock_that_was_ahead_blocks_nothing(tmp_path, monkeypatch, pairs):
    """Its row is voided by whoever comes next; nobody can void it a second time."""
    trials = plan_toy(tmp_path, pairs=pairs)
    assert live(trials, Person(), Life(), at_most=3)
    with monkeypatch.context() as ahead:
        for module in (sessions, rows_of_trials):
            ahead.setattr(module, "utc_now", lambda: "2131-01-01T00:00:00.000+00:00")
        # The process dies in the middle of the fourth trial.
        assert not live(trials, Person(), Life(1), at_most=1)
    assert live(trials, Person(), Life(), at_most=0)
    rows = read_trials(tmp_path / "blind")
    assert (rows[3].status, rows[3].started[:4]) == ("voided", "2131")
    # In pairs: the partner of the one that died.
    assert void_trial(tmp_path, 3, "bumped") == 1
    assert trial_report(tmp_path).done == 2
    assert live(trials, Person(), Life())
    assert trial_report(tmp_path).complete
    assert len(read_trials(tmp_path / "blind")) == len(trials.locked.plan.slots) + 2


def test_a_rubric_is_asked_once_also_after_a_death(tmp_path):
    rubric = ("touched", "in place")
    trials = plan_toy(tmp_path, trials=1, score="rubric", rubric=rubric)
    person = Person(1)
    # The episode of the first trial is committed, its row is not.
    assert not live(trials, person, Life(2))
    assert live(trials, person, Life())
    rows = read_trials(tmp_path / "blind")
    assert [(r.score, r.success) for r in rows] == [(0.5, False)] * 3
    assert {r.metrics["rubric_progress"] for r in rows} == {0.5}
    assert len(person.asked) == 4


@pytest.mark.parametrize(("act", "told"), [("void", 1), ("unblind", 2)])
def test_a_trial_that_was_saved_before_its_process_died_counts_for_every_command(
    tmp_path, caplog, act, told
):
    """It did not for those that run no trials: its row was ended as one of which nothing is known,
    and the slot was tried again.
    """
    trials = plan_toy(tmp_path, trials=2)
    # Three writes a trial; the second episode is committed, its row is not.
    assert not live(trials, Person(), Life(5))
    if act == "void":
        assert void_trial(tmp_path, 1, "bumped") == 1
    else:
        assert len(unblind(tmp_path, reason="curious").trials) == 2
    assert "slot 2: the trial had ended when its process died" in caplog.text
    assert trial_report(tmp_path).done == told
    saved = read_trials(tmp_path / "blind")[1]
    assert (saved.status, saved.slot) == ("finished", 2)
    assert saved.episode in EpisodeStore.open(tmp_path / "store").ids()
    if act == "void":
        assert live(trials, Person(), Life())
        assert [r.slot for r in read_trials(tmp_path / "blind")] == [1, 2, 3, 4, 5, 6, 1]


def test_the_trial_that_was_saved_may_be_the_one_to_void(tmp_path):
    trials = plan_toy(tmp_path, trials=1)
    assert not live(trials, Person(), Life(2))
    assert void_trial(tmp_path, 1, "bumped") == 1
    assert live(trials, Person(), Life())
    assert [r.slot for r in read_trials(tmp_path / "blind")] == [1, 2, 3, 1]


def test_nobody_is_asked_about_a_saved_trial_where_nobody_is(tmp_path):
    trials = plan_toy(tmp_path, trials=1, score="rubric", rubric=("touched", "in place"))
    assert not live(trials, Person(), Life(2))
    for act in (lambda: void_trial(tmp_path, 1, "bumped"), lambda: unblind(tmp_path, reason="x")):
        with pytest.raises(ConfigError, match=r"how far did it come.*: go on with the"):
            act()
    assert live(trials, Person(2), Life())
    assert [r.success for r in read_trials(tmp_path / "blind")] == [True] * 3


@pytest.mark.parametrize(
    ("error", "counts"),
    [
        (CameraError, False),
        (ValueError, False),
        (LinkStopError, False),
        (InferenceError, True),
        (SafetyStopError, True),
    ],
)
def test_what_cut_a_trial_short_decides_whether_it_counts(tmp_path, monkeypatch, error, counts):
    trials, attempt = plan_toy(tmp_path, trials=1), PointStage.attempt

    class Fails(Listener):
        def on_start(self, episode):
            raise error(f"the worker of runs/{trials.key.of(episode.agent).name} is gone")

    def failing(self, alias, condition, watchers, provenance):
        return attempt(self, alias, condition, [*watchers, Fails()], provenance)

    monkeypatch.setattr(PointStage, "attempt", failing)
    with pytest.raises(error):
        live(trials, Person(), Life())
    (row,) = read_trials(tmp_path / "blind")
    assert row.status == ("aborted" if counts else "voided")
    assert "the worker of (policy) is gone" in row.note
    monkeypatch.setattr(PointStage, "attempt", attempt)
    assert live(trials, Person(), Life())
    assert trial_report(tmp_path).complete
    assert len(read_trials(tmp_path / "blind")) == 3 + (not counts)


class Stops(Listener):
    """Stops the arm at the third tick."""

    def on_tick(self, tick):
        if tick.index == 2:
            raise SafetyStopError("pushed")


def stop_every_trial(monkeypatch):
    attempt = PointStage.attempt

    def stopped(self, alias, condition, watchers, provenance):
        return attempt(self, alias, condition, [*watchers, Stops()], provenance)

    monkeypatch.setattr(PointStage, "attempt", stopped)
    monkeypatch.setattr(PointStage, "goes_on", lambda *_: True)


def test_a_trial_that_the_supervisor_stopped_has_its_episode(tmp_path, monkeypatch):
    trials = plan_toy(tmp_path, trials=1)
    stop_every_trial(monkeypatch)
    assert live(trials, Person(), Life())
    rows = read_trials(tmp_path / "blind")
    assert [(r.status, r.reason, r.steps) for r in rows] == [("aborted", "safety_stop", 3)] * 3
    store = EpisodeStore.open(tmp_path / "store")
    assert [store.meta(r.episode).agent for r in rows] == [r.alias for r in rows]
    assert {store.meta(r.episode).outcome.reason for r in rows} == {"safety_stop"}


def test_whose_doing_a_stop_was_is_not_guessed_after_a_death(tmp_path, monkeypatch):
    trials = plan_toy(tmp_path, trials=1)
    with monkeypatch.context() as patched:
        stop_every_trial(patched)
        # The episode of the first trial is committed, its row is not.
        assert not live(trials, Person(), Life(2))
    assert live(trials, Person(), Life())
    first, *rows = read_trials(tmp_path / "blind")
    assert (first.status, first.reason) == ("voided", "unknown")
    assert EpisodeStore.open(tmp_path / "store").meta(first.episode).agent == first.alias
    assert [r.status for r in rows] == ["finished"] * 3


def test_nobody_compares_blinded_trials_nor_an_older_table(tmp_path):
    trials = plan_toy(tmp_path, trials=1)
    assert live(trials, Person(), Life(), at_most=1)
    for folder in (tmp_path, tmp_path / "blind"):
        with pytest.raises(DataError, match="are blinded"):
            compare([folder])
    store, rows = EpisodeStore.open(tmp_path / "store"), read_trials(tmp_path / "blind")
    require_rows(store, rows)
    with pytest.raises(StoreCorruptError, match="older copy"):
        require_rows(store, rows[:0])


def test_a_store_of_another_plan_is_refused(tmp_path):
    """Rows named its episodes, and two of them the same one."""
    mine, other = plan_toy(tmp_path / "mine"), plan_toy(tmp_path / "other", seed=4)
    assert live(mine, Person(), Life(), at_most=4)
    assert live(other, Person(), Life(), at_most=3)
    store, rows = tmp_path / "mine" / "store", read_trials(tmp_path / "mine" / "blind")
    shutil.move(store, tmp_path / "own")
    shutil.copytree(tmp_path / "other" / "store", store)
    with pytest.raises(StoreCorruptError, match="is not of these trials"):
        require_rows(EpisodeStore.open(store), rows)
    # Whoever went on all the same learns it before the names.
    assert live(mine, Person(), Life())
    with pytest.raises(StoreCorruptError, match=r"trial 1 names the episode .* of another trial"):
        unblind(mine.folder)
    assert not (mine.folder / "unblinded.json").is_file()
    shutil.rmtree(store)
    with pytest.raises(StoreCorruptError, match="is gone; put it back"):
        unblind(mine.folder)


def test_an_older_store_is_refused(tmp_path):
    trials = plan_toy(tmp_path / "mine")
    for at_most, copy in ((0, "empty"), (2, "older"), (2, "newest")):
        assert live(trials, Person(), Life(), at_most)
        shutil.copytree(trials.folder / "store", tmp_path / copy)
    rows = read_trials(trials.folder / "blind")
    require_rows(EpisodeStore.open(tmp_path / "newest"), rows)
    for copy in ("older", "empty"):
        with pytest.raises(StoreCorruptError, match="not in the store: it is an older copy"):
            require_rows(EpisodeStore.open(tmp_path / copy), rows)
    shutil.rmtree(trials.folder / "store")
    shutil.copytree(tmp_path / "older", trials.folder / "store")
    with pytest.raises(StoreCorruptError, match=r"trial with an episode names .* not in"):
        unblind(trials.folder, reason="curious")


def test_a_server_that_fails_is_not_quoted(tmp_path):
    """What it says of its policy may be what the policy is called anywhere else."""
    trials = plan_toy(tmp_path)
    shown = sessions.redacted(trials, RemoteError("policy server: diffusion_v3 is out of memory"))
    assert isinstance(shown, RemoteError)
    assert "diffusion" not in str(shown)
    assert "server of a policy failed" in str(shown)
