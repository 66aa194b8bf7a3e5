"""Lets a classifier of pictures say how the episodes of a practice ended, as they are committed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from policies.imitation.success_classifier import SuccessClassifier, load_success
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import ConfigError
from robolearn.operations.success import annotate_verdicts, verdict_on
from robolearn.spec import EmbodimentSpec


@dataclass(frozen=True, slots=True)
class EpisodeJudge:
    """What ``robolearn data judge`` does, before anything is learned from an episode: its last
    picture decides on success, as an annotation that names the classifier and its error.
    """

    classifier: SuccessClassifier
    store: Path

    @staticmethod
    def of(folder: Path | None, store: Path) -> EpisodeJudge | None:
        """That of ``folder``; None: nobody judges. Errors: :class:`CheckpointError`."""
        return None if folder is None else EpisodeJudge(load_success(folder), store)

    @property
    def hash(self) -> str:
        """Of the classifier."""
        return self.classifier.hash

    def require_seen(self, spec: EmbodimentSpec, where: str) -> None:
        """:class:`ConfigError` for a place without the camera that is looked at."""
        signal, known = self.classifier.config.signal, [s.name for s in spec.signals]
        if signal not in known:
            raise ConfigError(
                f"judge: the classifier looks at '{signal}', which '{where}' does not record"
                f" ({sorted(known)}); name a world with that camera (docs/rendering.md), or train"
                " another classifier"
            )

    def __call__(self, writer: StoreWriter, episodes: Sequence[str]) -> dict[str, bool]:
        """Whether each of these, which were committed, succeeded; said in the store, too."""
        store = EpisodeStore.open(self.store)
        verdicts = {name: verdict_on(self.classifier, store, name) for name in episodes}
        annotate_verdicts(self.classifier, writer, verdicts)
        return verdicts
