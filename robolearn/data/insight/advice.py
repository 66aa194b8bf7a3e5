"""Says in words what measures speak for: is imitation enough, or which family of offline RL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from robolearn.data.insight.measures import StoreMeasures
from robolearn.data.insight.saturation import Saturation
from robolearn.data.insight.verdict import USUAL

Family = Literal["imitation", "reinforcement", "goals", "reward first", "repair first"]

EXPERT = 0.9
"""Share of successes from which on there is little to choose between."""
RARE = 0.2
"""Share of successes below which most batches show none."""
AMBIGUOUS = 0.15
"""Share of states with two ways to act from which on one Gaussian would act in between."""
SATURATED = 0.2
OUTSIDE = 0.001

LIMITS = (
    "Quality is relative to this store's own episodes: if all are equally bad, they look good.",
    "Returns add up what was recorded: where steps are paid for progress, slow episodes look good.",
    "Pictures are not looked at: what only a camera tells apart counts for nothing here.",
    "Coverage depends on how finely numbers are divided; compare it within one task only.",
    "These are rules of thumb; two short trainings compared on the same starts decide.",
)


@dataclass(frozen=True, slots=True)
class Advice:
    """``headline``: one sentence. ``algorithms``: what to try, best first; ``reasons``: why;
    ``remedies``: what to do about the data; ``limits``: what this cannot know.
    """

    family: Family
    headline: str
    algorithms: tuple[str, ...]
    reasons: tuple[str, ...]
    remedies: tuple[str, ...]
    limits: tuple[str, ...] = LIMITS


def advise(measured: StoreMeasures) -> Advice:
    """What to train on this store."""
    remedies, broken = _remedies(measured)
    share = measured.successes / measured.episodes
    reasons = [f"{measured.successes} of {measured.episodes} episodes are a success."]
    if measured.trajectory_quality is not None:
        reasons.append(
            "The mean return is at"
            f" {measured.trajectory_quality:.0%} of the way from the worst to the best episode."
        )
    if broken:
        first: Family = "repair first"
        head = "Repair the ends of the episodes before any reinforcement learning."
        return Advice(first, head, ("flow",), (*reasons, broken), remedies)
    two = measured.ambiguity is not None and measured.ambiguity.two_modes >= AMBIGUOUS
    if two and measured.ambiguity is not None:
        reasons.append(
            f"In {measured.ambiguity.two_modes:.0%} of the states that were looked at, near states"
            " are acted on in two different ways: a single Gaussian would act in between."
        )
    if share >= EXPERT:
        reasons.append("There are hardly any failures to learn from: imitation copies what works.")
        head = "Imitation is enough: nearly all of these episodes succeed."
        return Advice("imitation", head, _imitation(two), tuple(reasons), remedies)
    if measured.successes == 0 and measured.goals:
        return _of_goals(measured, reasons, remedies)
    if measured.successes == 0 and not _graded(measured):
        return _without_rewards(measured, reasons, remedies)
    return _mixed(measured, share, two, reasons, remedies)


def _mixed(
    measured: StoreMeasures, share: float, two: bool, reasons: list[str], remedies: tuple[str, ...]
) -> Advice:
    if measured.successes and share < RARE:
        reasons.append(
            "Good episodes are rare: draw them more often (data.quality.by: return), which helps"
            " imitation and reinforcement learning alike."
        )
    reasons.append("Good and bad episodes lie side by side: a critic can choose between them.")
    if two:
        algorithms = ("fql", "idql", "qc", "flow with data.quality.by: return")
        reasons.append("Actors that are generative models keep both ways apart.")
    else:
        algorithms = ("rebrac", "iql", "fql", "flow with data.quality.by: return")
        reasons.append("Near states are acted on alike, so that one action per state will do.")
    if not measured.returns:
        remedies = (
            *remedies,
            "No step has a reward: set data.reward, e.g. {task: success}, to go by the outcome.",
        )
    head = "Offline reinforcement learning has something to gain: this store is of mixed quality."
    return Advice("reinforcement", head, algorithms, tuple(reasons), remedies)


def _of_goals(measured: StoreMeasures, reasons: list[str], remedies: tuple[str, ...]) -> Advice:
    shown = ", ".join(f"'{name}'" for name in measured.goals)
    reasons.append(
        f"Nobody says that a task was done, but goals are recorded ({shown}): what an episode"
        " reached later is a goal that its earlier actions were right for."
    )
    if _graded(measured):
        reasons.append(
            "Returns tell its episodes apart, which says little of a play that pursued many goals;"
            " where one task is meant, data.reward names it, and fql or idql learn from that."
        )
    head = "Learn goals: this is play, whose episodes reached many things and were paid for none."
    algorithms = ("gciql", "hiql", "beso", "idql over beso (goals)")
    return Advice("goals", head, algorithms, tuple(reasons), remedies)


def _without_rewards(
    measured: StoreMeasures, reasons: list[str], remedies: tuple[str, ...]
) -> Advice:
    reasons.append("No step has a reward, no episode is a success: nothing says what is good.")
    if {"scripted", "play"} & set(measured.kinds) or len({*measured.lengths}) == 1:
        reasons.append("It may be play: what was reached on the way can serve as goals.")
    wanted = (
        "Say what is wanted: annotate outcomes (robolearn data note --outcome), give data.reward"
        " {task: reached, ...}, or take observations as goals."
    )
    remedies = (*remedies, wanted)
    head = "First say what is good: this store has neither rewards nor successes."
    return Advice("reward first", head, ("beso (goals)", "flow"), tuple(reasons), remedies)


def _graded(measured: StoreMeasures) -> bool:
    """Whether returns tell episodes apart."""
    return measured.returns is not None and len({round(r, 6) for r in measured.returns}) > 1


def _imitation(two: bool) -> tuple[str, ...]:
    return ("flow", "diffusion", "act") if two else ("flow", "act", "bc")


def _remedies(measured: StoreMeasures) -> tuple[tuple[str, ...], str]:
    """What to do about the data, and what has to be done first."""
    found: list[str] = []
    ends, broken = measured.ends, ""
    if ends.by_the_clock:
        broken = (
            f"{ends.by_the_clock} episodes end their task exactly when time is up and none of them"
            " is a success: record that as truncated, or values stop where they should not."
        )
    if ends.disagreeing or ends.denied:
        broken = (
            f"{ends.disagreeing} episodes have flags that disagree with their outcome,"
            f" {ends.denied} are recorded successes that were annotated as failures"
            " (data.reward {task: success} goes by the annotation)."
        )
    if measured.delay is not None and measured.delay.ticks > 1:
        found.append(
            f"Motion follows commands {measured.delay.ticks} ticks late"
            f" ({1e3 * measured.delay.seconds:.0f} ms): show a longer history (n_obs), predict"
            " chunks, and train with the latency of the robot (data.latency_s)."
        )
    found += [
        f"'{s.name}' is at its limit in {s.at_limit:.0%} of the steps: a wider range, or slower"
        " demonstrations; a critic cannot tell apart what is cut off."
        for s in _saturated(measured)
    ]
    found += [
        f"'{s.name}' is outside of its declared range in {s.outside:.1%} of the steps: offline RL"
        " refuses that; correct the range."
        for s in measured.saturation
        if s.declared and s.outside > OUTSIDE
    ]
    still = sum(share > USUAL.idle for share in measured.idle)
    if still:
        found.append(
            f"{still} of {len(measured.idle)} episodes stand still for more than"
            f" {USUAL.idle:.0%} of their time: 'robolearn data quality' lists them, data.idle"
            " leaves such steps out; a policy that learns them stays where it starts."
        )
    return tuple(found), broken


def _saturated(measured: StoreMeasures) -> Sequence[Saturation]:
    return [s for s in measured.saturation if s.at_limit > SATURATED]
