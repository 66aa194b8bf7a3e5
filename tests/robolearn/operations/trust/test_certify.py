"""A certificate holds for what was tried and nothing else; who forges one is told why not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import json
import re
import shutil
from pathlib import Path

import mujoco
import pytest
import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from eval.trials.suites import load_suite
from eval.trials.table import TrialStore
from eval.trust.certificate import (
    FORMAT,
    MAX_BYTES,
    Counted,
    Issued,
    assured_words,
    digest_of,
    document,
    read_certificate,
)
from eval.trust.signature import key_notes, sign
from hardware.cell.demand import CertificateDemand, load_demand
from robolearn.cli.main import main
from robolearn.config import to_dict
from robolearn.data.provenance import git_revision
from robolearn.errors import CertificateError, ConfigError, DataError, RobolearnError
from robolearn.operations.builders import WorldInfo
from robolearn.operations.trust import permission
from robolearn.operations.trust.certified_scene import drift_of, known_scene
from robolearn.operations.trust.certify import certify
from robolearn.operations.trust.driving_hash import driving_hash
from robolearn.operations.trust.permission import permit
from robolearn.training.run_directory import CONFIG_FILE, FRAME, WEIGHTS, deciding_digests
from robolearn.types import Condition
from sim.scene.drift_record import DriftPart, write_drift
from sim.scene.load import content_hash
from tests.robolearn.operations.trust.certified_run import NOW, Workplace, reissued, workplace
from tests.robolearn.training.test_checkpoint import RUNS, edits

REQUIRED = CertificateDemand("required")
ENGINE = f"mujoco {mujoco.__version__}"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Workplace:
    return workplace(tmp_path_factory.mktemp("certified"), ENGINE)


@pytest.fixture
def quick(made, monkeypatch) -> None:
    """The scene's hash without building the world; the code's computed once."""
    code = made.issued.certificate.code
    driving = made.issued.certificate.driving
    monkeypatch.setattr(permission, "code_hash", lambda: code)
    monkeypatch.setattr(permission, "driving_hash", lambda: driving)

    def hashed(where: str, folder: Path) -> WorldInfo:
        return WorldInfo("table", content_hash(folder / where), ENGINE, "pusht", 300)

    monkeypatch.setattr(permission, "known_scene", hashed)


def allowed(made: Workplace, path: Path | None = None, now: dt.datetime = NOW, **changes):
    return permit(made.wanted(**changes), REQUIRED, lab=False, certificate=path, now=now)


def refused(made: Workplace, said: str, path: Path | None = None, **changes) -> None:
    with pytest.raises(CertificateError, match=said):
        allowed(made, path, **changes)


def test_a_certificate_says_what_was_shown_and_permits_just_that(made) -> None:
    c = made.issued.certificate
    assert (c.simulated.successes, c.simulated.trials) == (16, 16)
    assert c.real == c.simulated
    assert c.passes
    assert c.trust.verdict == "ranks reliably"
    assert c.assured == pytest.approx(Counted.of([[True]] * 16).low)
    assert c.scene.where == "../table"
    assert set(c.limits.starts) == {"tool/xy_table", "block/pose"}
    assert read_certificate(made.path, NOW) == made.issued
    found = allowed(made)
    assert (found.status, found.digest) == ("certified", made.issued.digest)
    assert found.to_json()["certificate"] == "certified"
    page = made.path.with_suffix(".html").read_text()
    assert "This policy is certified" in page
    assert made.issued.digest in page
    # Starts between those that were tried are covered.
    between = made.wanted().conditions[0]
    assert allowed(made, conditions=[dataclasses.replace(between, id="other")]).digest


def test_starts_that_were_tried_in_simulation_alone_are_vouched_for_by_simulation(made) -> None:
    """Real trials of the easy half alone were said to show its success for all starts."""
    c = made.issued.certificate
    easy, all_of_them = Counted.of([[True]] * 8), Counted.of([[True]] * 8 + [[False]] * 8)
    part = dataclasses.replace(c, real=easy, simulated=all_of_them)
    assert part.assured == pytest.approx(all_of_them.low - c.trust.overrated)
    assert "8 of 8 real trials, of 8 of 16 starts" in assured_words(part)
    worse = dataclasses.replace(
        c, real=Counted.of([[False]] * 8), simulated=Counted.of([[True]] * 16)
    )
    assert worse.assured == worse.real.low
    whole = dataclasses.replace(c, real=all_of_them, simulated=Counted.of([[True]] * 16))
    assert whole.assured == all_of_them.low


def test_another_copy_of_the_scene_where_somebody_works_is_not_looked_at(
    made, tmp_path, monkeypatch
) -> None:
    """Its drift would be another table's."""
    beside = made.path.parent
    name = "scene_of_the_certificate"
    shutil.copytree(made.scene, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    assert known_scene(name).hash
    with pytest.raises(RobolearnError, match=name):
        known_scene(name, beside)
    assert drift_of(name, beside) == ("not measured", "")


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("run", RUNS)
def test_every_edited_value_of_a_run_is_refused(made, tmp_path, run: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(made.run, folder)
    (tmp_path / "table").symlink_to(made.scene)
    assert allowed(made, run=folder).status == "certified"
    file = folder / run / "config.yaml"
    text = file.read_text()
    for edited in edits(yaml.safe_load(text)):
        file.write_text(json.dumps(edited))
        # The policy's own hash is not what gives it away: the files are compared.
        refused(made, rf"here differs {run}config\.yaml", run=folder)
    file.write_text(text)
    assert allowed(made, run=folder).status == "certified"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("run", RUNS)
def test_what_else_decides_is_refused_in_every_value(made, tmp_path, run: str) -> None:
    """Specification and statistics value by value, and the weights in every byte."""
    folder = tmp_path / "run"
    shutil.copytree(made.run, folder)
    (tmp_path / "table").symlink_to(made.scene)
    deciding = {n.removeprefix(run) for n in deciding_digests(folder) if n.startswith(run)}
    own = {name for name in deciding if "/" not in name} - {CONFIG_FILE}
    assert own == {*FRAME, WEIGHTS} - {CONFIG_FILE}
    for name in own - {WEIGHTS}:
        file = folder / run / name
        text = file.read_text()
        edited = [*edits(json.loads(text))]
        assert len(edited) > 20
        for other in edited:
            file.write_text(json.dumps(other))
            refused(made, rf"here differs {run}{name}", run=folder)
        file.write_text(json.dumps(json.loads(text), indent=3))
        assert allowed(made, run=folder).status == "certified"
    file = folder / run / WEIGHTS
    data = file.read_bytes()
    for place in range(len(data)):
        file.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        refused(made, rf"here differs {run}{WEIGHTS}", run=folder)
    file.write_bytes(data)
    assert allowed(made, run=folder).status == "certified"


@pytest.mark.usefixtures("quick")
def test_every_edited_value_of_a_scene_is_refused(made, tmp_path) -> None:
    shutil.copytree(made.scene, tmp_path / "table")
    (tmp_path / "run").mkdir()
    path = Path(shutil.copy(made.path, tmp_path / "run"))
    file = tmp_path / "table" / "scene.yaml"
    text = file.read_text()
    assert allowed(made, path).status == "certified"
    for edited in edits(yaml.safe_load(text)):
        file.write_text(json.dumps(edited))
        refused(made, "its scene '../table' was changed since", path)
    file.write_text(text)
    model = tmp_path / "table" / "scene.xml"
    before, known = model.read_text(), content_hash(tmp_path / "table")
    hashes = {known}
    # What is refused is another hash: each value changes it, and two of them are tried whole.
    values = [*re.finditer(r'"[^"]*\d[^"]*"', before)]
    for number, value in enumerate(values):
        model.write_text(before[: value.end() - 1] + "1" + before[value.end() - 1 :])
        hashes.add(content_hash(tmp_path / "table"))
        if number in (0, len(values) - 1):
            refused(made, "was changed since", path)
    assert len(hashes) == 1 + len(values) > 40
    model.write_text(before)
    assert content_hash(tmp_path / "table") == known
    table = DriftPart(
        "moved", 8.0, 0.5, None, None, "clamp it", "photo", "2026-11-23T11:00:00+00:00"
    )
    write_drift(tmp_path / "table", "table", content_hash(tmp_path / "table"), {"table": table})
    refused(made, "the cell is not as its scene any more .looked at 2026", path)
    shutil.rmtree(tmp_path / "table")


def test_a_scene_that_is_gone_or_broken_is_refused(made, tmp_path) -> None:
    (tmp_path / "run").mkdir()
    path = Path(shutil.copy(made.path, tmp_path / "run"))
    refused(made, "cannot be looked at", path)
    shutil.copytree(made.scene, tmp_path / "table")
    assert allowed(made, path).status == "certified"
    with (tmp_path / "table" / "scene.yaml").open("a") as file:
        file.write("# a remark\n")
    refused(made, "was changed since", path)


@pytest.mark.usefixtures("quick")
def test_every_edited_value_of_a_suite_is_refused(made, tmp_path) -> None:
    whole = yaml.safe_load(made.suite.read_text())
    raw = {**whole, "conditions": whole["conditions"][:2]}
    file = tmp_path / "suite.yaml"
    file.write_text(yaml.safe_dump(raw))
    # Beside the run, whose scene it names.
    path = reissued(made.run / "small.json", made.issued, suite=load_suite(file).label)
    same = load_suite(file)
    assert allowed(made, path, suite=same.label, conditions=same.select(2)).digest
    tried = 0
    for edited in edits(raw):
        file.write_text(json.dumps(edited))
        try:
            suite = load_suite(file)
        except RobolearnError:
            continue
        tried += 1
        refused(made, "it is of the suite", path, suite=suite.label, conditions=suite.select(1))
    assert tried > 20


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"cell": "other"}, "its real trials are of the cell 'cell'.*here is 'other'"),
        ({"cell_hash": "moved"}, "of the cell 'cell' .h-cell. as it was then"),
        ({"policy_hash": "x+lead=1"}, "here is 'p7' .x.lead=1."),
        ({"run": None, "policy_hash": "x"}, "there is none"),
        (
            {"conditions": [Condition("far", 0, {"tool/xy_table": (9.0, 0.1)})]},
            "does not cover the starts far",
        ),
    ],
    ids=("cell", "cell's config", "execution", "server", "start"),
)
def test_what_was_not_tried_is_refused(made, changes, said) -> None:
    refused(made, said, **changes)


