"""Runs of earlier versions are read by what their keys are called now; files with old keys are
refused.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from policies.registry import load_policy, policy_config
from robolearn.errors import ConfigError
from robolearn.learning import Weights
from robolearn.training.experiment import load_experiment
from robolearn.training.renamed_keys import RENAMED, with_new_keys
from robolearn.training.run_directory import DIGESTS, WEIGHTS, read_tensors, write_tensors
from tests.policies.every import Family


def aged(experiment: dict[str, Any]) -> dict[str, Any]:
    """What an earlier version has written."""
    old = {new: old for old, new in RENAMED[experiment["policy"]].items()}
    algorithm = {old.get(key, key): value for key, value in experiment["algorithm"].items()}
    return {**experiment, "algorithm": algorithm}


@pytest.mark.parametrize("name", sorted(RENAMED))
def test_new_names_are_there_and_old_ones_are_not(name: str) -> None:
    kind: Any = policy_config(name)
    fields = {field.name for field in dataclasses.fields(kind)}
    assert fields.issuperset(RENAMED[name].values())
    assert not fields.intersection(RENAMED[name])


@pytest.mark.parametrize("name", sorted(RENAMED))
def test_a_run_of_an_earlier_version_answers_and_resumes_as_it_did(
    name: str, tmp_path: Path
) -> None:
    family = Family(tmp_path)
    run = family.run(name)
    request = family.request(2)
    answer = load_policy(run).sample(request).actions
    config = yaml.safe_load((run / "config.yaml").read_text())
    old = aged(config)
    assert old != config
    assert with_new_keys(old) == with_new_keys(config) == config
    (run / "config.yaml").write_text(yaml.safe_dump(old))
    (run / DIGESTS).unlink()
    np.testing.assert_array_equal(load_policy(run).sample(request).actions, answer)
    if name == "compose":
        return
    provenance = json.loads((run / "provenance.json").read_text())
    provenance["experiment"] = aged(provenance["experiment"])
    (run / "provenance.json").write_text(json.dumps(provenance))
    assert family.train(name, resume=True).reused


@pytest.mark.parametrize("name", sorted(set(RENAMED) - {"compose"}))
def test_a_file_with_an_old_name_is_told_the_new_one(name: str, tmp_path: Path) -> None:
    for old, new in RENAMED[name].items():
        text = f"policy: {name}\ndata: {{observations: [a/b]}}\nfit: {{steps: 9}}\n"
        (tmp_path / "x.yaml").write_text(f"{text}algorithm: {{{old}: 2}}\n")
        with pytest.raises(ConfigError, match=f"x.yaml: algorithm: '{old}' is called '{new}' now"):
            load_experiment(tmp_path / "x.yaml", policy_config)


def test_critics_of_an_earlier_version_answer_as_they_did(tmp_path: Path) -> None:
    """They were two networks one after the other, and their rewards the algorithm's."""
    family = Family(tmp_path)
    run = family.run("idql", backup="expectile", bounds=None)
    request = family.request(2)
    answer = load_policy(run).sample(request)
    config = yaml.safe_load((run / "config.yaml").read_text())
    known = ("n_obs", "horizon", "stride", "discount", "expectile", "width", "candidates", "margin")
    algorithm = {k: v for k, v in config["algorithm"].items() if k in known}
    old = {**config, "policy": "iql_rerank"}
    old["algorithm"] = {**algorithm, "reward_shift": -0.5, "reward_scale": 2.0}
    old["data"] = {k: v for k, v in config["data"].items() if k != "reward"}
    (run / "config.yaml").write_text(yaml.safe_dump(old))
    (run / DIGESTS).unlink()
    write_tensors(run / WEIGHTS, apart(read_tensors(run / WEIGHTS)), {})
    again = load_policy(run).sample(request)
    np.testing.assert_array_equal(again.scores, answer.scores)
    np.testing.assert_array_equal(again.actions, answer.actions)
    read = with_new_keys(old)
    assert read["policy"] == "idql"
    assert not {"reward_shift", "reward_scale"} & set(read["algorithm"])
    wanted = {"task": "recorded", "params": {"shift": -0.5, "scale": 2.0}}
    assert read["data"]["reward"] == wanted
    assert with_new_keys(read) == read


def apart(weights: Weights) -> dict[str, torch.Tensor]:
    """Critics as an earlier version kept them."""
    kinds = {"weights": "weight", "biases": "bias", "gains": "weight", "shifts": "bias"}
    found: dict[str, torch.Tensor] = {}
    for name, value in weights.items():
        if not name.startswith(("q.", "v.")):
            found[name.removeprefix("observed.")] = value
            continue
        net, kind, layer = name.split(".")
        step = 3 * int(layer) + (2 if kind in ("gains", "shifts") else 0)
        for member, one in enumerate(value):
            place = f"q.{member}" if net == "q" else "v"
            plain = one.T if kind == "weights" else one[0]
            found[f"{place}.{step}.{kinds[kind]}"] = plain.contiguous()
    return found


def test_a_file_of_an_earlier_version_is_told_what_critics_are_called(tmp_path: Path) -> None:
    text = "policy: iql_rerank\ndata: {observations: [a/b]}\nfit: {steps: 9}\n"
    (tmp_path / "x.yaml").write_text(f"{text}algorithm: {{reward_shift: -0.5}}\n")
    told = (
        r"'iql_rerank' is called 'idql' now; .*\{backup: expectile, bounds: null, .*"
        r"'data: \{reward: \{task: recorded, params: \{shift: -0.5, scale: 0.02\}\}\}'"
    )
    with pytest.raises(ConfigError, match=told):
        load_experiment(tmp_path / "x.yaml", policy_config)
