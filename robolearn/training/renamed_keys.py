"""Names that keys of ``algorithm`` had in earlier versions.

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


def with_new_keys(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved experiment as a run directory keeps it, with the names of now."""
    names = RENAMED.get(str(experiment.get("policy")), {})
    algorithm = experiment.get("algorithm")
    if not isinstance(algorithm, dict):
        return dict(experiment)
    values = cast("dict[str, Any]", algorithm)
    return {**experiment, "algorithm": {names.get(k, k): v for k, v in values.items()}}


def refuse_old_keys(policy: str, algorithm: Mapping[str, Any], where: str) -> None:
    """:class:`ConfigError` that says what an old name is called now."""
    names = RENAMED.get(policy, {})
    old_keys = [old for old in names if old in algorithm]
    if old_keys:
        texts = [f"'{old}' is called '{names[old]}' now" for old in old_keys]
        raise ConfigError(f"{where}: algorithm: {', '.join(texts)}; rename it in the file")
