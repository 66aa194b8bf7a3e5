"""``evaluate --server``: the server of docs/remote.md with a stand-in for LeRobot; bad servers."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import sys
import threading
import types
from pathlib import Path

import numpy as np
import pytest
import torch

from eval.trials.table import read_trials
from robolearn.contracts import PolicySpec
from robolearn.errors import ConfigError, InferenceError, SpecMismatchError
from robolearn.inference.client import RemoteInference
from robolearn.inference.served import ServedPolicy
from robolearn.inference.server import PolicyServer, ServeConfig
from robolearn.operations.builders import ServerBuilder
from robolearn.operations.evaluate import evaluate
from robolearn.operations.evaluate_options import EvaluateOptions
from robolearn.pusht import RATE_HZ, target_action
from robolearn.spec import TaskSpace
from robolearn.types import PolicyOutput
from tests.mocks import FaultyPolicy, WalkPolicy, request_at

PAGE = Path(__file__).parents[3] / "docs" / "remote.md"
TOKEN = "a-token-for-tests-only"
SUITE = Path("configs/eval/pusht.yaml")
QUICK = EvaluateOptions(
    suite=SUITE,
    worlds=("pusht_reference",),
    conditions=1,
    workers=0,
    videos=0,
)


class StandIn(torch.nn.Module):
    """Goes to where the tool is."""

    config = types.SimpleNamespace(chunk_size=16)

    @classmethod
    def from_pretrained(cls, path):
        assert Path(path).is_dir()
        return cls()

    def predict_action_chunk(self, batch):
        return batch["observation.state"][:, None, :2].repeat(1, 16, 1)


@pytest.fixture
def token(monkeypatch) -> None:
    """What clients of the tests know."""
    monkeypatch.setenv("ROBOLEARN_TOKEN", TOKEN)


@pytest.fixture
def lerobot(monkeypatch) -> None:
    """The two modules that the example imports."""
    same = types.SimpleNamespace(
        make_pre_post_processors=lambda config, pretrained_path: (lambda x: x, lambda x: x)
    )
    for name in ("lerobot", "lerobot.policies", "lerobot.policies.act"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    act = types.SimpleNamespace(ACTPolicy=StandIn)
    monkeypatch.setitem(sys.modules, "lerobot.policies.act.modeling_act", act)
    monkeypatch.setitem(sys.modules, "lerobot.policies.factory", same)


@pytest.mark.usefixtures("lerobot", "token")
def test_the_example_of_the_page_is_evaluated(tmp_path, monkeypatch) -> None:
    path = tmp_path / "act" / "checkpoints" / "last" / "pretrained_model"
    path.mkdir(parents=True)
    (path / "model.safetensors").write_bytes(b"weights")
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 45
    monkeypatch.setattr(sys, "argv", ["lerobot_server.py", str(path)])
    # All but the address, which another program may have, and the wait for Ctrl-C.
    for theirs, ours in (
        ("ServeConfig(port=8765)", f"ServeConfig(token='{TOKEN}')"),
        ("threading.Event().wait()", ""),
    ):
        assert theirs in code
        code = code.replace(theirs, ours)
    module: dict = {"__name__": "example"}
    exec(compile(code, "lerobot_server.py", "exec"), module)
    with contextlib.closing(module["server"]) as server:
        short = tmp_path / "suite.yaml"
        short.write_text(SUITE.read_text().replace("max_steps: 300", "max_steps: 20"))
        evaluate([server.url], tmp_path / "out", dataclasses.replace(QUICK, suite=short))
        (trial,) = read_trials(tmp_path / "out")
        assert trial.policy == "act"
        assert len(trial.policy_hash) == 16
        assert trial.status == "finished"
        with pytest.raises(ConfigError, match="are the server's"):
            evaluate([server.url], tmp_path / "x", dataclasses.replace(QUICK, runtime="onnx"))


@contextlib.contextmanager
def serving(policy, name: str = "theirs", digest: str = "h"):
    with contextlib.closing(PolicyServer(policy, ServeConfig(token=TOKEN), name, digest)) as server:
        yield server.url


@pytest.mark.usefixtures("token")
def test_who_does_not_fit_is_refused_before_anything_runs(tmp_path) -> None:
    with serving(WalkPolicy(), digest="") as url, pytest.raises(InferenceError, match="no name or"):
        evaluate([url], tmp_path / "a", QUICK)
    joints = dataclasses.replace(target_action(), name="arm/joint_position")
    other = PolicySpec(TaskSpace((), (joints,), RATE_HZ), 1, 16, 8)
    with serving(WalkPolicy(spec=other)) as url, pytest.raises(SpecMismatchError):
        evaluate([url], tmp_path / "b", QUICK)
    with serving(WalkPolicy()) as url, pytest.raises(InferenceError, match="another policy than"):
        ServerBuilder(url, "other")()
    with pytest.raises(InferenceError, match="is 'robolearn serve' running"):
        evaluate([url], tmp_path / "c", QUICK)
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("token")
def test_a_server_that_dies_lies_or_sleeps_is_named() -> None:
    request = request_at(100)
    with serving(WalkPolicy()) as url:
        policy = ServerBuilder(url, "h")()
        assert isinstance(policy, ServedPolicy)
        assert np.array_equal(policy.sample(request).actions, WalkPolicy().sample(request).actions)
    with pytest.raises(InferenceError, match="broke"):
        policy.sample(request)
    policy.close()
    for fault, said in (("nan", "non-finite"), ("shape", "expected"), ("time", "time")):
        with (
            serving(FaultyPolicy(fault)) as url,
            contextlib.closing(ServedPolicy(url, TOKEN, "h")) as liar,
            pytest.raises(InferenceError, match=said),
        ):
            liar.sample(request)
    released = threading.Event()

    class Slow(WalkPolicy):
        def sample(self, request, n: int = 1) -> PolicyOutput:
            released.wait(5.0)
            return super().sample(request, n)

    with serving(Slow()) as url:
        with (
            contextlib.closing(ServedPolicy(url, TOKEN, "h", timeout_s=0.2)) as slow,
            pytest.raises(InferenceError, match=r"did not answer within 0\.2 s"),
        ):
            slow.sample(request)
        released.set()


@pytest.mark.usefixtures("token")
@pytest.mark.parametrize(
    ("called", "said"),
    [("a\u202eb", r"control character U\+202E"), ("\x1b[2Jp", r"U\+001B"), (" ", "is empty")],
)
def test_a_server_whose_name_cannot_be_shown_is_refused(called: str, said: str) -> None:
    """What a server calls itself stands in every trial, on pages and in terminals."""
    with serving(WalkPolicy(), called) as url, pytest.raises(InferenceError, match=said):
        RemoteInference(url, TOKEN)


@pytest.mark.usefixtures("token")
def test_a_servers_name_is_one_line() -> None:
    with (
        serving(WalkPolicy(), "na\u0308ive\nverdict: good") as url,
        contextlib.closing(RemoteInference(url, TOKEN)) as remote,
    ):
        assert remote.name == "n\u00e4ive verdict: good"
