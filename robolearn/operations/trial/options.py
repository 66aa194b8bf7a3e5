"""Holds what blinded trials are told; a folder that has a plan only takes what the plan says."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from eval.blinded.plan import Scoring
from eval.rule import Rule
from robolearn.agents.execution import Execution, GuidanceName, Runtime
from robolearn.errors import ConfigError

USUAL_EXECUTION = Execution(lead_ticks=1, realtime_chunking=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignOptions:
    """What is planned; all of it is fixed with the first call."""

    # Run directories, or ws://HOST:PORT of policy servers (token in ROBOLEARN_TOKEN).
    policies: tuple[str, ...] = ()
    # Where the starts come from.
    suite: Path | None = None
    # Conditions that every policy tries (in pairs: how many comparisons); None: those that the
    # suite gives a world that is not its own.
    trials: int | None = None
    # So many of them are tried twice, to know how far a real trial predicts its own repetition.
    repeats: int = 0
    # Two policies after each other from the same start; the operator prefers one.
    pairs: bool = False
    # The order is drawn from it.
    seed: int = 0
    # Control steps per trial; None: what the suite says.
    max_steps: int | None = None
    # Who says how a trial went.
    score: Scoring = "task"
    # Steps towards the goal, asked after every trial.
    rubric: tuple[str, ...] = ()
    # How pairs of policies are decided; a sequential decision is shown while trying.
    rule: Rule = field(default_factory=Rule)
    # How chunks become commands.
    execution: Execution = USUAL_EXECUTION
    # What computes the policies.
    runtime: Runtime = "torch"
    # How a plan is continued.
    guidance: GuidanceName = "auto"
    # What policies that read text are told; "": what the suite says.
    instruction: str = ""
    # The lab of the cell is started for each session, with hidden physics and noise of this seed.
    start_lab: bool = False
    lab_seed: int = 0
    # Which of these, and of ``rule`` and ``execution`` (rule.alpha), were asked for although they
    # are as usual: a plan that says something else is not gone on with. Others are anyway.
    given: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.pairs and self.rule.kind == "sequential":
            raise ConfigError(
                "rule: pairs are ranked by preferences once all are compared; a sequential"
                " rule would decide nothing there: leave out the sequential rule, or the pairs"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialOptions:
    """Where the trials are kept, on which cell this session runs them, and who is there."""

    # The plan, the episodes, the table of trials; a folder that has them goes on.
    out: Path
    # A file of configs/hardware/; None: the cell of the plan, if it has one.
    robot: Path | None = None
    # Further cells that share the plan; each condition belongs to one cell.
    cells: tuple[Path, ...] = ()
    design: DesignOptions = field(default_factory=DesignOptions)
    # Who supervises, kept with every trial.
    operator: str
    # CAMERA=SCENE: before every trial the camera's picture with the wanted start over it, as the
    # scene's camera of that name would see it, is in start.png.
    overlay: str = ""
    # At most so many trials in this session; None: until all are done.
    at_most: int | None = None
    # How many safety stops this session goes on after; each ends its trial as a failure.
    go_on_after_stop: int = 0

    def __post_init__(self) -> None:
        if not self.operator.strip():
            raise ConfigError("operator: say who supervises; every trial keeps it")
        for name, value, least in (
            ("trials", self.design.trials, 1),
            ("max_steps", self.design.max_steps, 1),
            ("at_most", self.at_most, 1),
            ("go_on_after_stop", self.go_on_after_stop, 0),
        ):
            if value is not None and value < least:
                raise ConfigError(f"{name} must be at least {least}, got {value}")
