"""Defines a certificate: what was shown of one policy, in which scene, and how far that reaches.

It is a statement over hashes: of the policy with all runs inside of it, of scene, suite and code.
Whoever is about to rely on it computes these again (``robolearn.operations.trust.permission``).
What it says of itself is checked when it is read: its digest, its intervals against its counts, its
judgement against its own rule. A digest shows what was edited by accident; that somebody meant what
stands there shows only a signature (``eval.trust.signature``).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal, cast

from eval.plain import write_text
from eval.statistics.intervals import wilson
from eval.trust.signature import Signature, require_signed
from eval.trust.verdict import Verdict
from eval.words import count_of, size
from robolearn.config import from_dict, to_dict
from robolearn.data.names import steering
from robolearn.errors import CertificateError, ConfigError

KIND = "robolearn certificate"
FORMAT = f"{KIND} 4"
# A certificate over a suite of 10,000 starts takes less.
MAX_BYTES = 4 * 2**20
# Nobody has more trials, and counts up to here are exact as floats.
MAX_TRIALS = 2**53
LEVEL = 0.95
# Clocks of two computers differ by less.
_CLOCKS = dt.timedelta(minutes=10)
_ROUNDING = 1e-9
_QUOTED = 400

Drift = Literal["not measured", "unmoved", "not told", "moved"]


@dataclass(frozen=True, slots=True)
class CertifiedPolicy:
    """Which policy, as it was executed."""

    name: str
    # As trials record it: run and execution.
    hash: str
    # Hash of the run with all runs inside of it, and SHA-256 of what its files say, by their path.
    run: str
    files: dict[str, str]


@dataclass(frozen=True, slots=True)
class CertifiedWorld:
    """A world by what trials record of it."""

    name: str
    hash: str
    engine: str
    kind: Literal["sim", "lab", "robot"]


@dataclass(frozen=True, slots=True)
class CertifiedScene:
    """The simulated world; ``where``: a world's name, or its folder beside the certificate."""

    world: CertifiedWorld
    where: str


@dataclass(frozen=True, slots=True)
class Counted:
    """Successes, and their rate over starts with its interval (Wilson) at :data:`LEVEL`.

    Several trials from one start are no independent ones, and an easy start that was tried often is
    no more than one: in the rate and its interval a start counts once.
    """

    trials: int
    successes: int
    # From how many different starts.
    starts: int
    # Mean over the starts of the share of each start's trials that succeeded.
    rate: float
    low: float
    high: float

    @staticmethod
    def of(starts: Sequence[Sequence[bool]]) -> Counted:
        """Of the trials of each start, which has one or more."""
        rate = math.fsum(sum(trials) / len(trials) for trials in starts) / len(starts)
        low, high = _ends(rate, len(starts))
        trials = sum(map(len, starts))
        return Counted(trials, sum(map(sum, starts)), len(starts), rate, low, high)

    @property
    def from_starts(self) -> str:
        """Where starts were tried more than once: behind the number of trials, what they tell."""
        if self.starts == self.trials:
            return ""
        where, these = count_of(self.starts, "start"), "this" if self.starts == 1 else "these"
        return f" from {where}, {self.rate:.3f} over {these}"


def _ends(rate: float, starts: int) -> tuple[float, float]:
    """Of the next possible rates of so many starts, below and above."""
    succeeded = rate * starts
    least = min(math.floor(succeeded + _ROUNDING), starts)
    most = max(math.ceil(succeeded - _ROUNDING), 0)
    return wilson(max(least, 0), starts, LEVEL).low, wilson(min(most, starts), starts, LEVEL).high


def _least_share(n: int, trials: int, starts: int) -> float:
    """Least mean over the starts of each one's share in ``n`` of the ``trials``: they are all of
    the start that has the most, and one of every other.
    """
    most = trials - starts + 1
    return (n / most if n <= most else 1.0 + n - most) / starts


@dataclass(frozen=True, slots=True)
class CertifiedTrust:
    """How far the scene may be trusted, from trials of several policies in both worlds."""

    verdict: Verdict
    why: str
    real: CertifiedWorld
    # How many policies, and the fewest trials of one.
    policies: int
    real_trials: int
    sim_trials: int
    spearman: float | None
    # By how much the simulated success of the most flattered policy exceeds its real one; at
    # least 0.
    overrated: float
    most_overrated: str


@dataclass(frozen=True, slots=True)
class StartRange:
    """Smallest and largest value of every component of a signal, over the starts tried."""

    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """Where a certificate says something."""

    conditions: tuple[str, ...]
    starts: dict[str, StartRange]
    # Whether the real table still is as its scene says, when this was written.
    drift: Drift
    drift_measured: str


