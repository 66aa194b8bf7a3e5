"""A signed certificate lets a policy drive through a whole ``deploy``, and nothing like it does."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mujoco
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from eval.trust.certificate import Certificate, Issued, digest_of, document
from eval.trust.signature import sign
from hardware.cell.demand import load_demand
from hardware.cell.load import load_cell
from hardware.env.real_env import RealEnv
from hardware.supervisor.link import Cause, Event, Mode, Status
from robolearn.cli.deploy import command
from robolearn.cli.shared.parse import parse
from robolearn.config import config_hash, to_dict
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import CertificateError, ConfigError
from robolearn.inference.local import InProcessInference
from robolearn.operations.builders import executed_as
from robolearn.operations.code_hash import PACKAGES, ROOT, code_hash
from robolearn.operations.deploy import run as deploy_run
from robolearn.operations.deploy.opened import CheckedCell
from robolearn.operations.deploy.policy import Source
from robolearn.operations.deploy.result import Preflight
from robolearn.operations.trust import permission
from robolearn.operations.trust.certified_scene import known_scene
from robolearn.operations.trust.driving_hash import driving_hash
from robolearn.spec import EmbodimentSpec
from robolearn.timing.latencies import Latencies
from robolearn.training.run_directory import policy_hash
from robolearn.types import Capabilities, Signals
from sim.contract import World
from sim.worlds import make_world
from tests.hardware.lab import CONFIG
from tests.mocks import WalkPolicy
from tests.robolearn.operations.trust.certified_run import Driven, Workplace, workplace

ENGINE = f"mujoco {mujoco.__version__}"
FORWARDED = ("reset", "now_ns", "observe", "apply", "advance", "drain", "outcome", "close")


class Answering(InProcessInference):
    """A policy in this process that knows what it reads."""

    spec = WalkPolicy().spec


class StandIn(RealEnv):
    """A simulated world in the place of an arm."""

    def __init__(self, cell: Any, world: World) -> None:
        self.config, self._world, self.tick_lateness_ns = cell, world, []
        for name in FORWARDED:
            setattr(self, name, getattr(world, name))

    @property
    def spec(self) -> EmbodimentSpec:
        return self._world.spec

    def late(self, until_ns: int) -> None:
        """In a world nothing is under way."""

    @property
    def capabilities(self) -> Capabilities:
        return self._world.capabilities

    @property
    def overruns(self) -> int:
        return 0

    @property
    def implausible_poses(self) -> int:
        return 0

    @property
    def standing(self) -> Signals:
        return {}

    @property
    def interventions(self) -> list[Event]:
        return []

    def status(self) -> Status:
        return Status(0, Mode.HOLD, Cause.NONE, 0, False, 0, 0, 0, False)

    def hold(self) -> None:
        """It stands."""

    def home(self) -> None:
        """It is there."""


@dataclasses.dataclass(frozen=True)
class Shop:
    """A certified policy, the cell that it is certified for, and who signs."""

    made: Workplace
    cell: Path
    key: Path
    public: str

    def write(self, issued: Issued, name: str = "other.json") -> Path:
        """A certificate beside the true one, whose folder finds the scene."""
        path = self.made.run / name
        path.write_text(json.dumps(document(issued)))
        return path


def new_key(path: Path) -> Path:
    path.write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return path


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """Certified now, by a key that the cell believes."""
    folder = tmp_path_factory.mktemp("shop")
    key = new_key(folder / "key.pem")
    public = sign("", key).key
    cell = folder / "cell.yaml"
    cell.write_text(f"{CONFIG.read_text()}certificate: {{demand: required, keys: [{public}]}}\n")
    words = ["r", "--robot", str(cell), "--out", "o"]
    executed = command.options_of(parse(command.Args, words, "deploy", "")).executed
    how = executed_as("", "", execution=executed)[1]
    driven = Driven(load_cell(cell).name, config_hash(to_dict(load_cell(cell)), 0), how)
    made = workplace(folder, ENGINE, driven, key, dt.datetime.now(dt.UTC))
    return Shop(made, cell, key, public)


@pytest.fixture
def deploy(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``robolearn deploy`` of the policy for one trial in a world that stands for the arm; what its
    episode keeps.
    """

    def opened(*_: Any, **__: Any) -> Source:
        name, digest = shop.made.run.name, policy_hash(shop.made.run)
        return Source(Answering(WalkPolicy()), name, digest, str(shop.made.run))

    def standing(stack: Any, wanted: Any, *_: Any) -> CheckedCell:
        world = make_world("pusht_reference")
        stack.callback(world.close)
        preflight = Preflight(False, False, 0.0, Latencies(), None)
        return CheckedCell(StandIn(wanted.chosen.cell, world), preflight, "reference")

    monkeypatch.setattr(deploy_run, "open_policy", opened)
    monkeypatch.setattr(deploy_run, "open_checked", standing)
    monkeypatch.setattr(permission, "code_hash", functools.cache(code_hash))
    monkeypatch.setattr(permission, "driving_hash", functools.cache(driving_hash))
    monkeypatch.setattr(permission, "known_scene", functools.cache(known_scene))

    def run(*more: str) -> dict[str, Any]:
        out = tmp_path / "out"
        words = [str(shop.made.run), "--robot", str(shop.cell), "--out", str(out), "--yes"]
        words += ["--suite", str(shop.made.suite), "--episodes", "1"]
        assert command.main([*words, "--no-video", *more]) == 0
        store = EpisodeStore.open(out / "store")
        (episode,) = store.ids()
        return dict(store.meta(episode).provenance)

    return run


