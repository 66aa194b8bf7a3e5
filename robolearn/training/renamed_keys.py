"""Lists names and places that keys of ``algorithm`` had in earlier versions.

Run directories of then are read by what the keys are called now; an experiment file with an old
name is refused with the new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from robolearn.errors import ConfigError

_SAMPLER = {"steps": "sampler_steps"}
_PREFIX = {"known": "max_prefix"}
RENAMED: Mapping[str, Mapping[str, str]] = {
    "beso": _SAMPLER,
    "compose": _SAMPLER,
    "consistency": _SAMPLER,
    "diffusion": _SAMPLER | _PREFIX,
    "ebt": {"steps": "descent_steps", "refine": "sampler_steps"},
    "flow": _SAMPLER | _PREFIX,
    "mean_flow": _SAMPLER,
    "shortcut": _SAMPLER,
}
"""By policy: old name to new."""
REWARD = {"reward_shift": ("shift", -1.0), "reward_scale": ("scale", 0.02)}
"""Rewards belong to the data now: key of ``iql_rerank`` to that of ``data.reward.params``, with the
default of then."""


def with_new_keys(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved experiment as a run directory keeps it, with the names of now."""
    names = RENAMED.get(str(experiment.get("policy")), {})
    algorithm = experiment.get("algorithm")
    if not isinstance(algorithm, dict):
        return dict(experiment)
    values = cast("dict[str, Any]", algorithm)
    renamed = {**experiment, "algorithm": {names.get(k, k): v for k, v in values.items()}}
    return _with_reward_of_data(renamed) if REWARD.keys() & values.keys() else renamed


def _with_reward_of_data(experiment: dict[str, Any]) -> dict[str, Any]:
    algorithm = {k: v for k, v in experiment["algorithm"].items() if k not in REWARD}
    params = {new: experiment["algorithm"].get(k, d) for k, (new, d) in REWARD.items()}
    data = {**experiment.get("data", {}), "reward": {"task": "recorded", "params": params}}
    return {**experiment, "algorithm": algorithm, "data": data}


def refuse_old_keys(policy: str, algorithm: Mapping[str, Any], where: str) -> None:
    """:class:`ConfigError` that says what an old name is called now, or where it belongs."""
    names = RENAMED.get(policy, {})
    old_keys = [old for old in names if old in algorithm]
    if old_keys:
        texts = [f"'{old}' is called '{names[old]}' now" for old in old_keys]
        raise ConfigError(f"{where}: algorithm: {', '.join(texts)}; rename it in the file")
    moved = {new: algorithm.get(old, d) for old, (new, d) in REWARD.items()}
    if policy == "iql_rerank" and REWARD.keys() & algorithm.keys():
        params = ", ".join(f"{name}: {value}" for name, value in moved.items())
        raise ConfigError(
            f"{where}: algorithm: rewards belong to the data now; instead of"
            f" {sorted(REWARD.keys() & algorithm.keys())} write"
            f" 'data: {{reward: {{task: recorded, params: {{{params}}}}}}}'"
        )
