"""Answers what pages ask about runs: what they are, their curves, differences, samples."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robolearn.config import config_hash
from robolearn.operations.studio.answers.shared import made, named, now, paths, several
from robolearn.operations.studio.apart import COMPUTING
from robolearn.operations.studio.asking import Ask, NotHere, Picture
from robolearn.operations.studio.documents.training.curves import CurvePart, curve_part
from robolearn.operations.studio.documents.training.differences import Differences, run_differences
from robolearn.operations.studio.documents.training.run import RunDocument, run_document
from robolearn.operations.studio.documents.training.run_store import chosen_hash, data_of
from robolearn.operations.studio.found import Thing

_RUN = ("run",)
_MOST_STORES = 64


def run(ask: Ask) -> RunDocument:
    """A run."""
    return run_document(ask.thing.path, stores=_stores(ask))


def curves(ask: Ask) -> CurvePart:
    """Its log from byte ``since`` on; nothing where nothing was logged yet."""
    try:
        return curve_part(ask.thing.path, ask.whole("since"), ask.whole("mark"))
    except FileNotFoundError as error:
        if not ask.thing.path.is_dir():
            raise NotHere("the run is not here (any more)") from error
        return CurvePart(next=0, mark=0, fresh=True, more=False, columns={}, damaged=0)


def differences(ask: Ask) -> Differences:
    """What tells the runs ``of`` apart."""
    return run_differences(paths(several(ask, "of", _RUN)))


def practice(ask: Ask) -> Picture:
    """What each version of the weights came to, of a run that practised."""
    return made(
        ask, "training.practice:practice_document", ask.thing.path, stamp=ask.thing.changed_ns
    )


def samples(ask: Ask) -> Picture:
    """Chunks that a run's policy proposes at a tick of an episode of ``store``."""
    store = named(ask, "store", ("store",))
    asked = (ask.whole("episode"), ask.whole("tick"), ask.whole("count", 16), ask.whole("seed"))
    return now(COMPUTING, "training.samples:samples_document", ask.thing.path, store.path, *asked)


def _stores(ask: Ask) -> Mapping[str, Path]:
    """Stores by the hash of what this run would choose of them, as its provenance has it."""
    wanted = data_of(ask.thing.path)
    if wanted is None:
        return {}
    found = [t for t in ask.library.things() if t.kind == "store" and not t.problem]
    key = config_hash(wanted)
    return {_hash(ask, t, wanted, key): t.path for t in found[:_MOST_STORES]}


def _hash(ask: Ask, store: Thing, wanted: Mapping[str, Any], key: str) -> str:
    def build() -> str:
        return chosen_hash(store.path, wanted)

    return ask.library.keep(("hash", store.path, key), build, store.changed_ns)
