"""Describes a certificate: what it vouches for, and what has made it stale, or would."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from eval.trust.certificate import Issued, assured_words, read_certificate
from robolearn.errors import CertificateError
from robolearn.operations.code_hash import code_hash
from robolearn.operations.studio.documents.problems import UNREADABLE, Problem, Problems, words_of
from robolearn.operations.trust.certified_scene import drift_of, known_scene
from robolearn.operations.trust.driving_hash import driving_hash
from robolearn.training.run_directory import deciding_digests

Standing = Literal["holds", "stale", "not known"]
_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Reliance:
    """Something that a certificate relies on; ``words``: what it is and how it is now."""

    what: str
    standing: Standing
    words: str
    # What would make it stale.
    breaks: str


@dataclass(frozen=True, slots=True)
class CertificateDocument:
    """A certificate. ``issued``: what it says, None where it is none; ``standing``: the worst of
    ``relies``; ``assured``: the real success that it vouches for, in words.
    """

    name: str
    path: str
    issued: Issued | None
    standing: Standing
    assured: str
    relies: tuple[Reliance, ...]
    problems: tuple[Problem, ...]


def certificate_document(path: Path, now: dt.datetime | None = None) -> CertificateDocument:
    """A certificate, held against the run that it lies in, its scene, this code and the time."""
    problems = Problems()
    moment = now or dt.datetime.now(dt.UTC)
    issued = problems.attempt("certificate", lambda: _issued(path, moment, problems), None)
    relies: tuple[Reliance, ...] = ()
    if issued is not None:
        relies = (
            _time(issued, moment),
            _checked("policy", "any change of the run or of a run inside of it: weights, settings,"
                     " statistics", lambda: _policy(issued, path.resolve().parent)),
            _checked("scene", "any change of the scene package",
                     lambda: _scene(issued, path.resolve().parent)),
            _checked("table", "a camera, the robot or the table that moved ('robolearn scene"
                     " drift')", lambda: _drift(issued, path.resolve().parent)),
            _checked("code", "another release of what decides a trial", lambda: _code(issued)),
            _checked("driving", "another release of what drives the arm",
                     lambda: _driving(issued)),
            _enough(issued),
            Reliance("cell", "not known", f"real trials are of the cell"
                     f" '{issued.certificate.trust.real.name}'; whether a cell is still that one is"
                     " checked when it is opened", "any change of the cell's configuration"),
        )  # fmt: skip
    return CertificateDocument(
        name=path.parent.name,
        path=str(path),
        issued=issued,
        standing="not known" if issued is None else _worst(relies),
        assured="" if issued is None else assured_words(issued.certificate),
        relies=relies,
        problems=problems.found,
    )


def _issued(path: Path, now: dt.datetime, problems: Problems) -> Issued | None:
    """The certificate; one that does not hold now is shown as it was when it was issued."""
    try:
        return read_certificate(path, now)
    except CertificateError as error:
        problems.say("certificate", str(error))
        try:
            raw = json.loads(path.read_text(encoding="utf-8"))
            then = dt.datetime.fromisoformat(raw["certificate"]["issued"])
            return read_certificate(path, then)
        except (CertificateError, LookupError, TypeError, ValueError):
            # It is wrong whenever one looks at it; what that is was said already.
            return None


def _time(issued: Issued, now: dt.datetime) -> Reliance:
    expires = dt.datetime.fromisoformat(issued.certificate.expires)
    left = expires - now
    words = f"until {issued.certificate.expires}"
    if left < dt.timedelta():
        return Reliance("time", "stale", f"{words}: expired {-left.days} days ago", "time")
    return Reliance("time", "holds", f"{words}: {left.days} days left", "time")


def _checked(what: str, breaks: str, look: Callable[[], tuple[Standing, str]]) -> Reliance:
    try:
        standing, words = look()
    except UNREADABLE as error:
        standing, words = "not known", f"cannot be looked at: {words_of(error)}"
    return Reliance(what, standing, words, breaks)


def _policy(issued: Issued, folder: Path) -> tuple[Standing, str]:
    policy = issued.certificate.policy
    if not (folder / "config.yaml").is_file():
        return "not known", f"'{policy.name}': the certificate does not lie in a run directory"
    files = deciding_digests(folder)
    differ = [n for n in {**policy.files, **files} if policy.files.get(n) != files.get(n)]
    if not differ:
        return "holds", f"'{policy.name}' ({policy.hash}) is as it was"
    more = f" and {len(differ) - _SHOWN} more" if len(differ) > _SHOWN else ""
    return "stale", f"'{policy.name}' was changed: {', '.join(sorted(differ)[:_SHOWN])}{more}"


def _scene(issued: Issued, folder: Path) -> tuple[Standing, str]:
    scene = issued.certificate.scene
    found = known_scene(scene.where, folder)
    if (found.hash, found.engine) == (scene.world.hash, scene.world.engine):
        return "holds", f"'{scene.where}' ({found.hash}) is as it was"
    return "stale", f"'{scene.where}' was changed: {scene.world.hash} then, {found.hash} now"


def _drift(issued: Issued, folder: Path) -> tuple[Standing, str]:
    drift, when = drift_of(issued.certificate.scene.where, folder)
    if drift == "moved":
        return "stale", f"the cell is not as its scene any more ({when})"
    if drift == "unmoved":
        return "holds", f"the table was as its scene says ({when})"
    return "not known", f"nobody measured whether the table is as its scene says ({drift})"


def _code(issued: Issued) -> tuple[Standing, str]:
    then, now = issued.certificate.code, code_hash()
    if then == now:
        return "holds", f"the code that decides a trial ({now}) is the same"
    return "stale", f"other code decides trials now: {then} then, {now} now"


def _driving(issued: Issued) -> tuple[Standing, str]:
    then, now = issued.certificate.driving, driving_hash()
    if then == now:
        return "holds", f"the code that drives the arm ({now}) is the same"
    return "stale", f"other code drives the arm now: {then} then, {now} now"


def _enough(issued: Issued) -> Reliance:
    lacking = issued.certificate.lacking
    words = "; ".join(lacking) if lacking else "it is enough by its own rule"
    return Reliance(
        "evidence", "stale" if lacking else "holds", words, "nothing: the trials are counted"
    )


def _worst(relies: Sequence[Reliance]) -> Standing:
    """``holds`` where nothing is stale: what is not known is not held against it."""
    return "stale" if any(r.standing == "stale" for r in relies) else "holds"
