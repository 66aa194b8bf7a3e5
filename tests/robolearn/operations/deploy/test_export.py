"""A policy is exported, and served, by functions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from policies.registry import load_policy
from robolearn.errors import CheckpointError, ConfigError
from robolearn.inference.client import RemoteInference
from robolearn.inference.onnx import GRAPH, OnnxPolicy
from robolearn.operations.deploy.export import export_policy
from robolearn.operations.deploy.serve import serve_policy
from robolearn.training.run_directory import policy_hash
from tests.learning_mocks import random_request
from tests.robolearn.cli.learning.test_export_policy import make_run
from tests.waiting import wait_until


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run")


def test_the_graph_lies_where_the_runtime_looks_for_it(run: Path, capsys) -> None:
    done = export_policy(run)
    assert done.graph.path == run.resolve() / GRAPH
    assert done.graph.bytes == done.graph.path.stat().st_size
    assert done.graph.difference <= 1e-4
    assert 0.0 < done.onnx_ms < 1e3
    assert 0.0 < done.torch_ms < 1e3
    request = random_request(2)
    want = load_policy(run).sample(request).actions
    np.testing.assert_allclose(
        OnnxPolicy.load(run / GRAPH).sample(request).actions, want, atol=1e-5
    )
    assert capsys.readouterr().out == ""


def test_a_graph_needs_a_folder_and_a_run_that_nobody_edited(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^out '.*': expected a file in a folder that exists"):
        export_policy(run, tmp_path / "none" / "x.onnx")
    (run / "config.yaml").write_text((run / "config.yaml").read_text() + "# seed: 1\nx: 1\n")
    with pytest.raises(CheckpointError, match="edited"):
        export_policy(run, tmp_path / "x.onnx")
    assert not (tmp_path / "x.onnx").exists()


def test_a_served_policy_answers_like_the_run(run: Path) -> None:
    with serve_policy(run) as server:
        remote = RemoteInference(server.url, server.token)
        try:
            assert (remote.name, remote.policy_hash) == ("run", policy_hash(run))
            request = random_request(1)
            remote.submit(0, request)
            found = []
            wait_until(lambda: found or found.extend(filter(None, [remote.poll(0, 0)])))
        finally:
            remote.close()
    np.testing.assert_allclose(
        found[0].actions, load_policy(run).sample(request).actions, atol=1e-6
    )
    assert server.answered == 1
