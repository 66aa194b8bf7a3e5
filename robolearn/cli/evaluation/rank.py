"""``robolearn rank RUN ... --store STORE`` orders policies without running them."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from robolearn.cli.shared.fitting import ShownFit
from robolearn.cli.shared.output_path import output_folder
from robolearn.cli.shared.parse import parse, print_json, say
from robolearn.errors import ConfigError

if TYPE_CHECKING:
    from eval.statistics.halving import HalvingPlan
    from robolearn.operations.ranking.question import PolicyValue
    from robolearn.operations.ranking.rank import Ranking


@dataclass(frozen=True, slots=True)
class Args:
    """Rank policies by an evaluation that is fitted to recordings with rewards (fitted Q
    evaluation), check the order against trials, and plan which to try next.
    """

    # Run directories of the policies, two or more of one task space.
    runs: Annotated[tuple[Path, ...], tyro.conf.Positional]
    # Recordings with rewards that the policies are judged by.
    store: Path
    # Folder of the values; a call that was stopped goes on there.
    out: Path = Path("results/ranking")
    # A file of configs/rank/: rewards, discount, networks; the same for all policies. With
    # --method action_error: a file that says whose actions are right (kinds: [scripted]).
    config: Path | None = None
    # Updates per policy, instead of the file's.
    steps: int | None = None
    # What is fitted, instead of what the file says: the mean of the returns, or their distribution.
    # Or, without rewards and fitting: how far actions are from demonstrated ones at other starts
    # than those that the runs were trained on (action_error).
    method: Literal["expected", "distributional", "action_error"] | None = None
    # Results folders with trials of these policies, to check the order against.
    results: tuple[Path, ...] = ()
    # The world whose trials count; default: the only one.
    world: str = ""
    # What counts of them.
    by: Literal["success", "score"] = "success"
    # Plan trials: so many of all policies together (successive halving).
    budget: int = 0
    # Policies of the ranking that take part in it; 0: the better half.
    first: int = 0
    # Torch threads.
    threads: int = 1
    # Print one JSON document and nothing else.
    json: bool = False


def main(argv: list[str]) -> int:
    """Fit, order, print."""
    args = parse(Args, argv, "rank", Args.__doc__ or "")
    if args.threads < 1 or args.budget < 0 or args.first < 0:
        raise ConfigError("--threads must be at least 1, --budget and --first at least 0")
    output_folder(args.out, "--out", "a ranking")
    import dataclasses

    from eval.plain import plain_values
    from robolearn.config import load_config
    from robolearn.operations.ranking.action_error import ErrorConfig
    from robolearn.operations.ranking.policy_values import RankConfig
    from robolearn.operations.ranking.rank import Race, Trials, rank
    from robolearn.training.loop import Hooks

    errors = args.method == "action_error"
    if errors and args.steps is not None:
        raise ConfigError("--steps is of what is fitted; action_error fits nothing")
    asked, config = ErrorConfig(), RankConfig()
    if args.config is not None and errors:
        asked = load_config(ErrorConfig, args.config)
    elif args.config is not None:
        config = load_config(RankConfig, args.config)
    if args.steps is not None:
        config = dataclasses.replace(config, steps=args.steps)
    if args.method in ("expected", "distributional"):
        changed = dataclasses.replace(config.evaluation, method=args.method)
        config = dataclasses.replace(config, evaluation=changed)
    judging = asked if errors else config
    bars = contextlib.ExitStack()

    def fitting(name: str) -> Hooks:
        say(f"fit {name}: {config.steps} updates", quiet=args.json)
        shown = bars.enter_context(contextlib.closing(ShownFit(f"fit {name}", quiet=args.json)))
        return Hooks(on_proposed=shown.on_proposed, on_step=shown.on_step)

    def valued(value: PolicyValue) -> None:
        bars.close()
        say(f"  {value.name}: {value.value.text()}", quiet=args.json)

    with bars:
        ranking = rank(
            args.runs,
            args.store,
            args.out,
            judging,
            trials=Trials(args.results, args.world, args.by),
            race=Race(args.budget, args.first) if args.budget else None,
            threads=args.threads,
            on_value=valued,
            hooks=fitting,
        )
    if args.json:
        print_json(plain_values(ranking))
        return 0
    for line in _lines(ranking, args.by, errors):
        say(line)
    if ranking.plan is not None:
        for line in _plan_lines(ranking.plan, {v.name: v.run for v in ranking.values}):
            say(line)
    return 0


def _lines(ranking: Ranking, by: str, errors: bool) -> list[str]:
    width = max(len(v.name) for v in ranking.values)
    said = "less its action error (its draws differ by)" if errors else _VALUE
    lines = [f"{'policy':<{width}}  {said}"]
    lines += [_row(v, ranking, width, by) for v in ranking.values]
    found = ranking.agreement
    if found is not None:
        lines.append(
            f"order against trials: Spearman {found.spearman.text(2)}; the ranking chooses"
            f" '{found.chosen}', '{found.best}' did best: {by} lost by the choice"
            f" {found.regret:.3f}"
        )
    return [*lines, _ERRORS_SAY if errors else _VALUES_SAY]


_VALUE = "value of a start (networks disagree by)"
_VALUES_SAY = (
    "values order policies, they do not predict outcomes: discounted, of these data's starts, and"
    " as good as the data cover what a policy does"
)
_ERRORS_SAY = (
    "errors, in standard deviations of recorded actions, order policies at best: no outcome is in"
    " them, and who solves the task in another way errs much"
)


def _row(value: PolicyValue, ranking: Ranking, width: int, by: str) -> str:
    worst = "" if value.worst is None else f", worst tenth {value.worst:.3f}"
    tried = ranking.tried.get(value.name)
    outcome = "" if tried is None else f"; {by} in trials {tried.text(2)}"
    return f"{value.name:<{width}}  {value.value.text()} ({value.spread:.3f}){worst}{outcome}"


def _plan_lines(plan: HalvingPlan, runs: dict[str, Path]) -> list[str]:
    if plan.over:
        said = f"is left after {plan.rounds} round(s) and {plan.spent} trials"
        return [f"plan: {plan.survivors[0]} {said}"]
    lines = [
        (
            f"plan: round {plan.round} of {plan.rounds}, {plan.spent} of {plan.budget} trials"
            f" spent; every policy of this round to {plan.target} trials:"
        )
    ]
    lines += [f"  {name}: {count} more" for name, count in plan.more.items()]
    if plan.not_tried:
        lines.append(f"  not tried, by the ranking alone: {', '.join(plan.not_tried)}")
    asked = " ".join(str(runs[name]) for name in plan.survivors)
    lines.append(
        f"  robolearn evaluate {asked} --conditions {plan.target} --out RESULTS, then this command"
        " again with --results RESULTS"
    )
    return lines
