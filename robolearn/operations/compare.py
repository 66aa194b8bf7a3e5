"""Compares the policies of results folders: paired, by a rule declared beforehand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.compare import Comparison, Rule, compare_policies
from eval.trials.table import read_trials
from robolearn.errors import ConfigError, DataError


def compare(
    results: Sequence[Path],
    rule: Rule | None = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    common: bool = False,
) -> Comparison:
    """Compare all policies of some results folders in every world that has at least two.

    ``rule``: what decides (default: success, a number of trials fixed beforehand); ``groups``:
    method -> the policies that are its training runs; ``common``: compare on the conditions that
    all have, instead of refusing different ones. Raises :class:`DataError` for folders without
    trials and for trials that cannot be compared.
    """
    if not results:
        raise ConfigError("expected one or more results folders")
    by_folder = {folder: read_trials(folder) for folder in dict.fromkeys(results)}
    for folder, found in by_folder.items():
        if not found:
            raise DataError(f"'{folder}' has no trials yet; finish its 'robolearn evaluate' first")
    records = [r for found in by_folder.values() for r in found]
    return compare_policies(records, rule or Rule(), groups=groups, common=common)