@dataclass(frozen=True, slots=True)
class Rule:
    """What is enough."""

    # Real success must be at least this.
    least_success: float = 0.5
    # Verdicts about the simulator that are enough.
    verdicts: tuple[Verdict, ...] = ("ranks reliably",)
    # How long it is valid [days].
    valid_days: float = 180.0

    def __post_init__(self) -> None:
        if not self.verdicts or "not shown" in self.verdicts:
            raise ConfigError(
                "verdicts that are enough: expected 'ranks reliably', with or without 'screens"
                f" only', got {list(self.verdicts)}"
            )
        if not 0.0 < self.least_success < 1.0:
            raise ConfigError(
                f"least success must be a share between 0 and 1, got {self.least_success:g}"
            )
        if not 0.0 < self.valid_days <= 3650.0:
            raise ConfigError(f"valid days must be in (0, 3650], got {self.valid_days:g}")


@dataclass(frozen=True, slots=True)
class Certificate:
    """What was shown of one policy."""

    # UTC, ISO 8601.
    issued: str
    expires: str
    policy: CertifiedPolicy
    scene: CertifiedScene
    # name@hash.
    suite: str
    # Of the sources that decide simulated trials, and of those that drive the arm.
    code: str
    driving: str
    libraries: str
    commit: str
    # In the scene, and where the policy was among the real trials, there.
    simulated: Counted
    real: Counted | None
    trust: CertifiedTrust
    limits: Limits
    rule: Rule
    # SHA-256 over the rows of the trials that this was read off.
    simulated_rows: str
    real_rows: str
    # What else to know of these and of the other policies' trials, in words: what differs among
    # them, what did not count, what stood for reality. It decides nothing.
    remarks: tuple[str, ...]
    # Whether it is enough by its rule, and what is lacking.
    passes: bool
    lacking: tuple[str, ...]

    @property
    def assured(self) -> float:
        """The real success rate that this vouches for: the lower end of the real interval, or,
        where the policy was not tried in reality, of the simulated one less what the simulator
        flattered any policy by. Of both the lower one where it was tried in reality from a part of
        the starts alone: for the others simulation speaks.
        """
        simulated = self.simulated.low - self.trust.overrated
        if self.real is None:
            return simulated
        return min(self.real.low, simulated) if self.partly_real else self.real.low

    @property
    def partly_real(self) -> bool:
        """Whether some of the starts were tried in simulation alone."""
        return self.real is not None and self.real.starts < self.simulated.starts


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its digest (SHA-256 of its canonical JSON) and signature, if any."""

    certificate: Certificate
    digest: str
    signature: Signature | None


def lacking(certificate: Certificate) -> tuple[str, ...]:
    """What is lacking by the certificate's own rule, in sentences; empty: nothing."""
    rule, trust = certificate.rule, certificate.trust
    found: list[str] = []
    if trust.verdict not in rule.verdicts:
        found.append(
            f"trust in the simulator: '{trust.verdict}', wanted {' or '.join(rule.verdicts)}"
            f" ({trust.why})"
        )
    if certificate.limits.drift == "moved":
        found.append(
            "the real table is not as its scene says any more (looked at"
            f" {certificate.limits.drift_measured})"
        )
    if not certificate.assured >= rule.least_success:
        found.append(f"{assured_words(certificate)}: less than {rule.least_success:g}")
    return tuple(found)


def assured_words(certificate: Certificate) -> str:
    """How :attr:`Certificate.assured` comes about."""
    value = f"a real success of at least {max(0.0, certificate.assured):.3f} is shown"
    r, s, t = certificate.real, certificate.simulated, certificate.trust
    real = (
        "" if r is None else f"{r.successes} of {count_of(r.trials, 'real trial')}{r.from_starts}"
    )
    if r is not None and not certificate.partly_real:
        return f"{value} ({real})"
    margin = f", less {size(t.overrated)} by which '{t.most_overrated}' is better there than it is"
    simulated = (
        f"{s.successes} of {count_of(s.trials, 'simulated trial')}{s.from_starts}, at least"
        f" {s.low:.3f}{margin if t.overrated > 0 else ''}"
    )
    if r is None:
        return f"{value} ({simulated})"
    part = f"of {r.starts} of {count_of(s.starts, 'start')}, at least {r.low:.3f}"
    return f"{value}, the lower of two ({real}, {part}; {simulated})"


