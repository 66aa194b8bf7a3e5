"""A run, a scene, a suite, and trials of eight policies in a scene and on a cell."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from dataclasses import dataclass
from pathlib import Path

from eval.trials.suites import load_suite
from eval.trials.table import TrialStore
from eval.trust.certificate import Issued, digest_of, write_certificate
from robolearn.config import to_dict
from robolearn.operations.code_hash import code_hash
from robolearn.operations.trust.certify import CertifyOptions, certify
from robolearn.operations.trust.permission import Wanted
from robolearn.training.run_directory import policy_hash
from sim.scene.load import content_hash, packaged_scenes, scene_folder
from tests.eval.report_folder import trial
from tests.robolearn.training.test_checkpoint import make_chain

NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)
SUITE = Path("configs/eval/pusht.yaml")
STARTS = 16


@dataclass(frozen=True, slots=True)
class Workplace:
    """Where everything lies, and the certificate that stands there."""

    folder: Path
    run: Path
    scene: Path
    suite: Path
    options: CertifyOptions
    path: Path
    issued: Issued

    asked: Wanted

    def wanted(self, **changes) -> Wanted:
        """What a deployment of just this asks for."""
        return dataclasses.replace(self.asked, **changes)


@dataclass(frozen=True, slots=True)
class Driven:
    """The cell of the real trials, as trials record it, and how the policies were executed."""

    cell: str = "cell"
    cell_hash: str = "h-cell"
    how: str = ""


HERE = Driven()


def workplace(
    folder: Path,
    engine: str,
    driven: Driven = HERE,
    key: Path | None = None,
    now: dt.datetime = NOW,
) -> Workplace:
    """All of it in ``folder``; ``engine``: what the scene's world calls itself; ``key``: signs."""
    run = make_chain(folder / "run")
    scene = folder / "table"
    assert "pusht_naive" in packaged_scenes()
    shutil.copytree(scene_folder("pusht_naive"), scene)
    suite = folder / "suite.yaml"
    lines = SUITE.read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("conditions"))
    head = [
        line.replace("subset: 25", "subset: 2").replace("max_steps: 300", "max_steps: 3")
        for line in lines[: first + 1]
    ]
    suite.write_text("\n".join([*head, *lines[first + 1 : first + 1 + STARTS]]) + "\n")
    listed = load_suite(suite)
    label = listed.label
    code = code_hash()
    hashes = [
        f"{digest}{driven.how}" for digest in (*(f"h-p{i}" for i in range(7)), policy_hash(run))
    ]
    for name, kind in (("sim", "sim"), ("real", "robot")):
        with TrialStore(folder / name) as store:
            store.add([
                _record(k, i, kind, content_hash(scene), hashes[k], label, engine, code, driven)
                for k in range(8) for i in range(STARTS)
            ])  # fmt: skip
    options = CertifyOptions(
        run=run,
        evaluation=(folder / "sim",),
        real=(folder / "real",),
        scene=str(scene),
        suite=suite,
        key=key,
    )
    path = run / "certificate.json"
    asked = Wanted(
        run=run,
        policy="p7",
        policy_hash=hashes[-1],
        suite=label,
        conditions=listed.select(3),
        cell=driven.cell,
        cell_hash=driven.cell_hash,
    )
    issued = certify(options, path, now).issued
    return Workplace(folder, run, scene, suite, options, path, issued, asked)


def _record(
    k: int,
    i: int,
    kind: str,
    scene: str,
    policy: str,
    suite: str,
    engine: str,
    code: str,
    driven: Driven,
):
    good = i < 2 * k + 2
    simulated = kind == "sim"
    return trial(
        *(f"p{k}", "table" if simulated else driven.cell, i, 0.9 if good else 0.3, good),
        policy_hash=policy, suite=suite, kind=kind, reason="success" if good else "time_limit",
        env_hash=scene if simulated else driven.cell_hash, engine=engine if simulated else "robot",
        code=code if simulated else "", episode="" if simulated else f"ep-{k}-{i}",
    )  # fmt: skip


def reissued(path: Path, original: Issued, **changes) -> Path:
    """A certificate that somebody wrote who computes digests, too."""
    forged = dataclasses.replace(original.certificate, **changes)
    write_certificate(path, Issued(forged, digest_of(to_dict(forged)), None))
    return path
