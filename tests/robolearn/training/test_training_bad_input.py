"""What cannot be trained on is explained before anything is written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from policies.imitation.flow import FlowConfig
from policies.registry import load_policy
from robolearn.data.reading.episode_arrays import EpisodeArrays
from robolearn.data.reading.selection import DataConfig
from robolearn.errors import CheckpointError, RobolearnError
from robolearn.representation import RepresentationConfig
from robolearn.spec import SignalSpec
from robolearn.training.experiment import Experiment, train
from robolearn.training.loop import FitConfig
from robolearn.training.run_directory import load_run, load_weights, write_tensors
from tests.learning_mocks import BLOCK, SPACE, TOOL, ArraySource, random_source

FLOW = FlowConfig(horizon=4, execute=2, width=16, blocks=1, batch_size=8)
DATA = DataConfig((TOOL, BLOCK))


def experiment(data: DataConfig = DATA, flow: FlowConfig = FLOW) -> Experiment:
    return Experiment("flow", data, flow, FitConfig(steps=2, warmup=1))


def broken(change: str) -> ArraySource:
    def changed(e: EpisodeArrays) -> EpisodeArrays:
        tool = np.array(e.observations[TOOL][np.arange(len(e.actions))])
        actions = e.actions.copy()
        if change == "nan":
            tool[1, 0] = np.nan
        if change == "nan action":
            actions[2, 1] = np.inf
        if change == "constant":
            tool[:] = 0.25
        if change == "mixed":
            tool = np.repeat(tool, 2, axis=1)
        return dataclasses.replace(e, observations={**e.observations, TOOL: tool}, actions=actions)

    first, *rest = random_source().items
    return ArraySource((*rest, changed(first)), content_hash=change)


@pytest.mark.parametrize(
    ("config", "source", "message"),
    [
        (experiment(flow=dataclasses.replace(FLOW, horizon=32)), random_source(), "longest has 20"),
        (experiment(dataclasses.replace(DATA, held_out=0.9)), random_source(), "nothing left"),
        (experiment(dataclasses.replace(DATA, held_out=0.1)), random_source(), "is none; raise it"),
        (
            experiment(dataclasses.replace(DATA, normalization={"block/pos": "none"})),
            random_source(),
            "Did you mean 'block/pose'",
        ),
        (
            experiment(
                dataclasses.replace(DATA, representation=RepresentationConfig({"tool": "delta"}))
            ),
            random_source(),
            "no action 'tool'",
        ),
        (experiment(), broken("nan"), "tool/xy_table"),
        (experiment(), broken("nan action"), "action"),
        (experiment(), broken("mixed"), "tool/xy_table"),
    ],
)
def test_bad_data_is_explained_and_nothing_is_written(
    config: Experiment, source: ArraySource, message: str, tmp_path: Path
) -> None:
    with pytest.raises(RobolearnError, match=message):
        train(config, source, tmp_path / "run", cache_dir=tmp_path / "cache")
    assert not (tmp_path / "run").exists()


def test_a_constant_signal_is_centred_and_trains(tmp_path: Path) -> None:
    source = ArraySource(tuple(broken("constant").items[-1:]) * 2, content_hash="constant")
    result = train(experiment(), source, tmp_path / "run", cache_dir=tmp_path / "cache")
    assert np.isfinite(result.fit.metrics["loss/flow"])


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    train(experiment(), random_source(), tmp_path / "run", cache_dir=tmp_path / "cache")
    run = load_run(tmp_path / "run")
    for change, message in (("extra", "unexpected extra"), ("missing", "missing")):
        weights = dict(run.weights)
        if change == "extra":
            weights["extra"] = torch.zeros(1)
        else:
            weights.pop(next(iter(weights)))
        write_tensors(tmp_path / "run" / "weights.safetensors", weights, {})
        with pytest.raises(CheckpointError, match=message):
            FLOW.load(load_run(tmp_path / "run", accept_edited=True))
    wider = dataclasses.replace(FLOW, width=24)
    with pytest.raises(CheckpointError, match="should be"):
        wider.load(run)
    with pytest.raises(CheckpointError, match="missing"):
        load_weights(torch.nn.Linear(2, 2), {}, "here")


def test_pictures_of_mixed_size_are_explained(tmp_path: Path) -> None:
    camera = SignalSpec("top/image", (16, 16, 3), "", 10.0, "uint8")
    space = dataclasses.replace(SPACE, observations=(*SPACE.observations, camera))
    sizes = ((16, 16), (16, 16), (24, 16), (16, 16))
    seen = [
        dataclasses.replace(
            e,
            observations={
                **e.observations,
                camera.name: np.zeros((len(e.actions), *size, 3), dtype=np.uint8),
            },
        )
        for e, size in zip(random_source().items, sizes, strict=True)
    ]
    source = ArraySource(tuple(seen), "mixed", space)
    config = experiment(dataclasses.replace(DATA, observations=(TOOL, BLOCK, camera.name)))
    with pytest.raises(RobolearnError, match=r"e2: 'top/image' should be .*16, 16, 3.*24, 16, 3"):
        train(config, source, tmp_path / "run", cache_dir=tmp_path / "cache")
    assert not (tmp_path / "run").exists()
    assert not list((tmp_path / "cache").glob("flat-*"))


def test_a_run_with_the_specification_of_another_is_refused(tmp_path: Path) -> None:
    train(experiment(), random_source(), tmp_path / "run", cache_dir=tmp_path / "cache")
    file = tmp_path / "run" / "spec.json"
    own = json.loads(file.read_text())
    file.write_text(json.dumps(own | {"horizon": own["horizon"] + 1}))
    with pytest.raises(CheckpointError, match="do not fit the configured network"):
        load_policy(tmp_path / "run", accept_edited=True)
    other = json.loads(json.dumps(own))
    other["task_space"]["observations"][0]["name"] = "arm/joint"
    file.write_text(json.dumps(other))
    with pytest.raises(CheckpointError, match=r"do not belong together, \['arm/joint'\]"):
        load_policy(tmp_path / "run", accept_edited=True)