def test_what_a_known_key_signed_lets_it_drive(shop: Shop, deploy: Any) -> None:
    kept = deploy()
    assert kept["certificate"] == "certified"
    assert kept["certificate_digest"] == shop.made.issued.digest
    assert kept["certificate_signed_by"] == shop.public
    assert "uncertified_accepted" not in kept


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--max-steps", "4"), r"\+.*max_steps=4"),
        (("--instruction", "push it away"), r"\+.*instruction=[0-9a-f]{8}"),
    ],
)
def test_what_is_done_otherwise_than_the_suite_says_was_not_certified(
    shop: Shop, deploy: Any, more: tuple[str, str], said: str
) -> None:
    with pytest.raises(CertificateError, match=said):
        deploy(*more)
    kept = deploy(*more, "--accept-uncertified", "to see it")
    assert (kept["certificate"], kept["max_steps"]) == ("accepted", 4 if "4" in more else 3)


def test_an_edited_driver_makes_it_stale(
    shop: Shop, deploy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One comment more in what follows the table, and nothing else."""
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package)
    copied = driving_hash(tmp_path)
    assert copied == shop.made.issued.certificate.driving
    file = tmp_path / "hardware" / "supervisor" / "table_follower.py"
    file.write_text(f"{file.read_text()}# quicker\n")
    edited = driving_hash(tmp_path)
    monkeypatch.setattr(permission, "driving_hash", lambda: edited)
    with pytest.raises(CertificateError, match=f"drives the arm was changed .*, here {edited}"):
        deploy()
    kept = deploy("--accept-uncertified", "a comment")
    assert edited in kept["uncertified_because"]


def redated(certificate: Certificate) -> Certificate:
    """The same, valid from now on for as long as its rule allows."""
    issued = dt.datetime.fromisoformat(certificate.issued) + dt.timedelta(minutes=5)
    expires = issued + dt.timedelta(days=certificate.rule.valid_days)
    return dataclasses.replace(certificate, issued=issued.isoformat(), expires=expires.isoformat())


def forged(shop: Shop, name: str, folder: Path) -> Issued:
    """What somebody makes of the certificate who computes digests, too, and has other keys."""
    issued = shop.made.issued
    assert issued.signature is not None
    other = new_key(folder / "stranger.pem")
    new = redated(issued.certificate)
    digest = digest_of(to_dict(new))
    value = issued.signature.value
    damaged = ("0" if value[0] != "0" else "1") + value[1:]
    return {
        "stranger": dataclasses.replace(issued, signature=sign(issued.digest, other)),
        "as the owner": dataclasses.replace(
            issued, signature=dataclasses.replace(sign(issued.digest, other), key=shop.public)
        ),
        "damaged": dataclasses.replace(
            issued, signature=dataclasses.replace(issued.signature, value=damaged)
        ),
        "re-dated": Issued(new, digest, issued.signature),
        "re-dated, digest kept": Issued(new, issued.digest, issued.signature),
        "re-dated, signed anew": Issued(new, digest, sign(digest, other)),
        "stripped": dataclasses.replace(issued, signature=None),
    }[name]


REFUSED = {
    "stranger": "whom this cell does not believe",
    "as the owner": "the signature is not one of",
    "damaged": "the signature is not one of",
    "re-dated": "the signature is not one of",
    "re-dated, digest kept": "edited after it was written",
    "re-dated, signed anew": "whom this cell does not believe",
    "stripped": "it is not signed, and this cell believes signed ones only",
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_like_it_does(shop: Shop, deploy: Any, tmp_path: Path, name: str) -> None:
    path = shop.write(forged(shop, name, tmp_path))
    with pytest.raises(CertificateError, match=REFUSED[name]):
        deploy("--certificate", str(path))
    assert not (tmp_path / "out").exists()


def test_somebody_says_why_and_that_is_kept_with_the_episode(
    shop: Shop, deploy: Any, tmp_path: Path
) -> None:
    path = shop.write(forged(shop, "stripped", tmp_path))
    kept = deploy("--certificate", str(path), "--accept-uncertified", "the key is in the safe")
    assert kept["certificate"] == "accepted"
    assert kept["uncertified_accepted"] == "the key is in the safe"
    assert "it is not signed" in kept["uncertified_because"]
    assert "certificate_signed_by" not in kept
    document = json.loads((tmp_path / "out" / "deploy.json").read_text())
    assert document["uncertified_accepted"] == "the key is in the safe"


def test_a_key_that_is_none_is_refused_with_the_cells_file(shop: Shop, tmp_path: Path) -> None:
    """An upper-case key would match no signature, and every certificate were refused by it."""
    for key in (shop.public.upper(), shop.public[:-1], "safe.pem", ""):
        path = tmp_path / "cell.yaml"
        path.write_text(f"certificate: {{demand: required, keys: ['{key}']}}\n")
        with pytest.raises(ConfigError, match=r"cell\.yaml, certificate: .*64 hexadecimal digits"):
            load_demand(path)
