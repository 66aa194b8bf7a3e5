"""Answers what pages ask about evaluations, trials, deployments, trust and certificates."""

from __future__ import annotations

import time
from dataclasses import dataclass

from robolearn.errors import RobolearnError
from robolearn.operations.studio.answers.shared import made, named, now, paths, several
from robolearn.operations.studio.apart import DOCUMENTS
from robolearn.operations.studio.asking import Ask, Picture
from robolearn.operations.studio.documents.trials import recorded

TRIED = ("evaluation", "trial_session", "deployment")
MOST_BYTES = 64 << 20
"""Of a film that is sent as a whole."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Where the recording of a trial is: its store's id and its number there; else ``why`` not."""

    store: str
    number: int
    why: str = ""


def evaluation(ask: Ask) -> Picture:
    """The typed report of trials."""
    # Whether trials run now changes with the time alone.
    stamp = (ask.thing.changed_ns, int(time.time()) // 30)
    return made(ask, "evaluation:evaluation_document", ask.thing.path, stamp=stamp)


def trials(ask: Ask) -> Picture:
    """Some of the trials, one by one."""
    asked = (ask.whole("offset"), ask.whole("limit", 500), ask.query("policy"), ask.query("world"))
    return now(DOCUMENTS, "trials:trials_document", ask.thing.path, *asked)


def clip(ask: Ask) -> Picture:
    """The film of a trial."""
    asked = (ask.thing.path, ask.number("row"), MOST_BYTES)
    return now(DOCUMENTS, "trials:clip_bytes", *asked, media_type="video/mp4")


def recording(ask: Ask) -> Recording:
    """Where the recording of a trial can be looked at."""
    try:
        below, number = recorded(ask.thing.path, ask.number("row"))
    except RobolearnError as error:
        return Recording("", 0, str(error))
    place = ask.thing.path / below
    found = next((t for t in ask.library.things() if t.path == place), None)
    if found is None:
        return Recording("", number, f"'{below}' is not among what was found")
    return Recording(found.id, number)


def session(ask: Ask) -> Picture:
    """Blinded trials: where they stand."""
    stamp = ask.thing.changed_ns
    return made(ask, "trial_session:trial_session_document", ask.thing.path, stamp=stamp)


def deployment(ask: Ask) -> Picture:
    """A deployment."""
    stamp = ask.thing.changed_ns
    return made(ask, "deployment:deployment_document", ask.thing.path, stamp=stamp)


def comparison(ask: Ask) -> Picture:
    """The policies of the results ``of``, compared under the declared rule."""
    things = several(ask, "of", TRIED)
    stamp = tuple(t.changed_ns for t in things)
    return made(ask, "comparison:comparison_document", paths(things), stamp=stamp)


def trust(ask: Ask) -> Picture:
    """How far the simulator of ``sim`` may be trusted, by the trials of ``real``."""
    real, sim = named(ask, "real", TRIED), named(ask, "sim", TRIED)
    worlds = (ask.query("real_world"), ask.query("sim_world"))
    stamp = (real.changed_ns, sim.changed_ns)
    return made(ask, "trust:trust_document", real.path, sim.path, *worlds, stamp=stamp)


def certificate(ask: Ask) -> Picture:
    """A certificate, held against what it relies on as that is now."""
    stamp = (ask.thing.changed_ns, int(time.time()) // 10)
    return made(ask, "certificate:certificate_document", ask.thing.path, stamp=stamp)