def test_other_code_is_refused(made, monkeypatch) -> None:
    monkeypatch.setattr(permission, "code_hash", lambda: "0" * 16)
    refused(made, "it is of other code")


def test_other_code_that_drives_the_arm_is_refused(made, monkeypatch) -> None:
    assert made.issued.certificate.driving == driving_hash()
    monkeypatch.setattr(permission, "driving_hash", lambda: "0" * 16)
    refused(made, "the code that drives the arm was changed since it was certified .*, here 0000")


def test_real_trials_of_another_version_are_said(made, tmp_path) -> None:
    """A row keeps the commit that it was run at; what is bound is the code that is here."""
    for commit, said in ((git_revision(), False), ("f" * 40, True), ("", True)):
        folder = tmp_path / (commit or "none")
        with TrialStore(made.folder / "real") as table:
            rows = table.all()
        with TrialStore(folder) as table:
            table.add([dataclasses.replace(r, commit=commit) for r in rows])
        found = certify(dataclasses.replace(made.options, real=(folder,)), tmp_path / "c.json", NOW)
        words = f"real trials were run at commit {commit or 'not known'}: "
        remarks = found.issued.certificate.remarks
        assert [words in note for note in remarks if "commit" in note] == [True] * said


def test_what_trust_remarks_reaches_certificate_page_and_terminal(made, tmp_path, capsys) -> None:
    """All remarks on the trials were dropped: other libraries under the other policies, voided
    real trials, a simulated world as reality, a folder without its plan.
    """
    sim, real = tmp_path / "sim\u202e", tmp_path / "real\u202e"
    with TrialStore(made.folder / "sim") as table:
        rows = table.all()
    with TrialStore(sim) as table:
        table.add([
            dataclasses.replace(r, libraries="numpy 3") if r.policy == "p2" and i % 4 == 0 else r
            for i, r in enumerate(rows)
        ])  # fmt: skip
    with TrialStore(made.folder / "real") as table:
        rows = table.all()
    with TrialStore(real) as table:
        table.add([
            dataclasses.replace(
                r,
                kind="sim",
                plan="b" * 16,
                status="voided" if r.policy == "p1" and i % 8 == 0 else "finished",
            )
            for i, r in enumerate(rows)
        ])  # fmt: skip
    options = dataclasses.replace(made.options, evaluation=(sim,), real=(real,))
    path = tmp_path / "c.json"
    remarks = certify(options, path, NOW).issued.certificate.remarks
    for said in (
        "sim\\u202e: 4 trials are kept apart: different versions of libraries (numpy 3",
        "pusht: real: 2 trials of moved or repeated starts, voided or running, do not count",
        "pusht: reality is a simulated world here: 'cell'",
        f"plan {'b' * 16}, under which 128 trials of",
    ):
        assert [n for n in remarks if said in n], (said, remarks)
    assert read_certificate(path, NOW).certificate.remarks == remarks
    page = html.unescape(path.with_suffix(".html").read_text())
    assert all(n in page for n in remarks)
    words = ["certify", str(made.run), "--evaluation", str(sim), "--real", str(real)]
    words += ["--scene", str(made.scene), "--suite", str(made.suite), "--out", str(path)]
    main(words)
    told = capsys.readouterr().out
    assert all(f"note: {n}" in told for n in remarks)
    # The digest, and so a signature, is over them, too.
    whole = json.loads(path.read_text())
    whole["certificate"]["remarks"] = []
    path.write_text(json.dumps(whole))
    with pytest.raises(CertificateError, match="edited after it was written"):
        read_certificate(path, dt.datetime.now(dt.UTC))


