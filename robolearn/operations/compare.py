"""Compares the policies of results folders: paired, by a rule declared beforehand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from eval.compare import Comparison, compare_policies
from eval.evaluation import FILE_NAME as EVALUATION_FILE
from eval.evaluation import read_evaluation
from eval.rule import Rule
from eval.trials.identity import Made, made, newest
from eval.trials.table import read_trials
from robolearn.errors import ConfigError, DataError
from robolearn.types import TrialRecord


def compare(
    results: Sequence[Path],
    rule: Rule | None = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    common: bool = False,
    mixed: bool = False,
) -> Comparison:
    """Compare all policies of some results folders in every world that has at least two.

    ``rule``: what decides (default: success, a number of trials fixed beforehand); ``groups``:
    method -> the policies that are its training runs; ``common``: compare on the conditions that
    all have, instead of refusing different ones; ``mixed``: accept trials of different code,
    libraries or batch sizes. Of a folder that holds several kinds of trials count those of its last
    evaluation; the others are named. Raises :class:`DataError` for folders without trials and for
    trials that cannot be compared.
    """
    if not results:
        raise ConfigError("expected one or more results folders")
    by_folder = {folder: read_trials(folder) for folder in dict.fromkeys(results)}
    for folder, found in by_folder.items():
        if not found:
            raise DataError(f"'{folder}' has no trials yet; finish its 'robolearn evaluate' first")
    kept: list[TrialRecord] = []
    apart: list[str] = []
    for folder, found in by_folder.items():
        pool = newest(found, _how(folder, found))
        mine = found if mixed else tuple(r for r in found if pool.holds(r))
        kept += mine
        apart += [] if mixed else [f"{folder}: {words}" for words in pool.kept_apart(found)]
    try:
        compared = compare_policies(kept, rule or Rule(), groups=groups, common=common, mixed=mixed)
    except DataError as error:
        # What was kept apart may be just what is missing.
        raise DataError("; ".join((str(error), *apart))) from error
    return dataclasses.replace(compared, apart=tuple(apart))


def _how(folder: Path, found: Sequence[TrialRecord]) -> Made | None:
    """How the trials of the folder's last evaluation were made; None: as its last trial was."""
    if not (folder / EVALUATION_FILE).is_file():
        return None
    asked = read_evaluation(folder, found).pool.made
    return asked if any(made(r) == asked for r in found) else None
