"""Trains a classifier of success from the last pictures of labelled episodes; lets it judge others.

What it says becomes the outcome of an episode, as an annotation like a person's: data.reward
{task: success} goes by it, and it counts in the identity of what is trained on it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from eval.statistics.intervals import Estimate, clopper_pearson
from policies.imitation.success_classifier import (
    HeldOut,
    SuccessClassifier,
    SuccessConfig,
    load_success,
    train_success,
)
from robolearn.data.store.annotations import Annotation
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ClassifierTrained:
    """A classifier in a folder, and how often it errs on episodes that it did not learn from."""

    folder: Path
    hash: str
    # Labelled episodes, those held out among them.
    episodes: int
    held_out: HeldOut
    # Share of the held-out episodes that it judges wrongly; exact interval.
    error: Estimate

    def document(self) -> dict[str, Any]:
        """As JSON values."""
        e = self.error
        return {
            "classifier": str(self.folder),
            "hash": self.hash,
            "episodes": self.episodes,
            "held_out": dataclasses.asdict(self.held_out),
            "error": {"value": e.value, "low": e.low, "high": e.high, "n": e.n, "method": e.method},
            "words": self.held_out.words(),
        }


def train_classifier(
    store: Path,
    out: Path,
    *,
    signal: str = "top/image",
    held_out: float = 0.4,
    epochs: int = 60,
    seed: int = 0,
    on_read: Callable[[int, int], None] | None = None,
) -> ClassifierTrained:
    """Learn from the outcomes of ``store`` (as annotated, else as recorded) and write ``out``.

    ``signal``: the picture that is judged; ``held_out``: share of the episodes that only measures
    the error; ``on_read``: told after every episode that was read, and of how many.

    Errors: :class:`ConfigError`, :class:`DataError`, nothing written.
    """
    config = SuccessConfig(signal=signal, held_out=held_out, epochs=epochs, seed=seed)
    opened = EpisodeStore.open(store)
    infos = [i for i in opened.list() if signal in i.signals and i.steps]
    if not infos:
        raise ConfigError(f"no episode of '{store}' has the signal '{signal}'")
    pictures: list[NDArray[Any]] = []
    for info in infos:
        pictures.append(opened.read(info.id).observed(signal)[-1])
        if on_read is not None:
            on_read(len(pictures), len(infos))
    classifier = train_success(pictures, [i.success for i in infos], config)
    classifier.save(out)
    found = classifier.held_out
    error = clopper_pearson(found.errors, found.successes + found.failures)
    return ClassifierTrained(out, classifier.hash, len(infos), found, error)


@dataclass(frozen=True, slots=True)
class Judged:
    """Episodes that a classifier called a success or a failure; ``left``: those that somebody had
    said something about before. ``error`` in words.
    """

    classifier: str
    successes: tuple[str, ...]
    failures: tuple[str, ...]
    left: int
    error: str


def judge_store(
    store: Path,
    classifier: Path,
    *,
    on_read: Callable[[int, int], None] | None = None,
) -> Judged:
    """Annotate the outcome of every episode that nobody has judged, by its last picture.

    The annotation names the classifier and how often it erred on episodes that it never saw; a run
    that is trained on it keeps both in its provenance.

    Errors: :class:`CheckpointError`, :class:`ConfigError` for a store without the classifier's
    picture, or without anything to judge; nothing is annotated then.
    """
    judge = load_success(classifier)
    signal, opened = judge.config.signal, EpisodeStore.open(store)
    infos = [i for i in opened.list() if i.steps]
    blind = [i.id for i in infos if signal not in i.signals]
    if blind:
        raise ConfigError(
            f"the classifier looks at '{signal}', which {len(blind)} of {len(infos)} episodes of"
            f" '{store}' lack, {blind[0]} the first; filter the store, or train another one"
        )
    open_ = [i for i in infos if opened.annotated(i.id).success is None]
    if not open_:
        raise ConfigError(f"every outcome in '{store}' was annotated before: nothing to judge")
    verdicts: dict[str, bool] = {}
    for info in open_:
        verdicts[info.id] = verdict_on(judge, opened, info.id)
        if on_read is not None:
            on_read(len(verdicts), len(open_))
    with opened.writer() as writer:
        annotate_verdicts(judge, writer, verdicts)
    parts = {won: tuple(k for k, v in verdicts.items() if v == won) for won in (True, False)}
    words = judge.held_out.words()
    return Judged(judge.hash, parts[True], parts[False], len(infos) - len(open_), words)


def verdict_on(judge: SuccessClassifier, store: EpisodeStore, episode: str) -> bool:
    """Whether the last picture of an episode looks like a success."""
    signal = judge.config.signal
    picture = store.read(episode, [signal]).observed(signal)[-1]
    return bool(judge.probability([picture])[0] > 0.5)


def annotate_verdicts(
    judge: SuccessClassifier, writer: StoreWriter, verdicts: Mapping[str, bool]
) -> None:
    """Write what ``judge`` says of episodes, with how often it erred on those it never saw."""
    name, words = f"classifier-{judge.hash}", judge.held_out.words()
    for won in (True, False):
        ids = tuple(k for k, v in verdicts.items() if v == won)
        if ids:
            writer.annotate(Annotation(ids, name, success=won, reason=name, note=words))
