"""Shows the trials of a results folder, page by page, and where each of them can be watched."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eval.blinded.unblinded import require_open
from eval.trials.pages import trial_page
from robolearn.data.store.manifest import episode_number
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import DataError
from robolearn.operations.studio.documents.problems import Problem, Problems
from robolearn.types import TrialRecord

Plays = Literal["clip", "episode", "nothing"]
MOST_ROWS = 2000


@dataclass(frozen=True, slots=True)
class ShownTrial:
    """A trial; ``row``: its number in the table; ``plays``: what shows it.

    ``clip``: its film, below the folder; ``episode``: its id in ``store``, below the folder.
    """

    row: int
    plays: Plays
    clip: str
    episode: str
    store: str
    trial: TrialRecord


@dataclass(frozen=True, slots=True)
class TrialsDocument:
    """Some of ``total`` trials, from the ``offset``-th on."""

    total: int
    offset: int
    trials: tuple[ShownTrial, ...]
    problems: tuple[Problem, ...]


def trials_document(
    path: Path, offset: int = 0, limit: int = 500, policy: str = "", world: str = ""
) -> TrialsDocument:
    """At most :data:`MOST_ROWS` trials of a results folder, of one policy and world if wanted."""
    problems = Problems()

    def read() -> tuple[int, tuple[ShownTrial, ...]]:
        at, most = max(0, offset), max(1, min(limit, MOST_ROWS))
        found = trial_page(path, at, most, policy=policy, env=world)
        require_open(path, found.trials)
        shown = (shown_trial(path, n, t) for n, t in zip(found.rows, found.trials, strict=True))
        return found.total, tuple(shown)

    total, trials = problems.attempt("trials", read, (0, ()))
    return TrialsDocument(total, offset, trials, problems.found)


def clip_of(path: Path, row: int) -> Path | None:
    """The film of the trial in a row; None where there is none in the folder."""
    found = trial_page(path, row - 1, 1)
    require_open(path, found.trials)
    if not found.trials or found.rows != (row,):
        return None
    clip = _clip(path, found.trials[0])
    return path / clip if clip else None


def clip_bytes(path: Path, row: int, most: int) -> bytes:
    """The film of the trial in a row. :class:`DataError` where there is none, or of more bytes."""
    clip = clip_of(path, row)
    if clip is None:
        raise DataError(f"trial {row} has no film here (any more)")
    size = clip.stat().st_size
    if size > most:
        raise DataError(f"the film of trial {row} has {size >> 20} MiB; look at '{clip}'")
    return clip.read_bytes()


def recorded(path: Path, row: int) -> tuple[str, int]:
    """The store of the trial in a row, below ``path``, and the number of its episode there.
    :class:`DataError` where it was not recorded.
    """
    found = trial_page(path, row - 1, 1)
    require_open(path, found.trials)
    shown = shown_trial(path, row, found.trials[0]) if found.rows == (row,) else None
    if shown is None or shown.plays != "episode":
        raise DataError(f"trial {row} has no recording here (any more)")
    if all(info.id != shown.episode for info in EpisodeStore.open(path / shown.store).list()):
        raise DataError(f"the store has no episode '{shown.episode}': it was thrown away")
    return shown.store, episode_number(shown.episode)


def shown_trial(path: Path, row: int, trial: TrialRecord) -> ShownTrial:
    """A trial of a results folder, and what plays it."""
    clip = _clip(path, trial)
    # Deployments and trials on a cell record into the folder's own store.
    store = "store" if trial.episode and (path / "store").is_dir() else ""
    plays: Plays = "episode" if store else "clip" if clip else "nothing"
    return ShownTrial(row, plays, clip, trial.episode, store, trial)


def _clip(path: Path, trial: TrialRecord) -> str:
    """A film lies in ``videos/`` under the name that the table says, which must be a mere name."""
    name = trial.video
    if not name or Path(name).name != name or not (path / "videos" / name).is_file():
        return ""
    return f"videos/{name}"
