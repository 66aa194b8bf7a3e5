"""Decides whether a policy may drive a cell: by a certificate that holds for just this, or by the
word of somebody, which is kept with every episode.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from eval.trust.certificate import Issued, assured_words, read_certificate
from hardware.cell.demand import CertificateDemand
from robolearn.errors import CertificateError, ConfigError, RobolearnError
from robolearn.operations.code_hash import code_hash
from robolearn.operations.trust.certified_scene import drift_of, known_scene
from robolearn.operations.trust.driving_hash import driving_hash
from robolearn.training.run_directory import deciding_digests
from robolearn.types import Condition

# Where the certificate of a run is looked for.
FILE = "certificate.json"
UNCERTIFIED = "uncertified"
# A reason is a sentence, kept with every episode.
_LONGEST = 500
_SLACK = 1e-9

Status = Literal["certified", "uncertified", "accepted"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is about to be run: this must be what a certificate speaks of."""

    # None: the policy is on a server, which tells its name and hash.
    run: Path | None
    # As trials will record it: with how it is executed.
    policy: str
    policy_hash: str
    suite: str
    conditions: Sequence[Condition]
    # As trials will record it.
    cell: str
    cell_hash: str


@dataclass(frozen=True, slots=True)
class Permission:
    """Why a policy may drive, as it is kept with every episode."""

    status: Status
    # Of the certificate that holds.
    digest: str = ""
    signed_by: str = ""
    # Why there is none that holds.
    why: str = ""
    # What somebody said who let it drive all the same.
    reason: str = ""
    # What the certificate vouches for, for people.
    words: str = ""

    def told(self) -> str:
        """One line for a person."""
        if self.status == "certified":
            who = f", signed by {self.signed_by[:16]}..." if self.signed_by else ", not signed"
            return f"{self.digest[:16]} holds{who}: {self.words}"
        accepted = f"; accepted: {self.reason}" if self.reason else ""
        return f"{UNCERTIFIED}{f' ({self.why})' if self.why else ''}{accepted}"

    def to_json(self) -> dict[str, Any]:
        """Provenance of an episode."""
        facts = {
            "certificate": self.status,
            "certificate_digest": self.digest,
            "certificate_signed_by": self.signed_by,
            "uncertified_because": self.why,
            "uncertified_accepted": self.reason,
        }
        return {k: v for k, v in facts.items() if v}


def permit(
    wanted: Wanted,
    demand: CertificateDemand,
    *,
    lab: bool,
    certificate: Path | None = None,
    accept: str = "",
    now: dt.datetime | None = None,
) -> Permission:
    """Why ``wanted`` may drive; ``lab``: the cell is a virtual one.

    ``certificate``: the file; None: that in the run directory, if there is one. ``accept``: the
    reason for which it may drive without. Raises :class:`CertificateError`, with everything that is
    wrong, where one is demanded (or named) and none holds.
    """
    require_reason(accept)
    required = demand.required(lab=lab)
    path = certificate or (None if wanted.run is None else wanted.run / FILE)
    if path is None or (certificate is None and not path.is_file()):
        problems, issued = (("there is none",) if required else ()), None
    else:
        issued, problems = _looked_at(path, wanted, demand, now or dt.datetime.now(dt.UTC))
    if issued is not None and not problems:
        signed = "" if issued.signature is None else issued.signature.key
        return Permission(
            "certified", issued.digest, signed, words=assured_words(issued.certificate)
        )
    why = "; ".join(problems)
    if accept:
        return Permission("accepted", why=why, reason=accept)
    if required or certificate is not None:
        demanded = f"the cell '{wanted.cell}' demands a certificate" if required else f"'{path}'"
        raise CertificateError(
            f"{demanded}: {why}. Certify the policy (docs/trust.md#certificates), run its trials"
            " under a locked plan, or accept it uncertified and say why"
        )
    return Permission("uncertified", why=why)


def require_reason(accept: str) -> None:
    """:class:`ConfigError` for a reason that is none, or cannot be kept."""
    if accept and (not accept.strip() or len(accept) > _LONGEST or not accept.isprintable()):
        raise ConfigError(
            f"a reason to accept what is uncertified is one line of at most {_LONGEST} characters,"
            f" got {accept[:60]!r}"
        )


