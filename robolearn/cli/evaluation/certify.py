"""``robolearn certify RUN`` writes down what was shown of a policy, for ``deploy`` to rely on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from robolearn.cli.shared.output_path import output_file
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Args:
    """Certify a policy: its success with its interval, how far the simulator may be trusted, and
    where that holds; bound to policy, scene, suite and code by their hashes (docs/trust.md).
    """

    # Run directory of the policy.
    run: Annotated[Path, tyro.conf.Positional]
    # Results folders of simulated trials of this policy and of others (robolearn evaluate).
    evaluation: tuple[Path, ...]
    # Results folders of real trials of several of them.
    real: tuple[Path, ...]
    # The certificate; its page is written beside it. Default: certificate.json in the run.
    out: Path | None = None
    # The policy's name in the trials, where it was executed in several ways.
    policy: str = ""
    # The simulated world's name or folder; default: the only one in the trials.
    scene: str = ""
    # The world that stands for reality, where there are several.
    real_world: str = ""
    # The suite of the trials; default: that of its name in configs/eval.
    suite: Path | None = None
    # Real success that must be shown: by the lower end of an interval.
    least_success: float = 0.5
    # A simulator that only screens is enough, too.
    screening: bool = False
    # How long it is valid [days].
    valid_days: float = 180.0
    # Private key to sign with (openssl genpkey -algorithm ed25519 -out key.pem).
    sign: Path | None = None
    # Print the certificate's JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Write it; exit code 1 where what was shown is not enough."""
    args = parse(Args, argv, "certify", Args.__doc__ or "")
    from eval.trust.certificate import Rule, assured_words, document
    from robolearn.operations.trust.certify import CertifyOptions, certify
    from robolearn.operations.trust.permission import FILE

    out = args.out or args.run / FILE
    output_file(out, "--out", (".json",))
    _require_replaceable(out)
    rule = Rule(
        args.least_success,
        ("ranks reliably", "screens only") if args.screening else ("ranks reliably",),
        args.valid_days,
    )
    found = certify(
        CertifyOptions(
            run=args.run,
            evaluation=args.evaluation,
            real=args.real,
            policy=args.policy,
            scene=args.scene,
            real_world=args.real_world,
            suite=args.suite,
            rule=rule,
            key=args.sign,
        ),
        out,
    )
    certificate = found.issued.certificate
    if args.json:
        print_json(document(found.issued))
    say(f"{certificate.policy.name}: {assured_words(certificate)}", quiet=args.json)
    say(f"the simulator: {certificate.trust.verdict}", quiet=args.json)
    for words in certificate.lacking:
        say(f"not enough: {words}", quiet=args.json)
    for words in (*certificate.remarks, *found.notes):
        say(f"note: {words}", quiet=args.json)
    if found.issued.signature is not None:
        say(f"signed by {found.issued.signature.key}", quiet=args.json)
    say(f"written: {found.path}, {found.page}", quiet=args.json)
    return 0 if certificate.passes else 1


def _require_replaceable(out: Path) -> None:
    """ConfigError for a file that is there and is no certificate: a run's own, say."""
    if not out.exists():
        return
    from eval.trust.certificate import is_certificate

    if not is_certificate(out):
        raise ConfigError(
            f"--out: '{out}' exists and is no certificate; give another name, or move it away"
        )
