"""Sends the lines of ``metrics.jsonl`` elsewhere, too: TensorBoard, Weights & Biases (optional)."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from robolearn.errors import ConfigError, MissingDependencyError

TrackerName = Literal["tensorboard", "wandb"]
OnLog = Callable[[int, Mapping[str, float]], None]


@contextlib.contextmanager
def tracked(
    names: Sequence[TrackerName], run_dir: Path, config: Mapping[str, Any]
) -> Generator[OnLog | None]:
    """A function that passes figures on to the trackers called ``names``; None without any. Nothing
    is written before the first figures.
    """
    makers = {"tensorboard": _tensorboard, "wandb": _wandb}
    with contextlib.ExitStack() as stack:
        trackers = [stack.enter_context(makers[name](run_dir, config)) for name in names]

        def on_log(step: int, figures: Mapping[str, float]) -> None:
            for each in trackers:
                each(step, figures)

        yield on_log if trackers else None


@contextlib.contextmanager
def _tensorboard(run_dir: Path, config: Mapping[str, Any]) -> Generator[OnLog]:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise _missing("tensorboard", error) from error
    made: Any = SummaryWriter
    with contextlib.ExitStack() as stack:

        @functools.cache
        def writer() -> Any:
            found = stack.enter_context(made(str(run_dir / "tensorboard")))
            found.add_text("config", str(dict(config)))
            return found

        def on_log(step: int, figures: Mapping[str, float]) -> None:
            for name, value in figures.items():
                writer().add_scalar(name, value, step)

        yield on_log


@contextlib.contextmanager
def _wandb(run_dir: Path, config: Mapping[str, Any]) -> Generator[OnLog]:
    import importlib

    try:
        wandb: Any = importlib.import_module("wandb")
    except ImportError as error:
        raise _missing("wandb", error) from error
    if os.environ.get("WANDB_MODE", "online") == "online":
        # Asks for the key now, or says that it lacks; the first figures come much later.
        try:
            wandb.login()
        except Exception as error:
            raise ConfigError(
                f"--track wandb: cannot log in ({error}); set WANDB_API_KEY, or WANDB_MODE=offline"
            ) from error
    with contextlib.ExitStack() as stack:

        @functools.cache
        def run() -> Any:
            # Entity, project and mode (WANDB_MODE=offline) come from the environment.
            found = wandb.init(dir=str(run_dir), name=run_dir.name, config=dict(config))
            stack.callback(found.finish)
            return found

        yield lambda step, figures: run().log(dict(figures), step=step)


def _missing(name: str, error: ImportError) -> MissingDependencyError:
    return MissingDependencyError(
        f"--track {name}: not installed ({error});"
        f" pip install -c constraints.txt 'robolearn[{name}]'"
    )
