"""Prepares what a share of every batch is drawn from, beside what is being collected."""

from __future__ import annotations

import dataclasses

from robolearn.data.reading.cache import cached
from robolearn.errors import ConfigError, SpecMismatchError
from robolearn.learning import BatchSpec
from robolearn.spec import EmbodimentSpec, TaskSpace, diff_task_spaces
from robolearn.training.data import TrainingData, TrainingSource
from robolearn.training.experiment import Experiment


def shown_of(spec: BatchSpec, share: float, source: TrainingSource | None) -> int:
    """How many samples of a batch ``share`` is. Errors: :class:`ConfigError` where that leaves
    nothing of one of the two, or where an algorithm learns from its own decisions alone.
    """
    shown = round(share * spec.batch_size)
    if not 0 <= shown < spec.batch_size or (source is not None and not shown):
        raise ConfigError(
            f"a share of {share:g} of {spec.batch_size} samples leaves nothing of the"
            " demonstrations, or of what is collected; choose one in between"
        )
    if spec.decisions is not None and shown:
        raise ConfigError(
            "what learns from decisions of its own has no use for demonstrations: leave"
            " practice.demonstrations at 0"
        )
    return shown


def shown_data(
    experiment: Experiment, spec: BatchSpec, space: TaskSpace, source: TrainingSource, shown: int
) -> TrainingData:
    """``shown`` samples of every batch of ``spec``, of the episodes of ``source``; ``space``: that
    of the policy which practises.

    Errors: :class:`SpecMismatchError` where they mean something else by a signal than it does; of
    data and configuration as :class:`TrainingData`.
    """
    theirs = source.task_space
    # Pictures that only the parent looks at are not asked for.
    names = {s.name for s in theirs.observations}
    common = tuple(s for s in space.observations if s.name in names)
    wanted = dataclasses.replace(space, observations=common)
    offered = EmbodimentSpec("", theirs.observations, theirs.actions, theirs.rate_hz)
    lines = diff_task_spaces(wanted, offered)
    if lines:
        raise SpecMismatchError(
            "the store of demonstrations has another task space than the policy that practises,"
            " which cannot learn from both; name another store:\n" + "\n".join(lines)
        )
    part = dataclasses.replace(spec, batch_size=shown)
    data, seed = experiment.data, experiment.seed
    return TrainingData(data, part, seed, source, cached(source), beside=True)
