"""Trains a classifier of success from the last pictures of labelled episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from eval.statistics.intervals import Estimate, clopper_pearson
from policies.imitation.success_classifier import HeldOut, SuccessConfig, train_success
from robolearn.data.store.store import EpisodeStore
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
