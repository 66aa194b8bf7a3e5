"""Writes the commands that repeat, resume, evaluate or deploy a run, ready to be pasted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from eval.report.training import RunFacts
from robolearn.operations.studio.documents.command_line import command_line
from robolearn.operations.studio.documents.loose import at

_STORE, _WORLD, _ROBOT = "STORE", "WORLD", "ROBOT"


@dataclass(frozen=True, slots=True)
class RunCommand:
    """A command, what it does, and what of it a person has to fill in (words in capitals)."""

    does: str
    command: str
    missing: tuple[str, ...] = ()


def run_commands(
    path: Path, facts: RunFacts, finished: bool, stores: Mapping[str, Path]
) -> tuple[RunCommand, ...]:
    """What can be done with a run. ``stores``: known stores by the hash of their content.

    Where the store that it was trained on is not among them, ``STORE`` stands for it.
    """
    if not facts.settings:
        return ()
    again = _trained("Train the same again, into a new folder", path, facts, stores,
                     out=f"{path}_again")  # fmt: skip
    if not finished:
        on = _trained("Go on where it stopped", path, facts, stores, out=path, resume=True)
        return (on, again)
    several = _trained(
        "Train it with three seeds, to know how much of a result is luck",
        *(path, facts, stores),
        out=f"{path}_seeds",
        seeds=(0, 1, 2),
    )
    return (
        again,
        *(() if "practice" in facts.settings else (several,)),
        RunCommand(
            "Evaluate it in its task's own world, over the suite's starts",
            command_line("evaluate", path, out=f"results/{path.name}"),
        ),
        RunCommand(
            "Deploy it on a cell under the supervisor",
            command_line("deploy", path, robot=_ROBOT, out=f"results/{path.name}_deployed"),
            (_ROBOT,),
        ),
    )


def _trained(
    does: str, path: Path, facts: RunFacts, stores: Mapping[str, Path], **more: object
) -> RunCommand:
    """The command that trained it, with other options."""
    config, parent = path / "config.yaml", path / "parent"
    if "practice" in facts.settings:
        line = command_line("finetune", parent, config=config, world=_WORLD, store=_STORE, **more)
        return RunCommand(does, line, (_WORLD, _STORE))
    named = bool(at(facts.settings, "data", "stores"))
    store = None if named else stores.get(facts.data_hash, _STORE)
    line = command_line(
        "train",
        config=config,
        store=store,
        parent=parent if parent.is_dir() else None,
        **more,
    )
    return RunCommand(does, line, (_STORE,) if store == _STORE else ())
