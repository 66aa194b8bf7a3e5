"""The policies by name, resolved lazily, and how a run directory becomes a policy again."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Protocol, cast, runtime_checkable

import torch

from robolearn.checkpoint import Run, load_run
from robolearn.config import from_dict
from robolearn.contracts import Policy
from robolearn.data.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError, did_you_mean
from robolearn.learning import Algorithm, BatchSpec
from robolearn.representation import Representation, RepresentationConfig, RepresentedPolicy
from robolearn.spec import TaskSpace

POLICIES: dict[str, str] = {
    "act": "policies.act:ActConfig",
    "bc": "policies.bc:BcConfig",
    "bc_rnn": "policies.bc_rnn:BcRnnConfig",
    "beso": "policies.beso:BesoConfig",
    "compose": "policies.compose:ComposeConfig",
    "consistency": "policies.consistency:ConsistencyConfig",
    "diffusion": "policies.diffusion:DiffusionConfig",
    "distilled": "policies.distilled:DistilledConfig",
    "ebt": "policies.ebt:EbtConfig",
    "flow": "policies.flow:FlowConfig",
    "iql_rerank": "policies.iql_rerank:IqlRerankConfig",
    "mean_flow": "policies.mean_flow:MeanFlowConfig",
    "shortcut": "policies.shortcut:ShortcutConfig",
}


@runtime_checkable
class PolicyConfig(Protocol):
    """What every entry of :data:`POLICIES` is: a frozen dataclass with these methods."""

    def batches(self) -> BatchSpec:
        """What the algorithm is fed with."""
        ...

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """An untrained algorithm."""
        ...

    def load(self, run: Run) -> Policy:
        """The trained policy of a run directory."""
        ...


def policy_config(name: str) -> type[PolicyConfig]:
    """The configuration class of a policy."""
    if name not in POLICIES:
        raise ConfigError(
            f"no policy '{name}'.{did_you_mean(name, POLICIES)} Policies: {sorted(POLICIES)}"
        )
    module, attribute = POLICIES[name].split(":")
    return cast("type[PolicyConfig]", getattr(importlib.import_module(module), attribute))


def load_policy(run_dir: Path, threads: int | None = 1) -> Policy:
    """Rebuild the policy of a run directory; ``threads`` sets torch's threads (None: leave)."""
    if threads is not None:
        torch.set_num_threads(threads)
    return policy_of(load_run(run_dir))


def policy_of(run: Run) -> Policy:
    """Rebuild the policy of a run that was read already."""
    name = str(run.config.get("policy", ""))
    if name not in POLICIES:
        raise CheckpointError(
            f"'{run.path}' was trained by policy '{name}', which this version lacks;"
            f" it knows {sorted(POLICIES)}"
        )
    try:
        config = from_dict(policy_config(name), run.config["algorithm"], f"{run.path}/config.yaml")
        data = run.config["data"]
    except KeyError as error:
        raise CheckpointError(f"'{run.path}/config.yaml' lacks {error}") from error
    changed = from_dict(RepresentationConfig, data.get("representation", {}), f"{run.path}: data")
    if changed.plain:
        return config.load(run)
    seen = Representation(changed, run.spec.task_space)
    spec = dataclasses.replace(run.spec, task_space=seen.inner)
    return RepresentedPolicy(config.load(dataclasses.replace(run, spec=spec)), seen)