def changed(part: str, **values):
    """A certificate in whose ``part`` somebody wrote other values."""
    return lambda c: {part: dataclasses.replace(getattr(c, part), **values)}


FORGED = {
    "interval": ("real interval is not that of a rate of 1.0000", changed("real", low=0.99)),
    "rate": ("rate 0.9000 is not one of 16 successes of 16", changed("real", rate=0.9)),
    "repeated": (
        "rate 1.0000 is not one of 101 successes of 116 from 16 starts .0.0625 to 0.9907.",
        changed("real", trials=116, successes=101),
    ),
    "counts": ("cannot be", lambda c: {"simulated": Counted(4, 5, 4, 1.0, 0.5, 1.0)}),
    "endless counts": (
        "trials cannot be",
        changed("real", trials=10**400, successes=10**400, starts=16),
    ),
    "starts": ("from 17 starts cannot be", changed("real", starts=17)),
    "more starts": ("a rate of 1.0000 over 8 starts", changed("real", starts=8)),
    "negative": ("cannot flatter", changed("trust", overrated=-0.4)),
    "judgement": ("not what its own rule says", changed("trust", verdict="not shown")),
    "future": ("issued in the future", lambda c: {"issued": "2031-01-01T00:00:00+00:00"}),
    "endless": ("its rule does not allow", lambda c: {"expires": "2099-01-01T00:00:00+00:00"}),
    "clock": ("must say their zone", lambda c: {"issued": "2026-11-23T12:00:00"}),
    "words": ("Invalid isoformat", lambda c: {"issued": "today"}),
    "replayed": ("here differs config.yaml", changed("policy", files={"config.yaml": "0"})),
    "swapped": ("here is 'p7'", changed("policy", hash="0" * 16)),
    "code": ("other code", lambda c: {"code": "1"}),
    "driving": ("drives the arm was changed", lambda c: {"driving": "1"}),
    "nowhere": ("names no conditions", changed("limits", conditions=())),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("name", FORGED)
def test_a_forged_certificate_is_refused_by_name(made, name: str) -> None:
    said, changes = FORGED[name]
    forged = changes(made.issued.certificate)
    refused(made, said, reissued(made.run / "forged.json", made.issued, **forged))


def test_a_number_that_is_none_is_refused(made, tmp_path) -> None:
    whole = document(made.issued)
    whole["certificate"]["real"]["low"] = "nan"
    whole["digest"] = digest_of(whole["certificate"])
    path = tmp_path / "c.json"
    path.write_text(json.dumps(whole))
    with pytest.raises(CertificateError, match="real interval is not that"):
        read_certificate(path, NOW)


def test_a_text_that_steers_is_refused_wherever_it_stands(made, tmp_path) -> None:
    for part, name in (("trust", "most_overrated"), ("policy", "name"), ("limits", "conditions")):
        whole = document(made.issued)
        odd = "p\nit holds"
        whole["certificate"][part][name] = [odd] if name == "conditions" else odd
        whole["digest"] = digest_of(whole["certificate"])
        path = tmp_path / "c.json"
        path.write_text(json.dumps(whole))
        with pytest.raises(CertificateError, match=r"has the control character U\+000A"):
            read_certificate(path, NOW)


def test_an_edited_value_does_not_fit_the_digest(made, tmp_path) -> None:
    whole = document(made.issued)
    path = tmp_path / "c.json"
    tried = 0
    for edited in edits(whole["certificate"]):
        path.write_text(json.dumps({**whole, "certificate": edited}))
        with pytest.raises(CertificateError):
            read_certificate(path, NOW)
        tried += 1
    assert tried > 100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no certificate"),
        ("[1]", "expected a JSON object"),
        ('{"format": NaN}', "NaN is no number"),
        ('{"format": 1e999}', "not finite"),
        ('{"format": 1, "format": 2}', "stands there twice"),
        ("{" * 100_000, "no certificate"),
        ('{"a":' * 100_000, "no certificate"),
        ('{"format": "robolearn certificate 3"}', "of this version: expected .* certify again"),
        (f'{{"format": "{FORMAT}"}}', "no certificate"),
        (f'{{"format": "{FORMAT}", "certificate": []}}', "no certificate"),
        (f'{{"format": {"[" * 900}{"]" * 900}}}', "no certificate of this version"),
        (
            f'{{"format": "{FORMAT}", "certificate": {{"issued": {"[" * 900}{"]" * 900}}}}}',
            "is no certificate",
        ),
        (" " * (MAX_BYTES + 1), "bytes, expected a file of at most"),
    ],
    ids=lambda v: v[:20] if isinstance(v, str) else "",
)
def test_files_that_are_none_are_refused(tmp_path, text: str, said: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(CertificateError, match=said) as refused:
        read_certificate(path, NOW)
    assert len(str(refused.value)) < 1_000
    with pytest.raises(CertificateError, match="no certificate"):
        read_certificate(tmp_path, NOW)


def test_a_rule_that_asks_for_nothing_is_none(made, tmp_path) -> None:
    whole = document(made.issued)
    for verdicts in ([], ["ranks reliably", "not shown"]):
        whole["certificate"]["rule"]["verdicts"] = verdicts
        whole["digest"] = digest_of(whole["certificate"])
        path = tmp_path / "c.json"
        path.write_text(json.dumps(whole))
        with pytest.raises(CertificateError, match="verdicts that are enough"):
            read_certificate(path, NOW)


def test_a_start_counts_once_however_often_it_was_tried() -> None:
    once, often = (Counted.of([[True] * n] * 14 + [[False] * n] * 2) for n in (1, 5))
    assert (often.rate, often.low, often.high) == (once.rate, once.low, once.high)
    # A rate between two of sixteen: cautious on both sides.
    between = Counted.of([[True] * 5] * 14 + [[True, False, False, False, False]] * 2)
    more = Counted.of([[True]] * 15 + [[False]])
    assert (between.low, between.high) == (once.low, more.high)
    assert between.rate == pytest.approx(14.4 / 16)


@pytest.mark.parametrize("known", [True, False], ids=("tried in reality", "simulated alone"))
def test_an_easy_start_that_is_repeated_certifies_nothing(made, tmp_path, known) -> None:
    """One start of sixteen is solved; that one was tried 101 times: .87 of the trials."""
    for name in ("sim", "real"):
        shutil.copytree(made.folder / name, tmp_path / name)
        with TrialStore(tmp_path / name) as table:
            every = table.all()
            own = [r for r in every if r.policy == "p7"]
            rest = [r for r in every if r.policy != "p7"]
            lost = [dataclasses.replace(r, success=False, score=0.3, final_progress=0.2,
                                        reason="time_limit") for r in own[1:]]  # fmt: skip
            easy = [
                dataclasses.replace(own[0], seed=own[0].seed + 1_000 * n,
                                    episode=f"again-{n}" if name == "real" else "")
                for n in range(101)
            ]  # fmt: skip
        shutil.rmtree(tmp_path / name)
        with TrialStore(tmp_path / name) as table:
            table.add(rest + (lost + easy if known or name == "sim" else []))
    options = dataclasses.replace(
        made.options, evaluation=(tmp_path / "sim",), real=(tmp_path / "real",)
    )
    c = certify(options, tmp_path / "c.json", NOW).issued.certificate
    counted = c.simulated if c.real is None else c.real
    assert (c.real is not None) == known
    assert (counted.successes, counted.trials, counted.starts) == (101, 116, 16)
    assert counted.rate == pytest.approx(1 / 16)
    assert counted.low < 0.02
    assert not c.passes
    assert "(101 of 116" in c.lacking[-1]
    assert "from 16 starts, 0.062 over these" in c.lacking[-1]
    assert read_certificate(tmp_path / "c.json", NOW).certificate == c


def test_trials_of_other_tasks_beside_the_own_do_not_count(made, tmp_path) -> None:
    """Another task on another cell, in a scene of its own, was 'several worlds'."""
    for name, cell in (("sim", "lift_scene"), ("real", "lift_cell")):
        with TrialStore(made.folder / name) as table:
            rows = table.all()
        with TrialStore(tmp_path / name) as table:
            table.add([
                dataclasses.replace(
                    r, env=cell, env_hash="lift", suite="lift@1", success=False, score=0.1,
                    final_progress=0.1, reason="time_limit",
                    episode=r.episode and f"lift-{r.episode}",
                )
                for r in rows
            ])  # fmt: skip
    options = dataclasses.replace(
        made.options,
        evaluation=(made.folder / "sim", tmp_path / "sim"),
        real=(tmp_path / "real", made.folder / "real"),
    )
    found = certify(options, tmp_path / "c.json", NOW).issued.certificate
    assert (found.real, found.simulated) == (made.issued.certificate.real,) * 2
    assert found.trust == made.issued.certificate.trust


def test_changed_worlds_beside_the_real_one_do_not_count(made, tmp_path) -> None:
    """Trials of the cell with another block are no trials of the cell."""
    shutil.copytree(made.folder / "real", tmp_path / "real")
    with TrialStore(tmp_path / "real") as table:
        spoilt = [
            dataclasses.replace(r, env="cell~mass=1", env_hash="h-heavy", success=False, score=0.1,
                                reason="time_limit", episode=f"heavy-{i}")
            for i, r in enumerate(table.all())
        ]  # fmt: skip
        table.add(spoilt)
    options = dataclasses.replace(made.options, real=(tmp_path / "real",))
    found = certify(options, tmp_path / "c.json", NOW).issued.certificate
    assert found.real == made.issued.certificate.real
    assert found.trust.real == made.issued.certificate.trust.real


def test_trials_that_are_being_written_are_certified_when_they_are_done(made, tmp_path) -> None:
    for name in ("evaluation", "real"):
        (folder,) = getattr(made.options, name)
        with (
            TrialStore(folder),
            pytest.raises(DataError, match=f"being written into '{folder}': certify when"),
        ):
            certify(made.options, tmp_path / "c.json", NOW)
    assert not (tmp_path / "c.json").exists()


def test_a_table_that_is_known_to_have_moved_certifies_nothing(made, tmp_path) -> None:
    for verdict, when, passes in (
        ("moved", "2026-11-23T11:00:00+00:00", False),
        ("unmoved", "2026-11-23T11:00:00+00:00", True),
        ("unmoved", "2016-11-23T11:00:00+00:00", True),
    ):
        part = DriftPart(verdict, 8.0, 0.5, None, None, "clamp it", "photo", when)
        write_drift(made.scene, "table", content_hash(made.scene), {"table": part})
        try:
            found = certify(made.options, tmp_path / "c.json", NOW)
        finally:
            (made.scene / "drift.json").unlink()
        c = found.issued.certificate
        assert (c.passes, not c.lacking) == (passes, passes)
        assert read_certificate(tmp_path / "c.json", NOW) == found.issued
        if not passes:
            assert "not as its scene says any more (looked at 2026-11-23" in c.lacking[0]
        old = [f"looked at last on {when}, more than 180 days ago (unmoved)"] * (when[:4] == "2016")
        looked = [n for n in c.remarks if "looked at last" in n]
        assert len(looked) == len(old)
        assert all(o in n for o, n in zip(old, looked, strict=True))


def test_an_old_one_is_refused(made) -> None:
    later = NOW + dt.timedelta(days=181)
    with pytest.raises(CertificateError, match="expired"):
        read_certificate(made.path, later)


def pem_of(private) -> bytes:
    """A private key as a file holds it."""
    return private.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def test_signatures(made, tmp_path) -> None:
    def pem(private) -> Path:
        path = tmp_path / "key.pem"
        path.write_bytes(pem_of(private))
        return path

    signed = sign(made.issued.digest, pem(ed25519.Ed25519PrivateKey.generate()))
    file = made.run / "signed.json"
    issued = Issued(made.issued.certificate, made.issued.digest, signed)
    file.write_text(json.dumps(document(issued)))
    demand = CertificateDemand("required", keys=(signed.key,))
    found = permit(made.wanted(), demand, lab=False, certificate=file, now=NOW)
    assert found.signed_by == signed.key
    others = CertificateDemand("required", keys=("0" * 64,))
    for path, wanted, said in (
        (made.path, demand, "believes signed ones only"),
        (file, others, "whom this cell does not believe"),
    ):
        with pytest.raises(CertificateError, match=said):
            permit(made.wanted(), wanted, lab=False, certificate=path, now=NOW)
    # Somebody else's text under a good signature, and a signature that is none.
    weaker = dataclasses.replace(made.issued.certificate, commit="x")
    for forged in (
        Issued(weaker, digest_of(to_dict(weaker)), signed),
        dataclasses.replace(issued, signature=dataclasses.replace(signed, value="00")),
        dataclasses.replace(issued, signature=dataclasses.replace(signed, key="0" * 64)),
    ):
        file.write_text(json.dumps(document(forged)))
        with pytest.raises(CertificateError, match="signature is not one"):
            read_certificate(file, NOW)
    key = pem(ed25519.Ed25519PrivateKey.generate())
    for mode, open_ in ((0o600, False), (0o400, False), (0o640, True), (0o644, True)):
        key.chmod(mode)
        assert [f"mode {mode:o}" in note for note in key_notes(key)] == [True] * open_
    with pytest.raises(ConfigError, match="expected an Ed25519 key"):
        sign("d", pem(ec.generate_private_key(ec.SECP256R1())))
    (tmp_path / "key.pem").write_text("nothing")
    with pytest.raises(ConfigError, match="no private key"):
        sign("d", tmp_path / "key.pem")


@pytest.mark.usefixtures("quick")
def test_who_demands_one_and_who_lets_it_drive_all_the_same(made, tmp_path) -> None:
    bare = made.wanted(run=None)
    usual = CertificateDemand()
    with pytest.raises(CertificateError, match="the cell 'cell' demands a certificate: there is"):
        permit(bare, usual, lab=False)
    assert permit(bare, usual, lab=True).to_json() == {"certificate": "uncertified"}
    assert permit(bare, CertificateDemand("optional"), lab=False).status == "uncertified"
    with pytest.raises(CertificateError):
        permit(bare, REQUIRED, lab=True)
    accepted = permit(bare, usual, lab=False, accept="the gripper is new")
    assert accepted.to_json() == {
        "certificate": "accepted",
        "uncertified_because": "there is none",
        "uncertified_accepted": "the gripper is new",
    }
    for reason in ("  ", "two\nlines", "x" * 501):
        with pytest.raises(ConfigError, match="one line of at most 500"):
            permit(bare, usual, lab=False, accept=reason)
    # Where none is demanded, one that does not hold is told, and one that was named refused.
    other = made.wanted(cell="other")
    assert "here is 'other'" in permit(other, usual, lab=True, now=NOW).told()
    with pytest.raises(CertificateError):
        permit(other, usual, lab=True, certificate=made.path, now=NOW)
    more = CertificateDemand("required", least_success=0.95)
    with pytest.raises(CertificateError, match="this cell wants"):
        permit(made.wanted(), more, lab=False, now=NOW)


def test_a_cell_says_what_it_demands(tmp_path) -> None:
    path = tmp_path / "cell.yaml"
    for text, demand in (
        ("robot: {}\n", CertificateDemand()),
        ("certificate: required\n", REQUIRED),
        ("certificate: {demand: optional}\n", CertificateDemand("optional")),
    ):
        path.write_text(text)
        assert load_demand(path) == demand
    assert REQUIRED.required(lab=True)
    assert CertificateDemand().required(lab=False)
    assert not CertificateDemand().required(lab=True)
    for text, said in (
        ("certificate: maybe\n", "demand"),
        ("certificate: 3\n", "expected required, optional or a mapping"),
        ("certificate: {least_success: 2}\n", "between 0 and 1"),
    ):
        path.write_text(text)
        with pytest.raises(ConfigError, match=said):
            load_demand(path)


def test_trials_that_say_nothing_of_the_run_are_refused(made, tmp_path, monkeypatch) -> None:
    out = tmp_path / "c.json"
    other = tmp_path / "run"
    shutil.copytree(made.run, other)
    (other / "digests.json").unlink()
    (other / "config.yaml").write_text("policy: other\n")
    for changes, said in (
        ({"run": other}, "no simulated trials of the policy in"),
        ({"policy": "p3"}, "no simulated trials of the policy in"),
        ({"scene": "pusht_reference"}, "none of them|no trials are left"),
        ({"suite": Path("configs/eval/pusht.yaml")}, "was changed since, or is another one"),
        ({"real": made.options.evaluation}, "trials"),
        ({"real": ()}, "takes trials of both worlds"),
    ):
        with pytest.raises(RobolearnError, match=said):
            certify(dataclasses.replace(made.options, **changes), out, NOW)
    from robolearn.operations.trust import certify as module

    monkeypatch.setattr(module, "code_hash", lambda: "other")
    with pytest.raises(DataError, match="made by other code"):
        certify(made.options, out, NOW)
    assert not out.exists()


def test_the_command_writes_and_says_what_is_lacking(made, capsys) -> None:
    out = made.folder / "strict.json"
    words = ["certify", str(made.run), "--evaluation", str(made.folder / "sim")]
    words += ["--real", str(made.folder / "real"), "--scene", str(made.scene)]
    words += ["--suite", str(made.suite), "--out", str(out)]
    assert main([*words, "--least-success", "0.95"]) == 1
    assert "not enough: a real success of at least 0.806 is shown" in capsys.readouterr().out
    refused(made, "less than 0.95", out, now=dt.datetime.now(dt.UTC))
    # A certificate is written anew; what is none stays.
    assert main([*words, "--least-success", "0.95"]) == 1
    capsys.readouterr()
    spec = made.folder / "spec.json"
    spec.write_text('{"name": "of a run"}')
    assert main([*words[:-1], str(spec)]) == 2
    assert "exists and is no certificate" in capsys.readouterr().err
    assert spec.read_text() == '{"name": "of a run"}'
    key = made.folder / "key.pem"
    key.write_bytes(pem_of(ed25519.Ed25519PrivateKey.generate()))
    assert main([*words, "--sign", str(key), "--json"]) == 0
    written = json.loads(capsys.readouterr().out)
    assert written["certificate"]["passes"]
    assert read_certificate(out, dt.datetime.now(dt.UTC)).signature == sign(written["digest"], key)
