"""Ends a practice: which version stays, and what is told of it."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from robolearn.config import from_dict, to_dict
from robolearn.data.insight.effort import Wear
from robolearn.errors import InferenceError, PracticeError
from robolearn.operations.practice.records import VersionTest
from robolearn.operations.practice.session import Ended, Session
from robolearn.operations.practice.wear import worn
from robolearn.training.run_directory import load_run, policy_hash

log = logging.getLogger(__name__)


Kept = Literal["last", "tested", "parent"]
"""What OUT holds: the last version, the best one that was tested, or its parent."""


@dataclass(frozen=True, slots=True)
class FinetuneResult:
    """What a practice left behind."""

    run_dir: Path
    policy_hash: str
    # What it holds, of which version, and why practice ended.
    kept: Kept
    version: int | None
    ended: str
    sound: bool
    episodes: int
    decisions: int
    updates: int
    seconds: float
    cpu_seconds: float
    tests: tuple[VersionTest, ...]
    reused: bool = False
    # Whether it goes on with resume by the same limits, once what ended it is mended.
    goes_on: bool = False
    # Control ticks that came late; of a cell.
    late_ticks: int = 0
    wear: Wear = Wear()  # noqa: RUF009 (frozen)
    # Successes that practice cost (below 0: gained) on starts that the parent had, too; and the
    # most that it had cost at any time.
    regret: int = 0
    dip: int = 0


def found_result(written: Mapping[str, Any], out: Path) -> FinetuneResult:
    """What a practice that is over had ``written`` of the run that lies in ``out`` today.

    Errors: :class:`CheckpointError` where that is not what was written.
    """
    result, run = from_dict(FinetuneResult, written), load_run(out)
    return dataclasses.replace(result, reused=True, run_dir=out, policy_hash=run.policy_hash)


def finished(session: Session) -> FinetuneResult:
    """Test the last version where it can be, choose what is kept, and write it.

    Errors: :class:`PracticeError` where nothing was learned.
    """
    ended, learner, config = session.ended, session.learner, session.config
    if ended is None:
        raise PracticeError("practice ended without a reason")
    version = session.version or session.begun
    if learner is None or version is None:
        raise PracticeError(
            f"practice was over before anything was learned ({ended.why}):"
            f" {len(session.ledger.flights)} of {config.warmup_episodes} episodes to begin with"
            f" (practice.warmup_episodes), {sum(f.success for f in session.ledger.flights)} of"
            " which succeeded; what was recorded is kept, give it more with resume"
        )
    last, ended = _tested_last(session, ended)
    kept, version = kept_version(session.standing.tests, last, version, ended)
    if ended.sound and not session.standing.begun:
        # Half of what has to be learned before anything drives is worse than nothing.
        kept = "parent"
        log.warning(
            "it was over (%s) after %d of the %d updates that come before what is learned drives"
            " (practice.critic_updates): '%s' holds the parent as it was; give it more with resume",
            ended.why,
            learner.step,
            config.critic_updates,
            session.run_dir,
        )
    elif kept == "parent":
        log.warning(
            "'%s' holds the parent as it was: nothing that was practised is better", session.run_dir
        )
    if not any(f.success for f in session.ledger.flights):
        log.warning(
            "nothing succeeded in %d episodes: where success is all that is rewarded, '%s' has"
            " learned nothing; begin with a better parent, easier starts or demonstrations in the"
            " batches, or reward what is on the way (data.reward)",
            len(session.ledger.flights),
            session.run_dir,
        )
    learner.finish(version, as_parent=kept == "parent")
    report = session.report({})
    result = FinetuneResult(
        run_dir=session.run_dir,
        policy_hash=policy_hash(session.run_dir),
        kept=kept,
        version=version,
        ended=ended.why,
        sound=ended.sound,
        episodes=report.episodes,
        decisions=report.decisions,
        updates=report.updates,
        seconds=report.seconds,
        cpu_seconds=report.cpu_seconds,
        tests=session.standing.tests,
        late_ticks=sum(f.late_ticks for f in session.ledger.flights),
        wear=worn(session.ledger.flights, session.stops),
        regret=session.ledger.regret,
        dip=session.ledger.dip,
        goes_on=ended.goes_on,
    )
    session.note(to_dict(result))
    return result


def _tested_last(session: Session, ended: Ended) -> tuple[VersionTest | None, Ended]:
    """The newest version's test, where nothing went wrong until then. It has flown nowhere yet:
    where it gives no answer that could be driven by, that is why it ended.
    """
    if not ended.sound:
        return None, ended
    try:
        return session.test(), ended
    except InferenceError as error:
        if not session.failed(error):
            raise
    return None, session.ended or ended


def kept_version(
    tests: Sequence[VersionTest], last: VersionTest | None, version: int, ended: Ended
) -> tuple[Kept, int]:
    """What stays: the last version, unless it is clearly worse than the parent or something went
    wrong; then the best that was tested and is no worse than the parent, else the parent.
    """
    if ended.sound and (last is None or not last.worse):
        return "last", version
    good = [t for t in tests if t.no_worse]
    if not good:
        return "parent", version
    best = max(good, key=lambda t: (t.successes, t.updates))
    return "tested", best.version
