"""Blinded trials without a robot: a point, three walking policies, and kills at every write."""

from __future__ import annotations

import dataclasses
import sqlite3
from contextlib import ExitStack
from pathlib import Path

from eval.blinded.key import SealedKey, SealedPolicy, key_digest, seal, shuffled
from eval.blinded.plan import PlannedCell, TrialPlan, lock_plan, read_locked
from eval.blinded.schedule import aliases, schedule, starts_by_cell
from eval.preregistration import Preregistration, plan_text
from eval.rule import Rule
from eval.trials.table import TrialStore
from robolearn.agents.chunk import ChunkAgent
from robolearn.data.recording.recorder import EpisodeRecorder
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import StoreError
from robolearn.inference.local import InProcessInference
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.trial import session as sessions
from robolearn.operations.trial.planned import OpenedTrials
from robolearn.operations.trial.session import TrialSession
from robolearn.operations.trial.successor import Successor
from robolearn.runtime import run_episode
from robolearn.types import Condition, TrialRecord
from tests.mocks import SPEC, TOOL, PointEnv, WalkPolicy
from tests.trial_records import on_cell

STEPS = {"slow": 0.01, "middling": 0.05, "fast": 0.1}
SUITE = "toy@0123456789abcdef"
# How exact the tool's place is by the word of its cell [m], [rad].
ERRORS = {TOOL: (0.002, 0.0)}


class Killed(BaseException):
    """The process is gone: nothing that it was about to do happens."""


@dataclasses.dataclass
class Life:
    """How many writes a process does before it dies; None: it lives on. ``after``: it dies right
    after that write instead of before it.
    """

    left: int | None = None
    after: bool = False
    dead: bool = False
    writes: int = 0

    def write(self, act):
        if self.dead:
            raise Killed
        self.writes += 1
        dies = self.left is not None and self.writes > self.left
        if dies and not self.after:
            self.dead = True
            raise Killed
        answer = act()
        if dies:
            self.dead = True
            raise Killed
        return answer


class Person(Unattended):
    """Answers by a script: the last answer again and again."""

    judges, places, answers = False, True, True

    def __init__(self, answer: int = 0) -> None:
        super().__init__(agreed=True)
        self.heard: list[str] = []
        self.asked: list[str] = []
        self.answer = answer

    def told(self, what: str, text: str) -> None:
        self.heard.append(f"{what} {text}")

    def choose(self, question, answers):
        self.asked.append(question)
        return min(self.answer, len(answers) - 1)

    def remark(self, question):
        return "smoother"


class MortalTable(TrialStore):
    """A table whose writes may be the last ones."""

    def __init__(self, folder: Path, orphaned, life: Life) -> None:
        self.life = life
        super().__init__(folder, lambda row, r: life.write(lambda: orphaned(row, r)))

    def begin(self, record):
        return self.life.write(lambda: super(MortalTable, self).begin(record))

    def end(self, row, record):
        self.life.write(lambda: super(MortalTable, self).end(row, record))


class PointStage:
    """The point as a cell."""

    def __init__(self, trials: OpenedTrials, recorder: EpisodeRecorder, life: Life) -> None:
        self.trials, self.recorder, self.life = trials, recorder, life
        self.env = PointEnv(goal_x=0.5, errors=ERRORS)

    def blank(self, alias: str) -> TrialRecord:
        more = {"policy": alias, "policy_hash": "", "env": "point", "env_hash": "p"}
        return on_cell(**more, condition="", status="started", standard_errors=ERRORS)

    def attempt(self, alias, condition, watchers, provenance):
        step = STEPS[self.trials.key.of(alias).name]
        policy = WalkPolicy(step)
        return run_episode(
            *(self.env, ChunkAgent(policy.spec, SPEC, name=alias), InProcessInference(policy)),
            [self.recorder, *watchers],
            condition,
            max_steps=8,
            provenance=dict(provenance),
        )

    def show(self, condition):
        del condition

    def keep(self) -> str:
        return self.life.write(self.recorder.keep)

    def keep_stopped(self) -> str:
        try:
            return self.life.write(self.recorder.keep_stopped)
        except StoreError:
            return ""

    def figures(self, result):
        return {}

    def goes_on(self, error):
        return False


def plan_toy(folder: Path, *, trials: int = 3, seed: int = 0, **more) -> OpenedTrials:
    """A locked plan of three policies on the point."""
    folder.mkdir(parents=True, exist_ok=True)
    names = aliases(len(STEPS))
    nonce = "secret"
    by_hash = shuffled(names, tuple(STEPS), nonce)
    policies = tuple(
        sorted((SealedPolicy(by_hash[n], n, n, f"runs/{n}") for n in STEPS), key=lambda p: p.alias)
    )
    repeats = more.pop("repeats", 0)
    cells = more.pop("cells", ("point",))
    conditions = [f"c{i}" for i in range(trials)]
    slots = schedule(
        *(conditions, names, cells),
        repeats=repeats,
        seed=seed,
        pairs=more.get("pairs", False),
    )
    starts = starts_by_cell(slots)
    rule = more.pop("rule", Rule()).limited(max(starts.values()))
    written = "2026-01-01T00:00:00+00:00"
    registered = Preregistration(SUITE, cells, rule, written, tuple(STEPS), starts=starts)
    key = SealedKey(nonce, policies, plan_text(registered))
    plan = TrialPlan(
        suite=SUITE,
        cells={cell: PlannedCell("p", f"{cell}.yaml") for cell in cells},
        aliases=names,
        key=key_digest(key),
        written=written,
        slots=slots,
        seed=seed,
        rule=rule,
        max_steps=8,
        **more,
    )
    seal(folder, key)
    lock_plan(folder, plan)
    return open_toy(folder, key)


def open_toy(folder: Path, key: SealedKey) -> OpenedTrials:
    """What was planned, without suite, cell and runs."""
    locked = read_locked(folder)
    ids = {s.condition for s in locked.plan.slots}
    starts = {i: Condition(i, int(i[1:]), {TOOL: (0.1 + 0.02 * int(i[1:]), 0.2)}) for i in ids}
    named = dataclasses.make_dataclass("Cell", ["name"])("point")
    fields = {"folder": folder, "locked": locked, "key": key, "suite": None}
    fields |= {"conditions": starts, "cell": named, "robot": Path("point.yaml"), "sources": {}}
    trials = object.__new__(OpenedTrials)
    for name, value in {**fields, "began": False}.items():
        object.__setattr__(trials, name, value)
    return trials


def live(trials: OpenedTrials, person: Person, life: Life, at_most: int | None = None) -> bool:
    """One process's session; False: it was killed."""
    with ExitStack() as stack:
        try:
            store = EpisodeStore.open_or_create(trials.folder / "store")
            table = MortalTable(
                trials.folder / "blind", Successor(trials.locked, store, person), life
            )
            stack.callback(table.close)
            recorder = stack.enter_context(
                EpisodeRecorder(
                    store, spec=SPEC, kind="deployment", autosave=False, keep_interrupted=True
                )
            )
            votes = sessions.add_vote
            sessions.add_vote = lambda *a: life.write(lambda: votes(*a))
            stack.callback(lambda: setattr(sessions, "add_vote", votes))
            stage = PointStage(trials, recorder, life)
            TrialSession(trials, stage, table, person, "me").run(at_most)
        except Killed:
            return False
    return True


def forget_count(folder: Path) -> None:
    """As if no preference had been counted beside the trials."""
    with sqlite3.connect(folder / "blind" / "trials.sqlite") as db:
        db.execute("DROP TABLE votes")
    db.close()