def _looked_at(
    path: Path, wanted: Wanted, demand: CertificateDemand, now: dt.datetime
) -> tuple[Issued | None, Sequence[str]]:
    try:
        issued = read_certificate(path, now)
    except CertificateError as error:
        return None, (str(error),)
    return issued, tuple(
        problem
        for found in (
            _signer(issued, demand),
            _policy(issued, wanted),
            _where(issued, wanted),
            _scene(issued, path.resolve().parent),
            _enough(issued, demand),
        )
        for problem in found
    )


def _signer(issued: Issued, demand: CertificateDemand) -> list[str]:
    if not demand.keys:
        return []
    if issued.signature is None:
        return ["it is not signed, and this cell believes signed ones only"]
    if issued.signature.key not in demand.keys:
        return [f"it is signed by {issued.signature.key[:16]}..., whom this cell does not believe"]
    return []


def _policy(issued: Issued, wanted: Wanted) -> list[str]:
    policy = issued.certificate.policy
    if wanted.run is not None:
        files = deciding_digests(wanted.run)
        differ = [n for n in {**policy.files, **files} if policy.files.get(n) != files.get(n)]
        if differ:
            names = ", ".join(sorted(differ)[:6])
            was = f"it is of the policy '{policy.name}' as it was ({policy.run})"
            return [f"{was}; here differs {names}"]
    if policy.hash != wanted.policy_hash:
        here = f"here is '{wanted.policy}' ({wanted.policy_hash})"
        return [f"it is of the policy '{policy.name}' ({policy.hash}), {here}"]
    return []


def _where(issued: Issued, wanted: Wanted) -> list[str]:
    certificate, found = issued.certificate, list[str]()
    real = certificate.trust.real
    if (real.name, real.hash) != (wanted.cell, wanted.cell_hash):
        same = "as it was then" if real.name == wanted.cell else f", here is '{wanted.cell}'"
        found.append(f"its real trials are of the cell '{real.name}' ({real.hash}) {same}")
    if certificate.suite != wanted.suite:
        found.append(f"it is of the suite {certificate.suite}, here is {wanted.suite}")
    else:
        outside = [c.id for c in wanted.conditions if not _covers(issued, c)]
        if outside:
            found.append(f"it does not cover the starts {', '.join(outside[:4])}")
    if certificate.code != code_hash():
        found.append(f"it is of other code ({certificate.code}, here {code_hash()})")
    if certificate.driving != driving_hash():
        found.append(
            "the code that drives the arm was changed since it was certified"
            f" ({certificate.driving}, here {driving_hash()})"
        )
    return found


def _covers(issued: Issued, condition: Condition) -> bool:
    limits = issued.certificate.limits
    if condition.id in limits.conditions:
        return True
    if set(condition.poses) != set(limits.starts) or not condition.poses:
        return False
    return all(
        len(values) == len(limits.starts[name].low)
        and all(
            low - _SLACK <= v <= high + _SLACK
            for low, v, high in zip(
                limits.starts[name].low, values, limits.starts[name].high, strict=True
            )
        )
        for name, values in condition.poses.items()
    )


def _scene(issued: Issued, folder: Path) -> list[str]:
    scene = issued.certificate.scene
    try:
        info = known_scene(scene.where, folder)
        drift, when = drift_of(scene.where, folder)
    except RobolearnError as error:
        return [f"its scene '{scene.where}' cannot be looked at: {error}"]
    if (info.hash, info.engine) != (scene.world.hash, scene.world.engine):
        changed = f"({scene.world.hash}, now {info.hash})"
        return [f"its scene '{scene.where}' was changed since {changed}"]
    if drift == "moved":
        return [f"the cell is not as its scene any more (looked at {when})"]
    return []


def _enough(issued: Issued, demand: CertificateDemand) -> list[str]:
    certificate = issued.certificate
    found = list(certificate.lacking)
    least = demand.least_success
    if least is not None and not certificate.assured >= least:
        found.append(f"{assured_words(certificate)}; this cell wants {least:g}")
    return found