def digest_of(certificate: Any) -> str:
    """SHA-256 of JSON values in canonical form."""
    text = json.dumps(certificate, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def document(issued: Issued) -> dict[str, Any]:
    """The file's JSON values."""
    return {
        "format": FORMAT,
        "certificate": to_dict(issued.certificate),
        "digest": issued.digest,
        "signature": None if issued.signature is None else to_dict(issued.signature),
    }


def write_certificate(path: Path, issued: Issued) -> None:
    """Write the file, whole or not at all."""
    write_text(path, json.dumps(document(issued), indent=1, allow_nan=False) + "\n")


def is_certificate(path: Path) -> bool:
    """Whether a file says that it is one, of whatever version; nothing else is looked at."""
    try:
        return str(_read(path).get("format")).startswith(KIND)
    except CertificateError:
        return False


def read_certificate(path: Path, now: dt.datetime) -> Issued:
    """Read a file that may come from anywhere, and check all that it says of itself.

    ``now``: aware of its zone. Raises :class:`CertificateError` that names the file and what is
    wrong; whether the certificate fits what is to be run is not looked at.
    """
    raw = _read(path)
    if raw.get("format") != FORMAT:
        raise CertificateError(
            f"'{path}' is no certificate of this version: expected the format '{FORMAT}', got"
            f" {str(raw.get('format'))[:60]!r}; certify again"
        )
    values = raw.get("certificate")
    try:
        found = from_dict(Certificate, cast("Mapping[str, Any]", values), str(path))
        signed = raw.get("signature")
        signature = None if signed is None else from_dict(Signature, signed, f"{path}: signature")
    except (ConfigError, TypeError, AttributeError) as error:
        # It may quote whatever stands there.
        raise CertificateError(f"'{path}' is no certificate: {str(error)[:_QUOTED]}") from error
    odd = _steering(values)
    if odd:
        raise CertificateError(f"'{path}' cannot be shown: it has the control character {odd}")
    digest = digest_of(values)
    if raw.get("digest") != digest:
        raise CertificateError(
            f"'{path}' was edited after it was written (its digest does not fit): certify again"
        )
    for problem in (_contradiction(found), _out_of_time(found, now)):
        if problem:
            raise CertificateError(f"'{path}' does not hold: {problem}")
    if signature is not None:
        require_signed(digest, signature, str(path))
    return Issued(found, digest, signature)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        size = path.stat().st_size
        if not path.is_file() or size > MAX_BYTES:
            raise CertificateError(
                f"'{path}' is no certificate: {size} bytes, expected a file of at most {MAX_BYTES}"
            )
        raw = json.loads(
            path.read_text(encoding="utf-8"), parse_constant=_no_number, object_pairs_hook=_once
        )
    except OSError as error:
        raise CertificateError(f"no certificate '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CertificateError(f"'{path}' is no certificate: {error}") from error
    if not isinstance(raw, dict):
        raise CertificateError(f"'{path}' is no certificate: expected a JSON object")
    return cast("Mapping[str, Any]", raw)


def _steering(values: Any) -> str:
    """The first character of any text that must not reach a terminal or a page; "": none."""
    if isinstance(values, str):
        return steering(values)
    if isinstance(values, dict):
        return next(filter(None, map(_steering, chain.from_iterable(values.items()))), "")
    if isinstance(values, list):
        return next(filter(None, map(_steering, values)), "")
    return ""


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands there twice")
    if any(isinstance(v, float) and not math.isfinite(v) for v in found.values()):
        raise ValueError("a number is not finite")
    return found


def _contradiction(c: Certificate) -> str:
    """What cannot be true of any certificate, whoever wrote it."""
    for what, counts in (("simulated", c.simulated), ("real", c.real)):
        if counts is None:
            continue
        if not 0 <= counts.successes <= counts.trials <= MAX_TRIALS or counts.trials < 1:
            return f"{counts.successes} successes of {counts.trials} {what} trials cannot be"
        if not 1 <= counts.starts <= counts.trials:
            return f"{counts.trials} {what} trials from {counts.starts} starts cannot be"
        where = counts.trials, counts.starts
        least = _least_share(counts.successes, *where)
        most = 1.0 - _least_share(counts.trials - counts.successes, *where)
        if not least - _ROUNDING <= counts.rate <= most + _ROUNDING:
            return (
                f"the {what} rate {counts.rate:.4f} is not one of {counts.successes} successes of"
                f" {counts.trials} from {counts.starts} starts ({least:.4f} to {most:.4f})"
            )
        low, high = _ends(counts.rate, counts.starts)
        if not (abs(counts.low - low) <= _ROUNDING and abs(counts.high - high) <= _ROUNDING):
            return (
                f"the {what} interval is not that of a rate of {counts.rate:.4f} over"
                f" {counts.starts} starts ([{low:.4f}, {high:.4f}])"
            )
    if not 0.0 <= c.trust.overrated <= 1.0:
        return f"a simulator cannot flatter a policy by {c.trust.overrated:g}"
    if not c.limits.conditions or not c.policy.hash or not c.scene.world.hash or not c.suite:
        return "it names no conditions, policy, scene or suite"
    if any(len(r.low) != len(r.high) for r in c.limits.starts.values()):
        return "the ranges of its starts have two lengths"
    said, true_lacking = (c.passes, c.lacking), lacking(c)
    if said != (not true_lacking, true_lacking):
        return "its judgement is not what its own rule says"
    return ""


def _out_of_time(c: Certificate, now: dt.datetime) -> str:
    try:
        issued, expires = (dt.datetime.fromisoformat(t) for t in (c.issued, c.expires))
    except ValueError as error:
        return str(error)
    if issued.tzinfo is None or expires.tzinfo is None:
        return f"its times must say their zone, got {c.issued} and {c.expires}"
    if issued > now + _CLOCKS:
        return f"it was issued in the future ({c.issued}); is the clock of this computer right?"
    if not issued < expires <= issued + dt.timedelta(days=c.rule.valid_days, seconds=1):
        return f"it is valid until {c.expires}, which its rule does not allow"
    if expires < now:
        return f"it expired at {c.expires}; certify again"
    return ""
