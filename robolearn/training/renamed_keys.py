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
POLICIES = {"iql_rerank": "idql"}
"""Old name to new."""
RERANKED: dict[str, Any] = {"backup": "expectile", "bounds": None}
"""What ``iql_rerank`` was, in the settings of ``idql``."""
REWARD = {"reward_shift": ("shift", -1.0), "reward_scale": ("scale", 0.02)}
"""Rewards belong to the data now: key of ``iql_rerank`` to that of ``data.reward.params``, with the
default of then."""


def with_new_keys(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved experiment as a run directory keeps it, with the names of now."""
    policy = str(experiment.get("policy"))
    names = RENAMED.get(policy, {})
    algorithm = experiment.get("algorithm")
    if not isinstance(algorithm, dict):
        return dict(experiment)
    values = cast("dict[str, Any]", algorithm)
    renamed = {**experiment, "algorithm": {names.get(k, k): v for k, v in values.items()}}
    if policy not in POLICIES:
        return renamed
    return _as_idql(renamed)


def _as_idql(experiment: dict[str, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = experiment["algorithm"]
    algorithm = {k: v for k, v in settings.items() if k not in REWARD} | RERANKED
    found = {**experiment, "policy": POLICIES["iql_rerank"], "algorithm": algorithm}
    if not REWARD.keys() & settings.keys():
        return found
    params = {new: settings.get(k, default) for k, (new, default) in REWARD.items()}
    reward = {"task": "recorded", "params": params}
    return {**found, "data": {**experiment.get("data", {}), "reward": reward}}


def refuse_old_keys(policy: str, algorithm: Mapping[str, Any], where: str) -> None:
    """:class:`ConfigError` that says what an old name is called now, or where it belongs."""
    names = RENAMED.get(policy, {})
    old_keys = [old for old in names if old in algorithm]
    if old_keys:
        texts = [f"'{old}' is called '{names[old]}' now" for old in old_keys]
        raise ConfigError(f"{where}: algorithm: {', '.join(texts)}; rename it in the file")
    if policy in POLICIES:
        was = ", ".join(f"{k}: {'null' if v is None else v}" for k, v in RERANKED.items())
        values = {new: algorithm.get(old, default) for old, (new, default) in REWARD.items()}
        params = ", ".join(f"{name}: {value}" for name, value in values.items())
        raise ConfigError(
            f"{where}: '{policy}' is called '{POLICIES[policy]}' now; what it did is"
            f" 'algorithm: {{{was}, ...}}' without {sorted(REWARD)}, for rewards belong to the"
            f" data: 'data: {{reward: {{task: recorded, params: {{{params}}}}}}}'"
        )
