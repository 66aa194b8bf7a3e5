"""Episodes on a cell: pairs by turns, stops that are kept, what breaks off; no arm moves here."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hardware.cell.load import load_cell
from hardware.supervisor.link import Cause, Mode, Status
from hardware.teleop.agent import TeleopAgent
from hardware.teleop.device import DeviceReading, Steps
from policies.registry import load_policy
from robolearn.agents.execution import Execution
from robolearn.agents.scripted_person import PatienceConfig, ScriptedPerson
from robolearn.contracts import Policy, PolicySpec
from robolearn.data.reading.selection import DataConfig
from robolearn.data.store.store import EpisodeStore
from robolearn.data.store.writer import StoreWriter
from robolearn.errors import (
    RobotConnectionError,
    SafetyStopError,
    StaleSignalError,
    StartError,
)
from robolearn.inference.local import BatchedInference
from robolearn.operations.deploy.operator import Unattended
from robolearn.operations.deploy.policy import Source
from robolearn.operations.practice.actors import Flown, RoundTask
from robolearn.operations.practice.cell_flights import CellFlights, VersionPolicy
from robolearn.pusht import BLOCK, TOOL
from robolearn.training.run_directory import load_run
from robolearn.training.versions import write_version
from robolearn.types import Condition, Observation, PolicyInput, PolicyOutput
from sim.contract import World
from sim.experts.registry import build_expert
from sim.worlds import make_world
from tests.hardware.lab import CONFIG
from tests.hardware.teleop.answering import Answering
from tests.two_runs import two_runs

STEPS = 8


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A parent, and a practice with two versions."""
    folder = tmp_path_factory.mktemp("runs")
    two_runs(folder, DataConfig(observations=(TOOL, BLOCK)), STEPS)
    out = folder / "out"
    out.mkdir()
    for name in ("config.yaml", "spec.json", "stats.json"):
        shutil.copyfile(folder / "one" / name, out / name)
    for version, name in enumerate(("one", "two"), 1):
        write_version(out, version, load_run(folder / name).weights)
    return folder


@pytest.fixture(scope="module")
def world() -> Generator[World]:
    env = make_world("pusht_reference")
    yield env
    env.close()


class Inferring:
    """A policy in this process, as a source of answers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self._batched = BatchedInference(policy)

    @property
    def spec(self) -> PolicySpec:
        return self.policy.spec

    def submit(self, env_id: int, request: PolicyInput) -> None:
        self._batched.submit(env_id, request)

    def poll(self, env_id: int, now_ns: int) -> PolicyOutput | None:
        return self._batched.poll(env_id, now_ns)

    def close(self) -> None:
        self._batched.close()


class Versions:
    """The same policy as every version."""

    def __init__(self, answering: Inferring) -> None:
        self.answering, self.asked = answering, list[int]()

    def at(self, version: int) -> Inferring:
        self.asked.append(version)
        return self.answering


class FakeArm:
    """A simulated world in the place of an arm; ``plan``: what an observation raises, by its
    number since the beginning; -1: a reset, -2: the way home.
    """

    def __init__(self, inner: World, plan: dict[int, BaseException]) -> None:
        self.inner, self.plan, self.seen = inner, plan, 0
        self.cleared, self.homes, self.gone = 0, 0, False
        self.standing: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def reset(self, condition: Condition, rng: Any) -> Any:
        error = self.plan.pop(-1, None)
        if error is not None:
            raise error
        return self.inner.reset(condition, rng)

    def observe(self) -> Observation:
        self.seen += 1
        if self.seen in self.plan:
            raise self.plan[self.seen]
        return self.inner.observe()

    def hold(self) -> None:
        """It stands."""

    def home(self) -> None:
        error = self.plan.pop(-2, None)
        if error is not None:
            raise error
        self.homes += 1

    def status(self) -> Status:
        return Status(0, Mode.STOPPED, Cause.ROBOT_FAULT, 0, False, 0, 0, 0, False)

    def clear_stop(self) -> None:
        if self.gone:
            raise RobotConnectionError("the robot is gone")
        self.cleared += 1


# What a protocol with these members asks of an instance.
for _name in ("spec", "capabilities", "now_ns", "apply", "drain", "advance", "outcome", "close"):
    if not hasattr(FakeArm, _name):
        setattr(FakeArm, _name, property(lambda self, _n=_name: getattr(self.inner, _n)))


@dataclasses.dataclass
class Flying:
    flights: CellFlights
    arm: FakeArm
    writer: StoreWriter
    store: EpisodeStore

    def all(self, task: RoundTask) -> list[Flown]:
        """Flown and committed one by one, as a practice does."""
        found = list[Flown]()
        for flown in self.flights(task):
            assert flown.prepared is not None
            self.writer.commit(flown.prepared)
            found.append(flown)
        return found


Fly = Callable[..., Flying]


@pytest.fixture
def fly(runs: Path, world: World, tmp_path: Path) -> Generator[Fly]:
    store = EpisodeStore.create(tmp_path / "store")
    answering = Inferring(load_policy(runs / "one"))
    with store.writer() as writer:

        def make(
            plan: dict[int, BaseException] | None = None,
            *,
            lab: bool = True,
            stops: int = 3,
            person: ScriptedPerson | TeleopAgent | None = None,
            steps: int = STEPS,
        ) -> Flying:
            arm = FakeArm(world, plan or {})
            flights = CellFlights(
                env=arm,
                cell=dataclasses.replace(load_cell(CONFIG), lab=lab),
                parent=Source(answering, "one", "hash", "runs/one"),
                parent_hash="hash",
                explorer=Versions(answering),
                run_dir=runs / "out",
                drafts=writer.drafts,
                operator=Unattended(agreed=True),
                task="pusht",
                max_steps=steps,
                max_stops=stops,
                execution=Execution(),
                instruction="",
                practice="id",
                provenance={"command": "robolearn finetune"},
                person=person,
                watching=(person,) if isinstance(person, ScriptedPerson) else (),
            )
            return Flying(flights, arm, writer, store)

        yield make


def pair(world: World, number: int = 1, first: int = 10) -> RoundTask:
    start = world.sample_condition(5)
    drivers = ("explorer", "parent")
    return RoundTask(number, 2, (start, start), drivers, 0, first, (7, 7))


def test_a_pair_begins_alike_and_says_who_drove(fly: Fly, world: World) -> None:
    flying = fly()
    first, second = flying.all(pair(world))
    assert (first.driver, first.version, first.number) == ("explorer", 2, 10)
    assert (second.driver, second.version, second.number) == ("parent", None, 11)
    assert (first.steps, first.reason, first.decisions) == (STEPS, "time_limit", 2)
    metas = [flying.store.meta(i) for i in flying.store.ids()]
    assert {m.kind for m in metas} == {"online"}
    assert metas[0].condition.poses == metas[1].condition.poses
    said = [m.provenance["practice"] for m in metas]
    assert [(p["driver"], p["version"], p["start"]) for p in said] == [
        ("explorer", 2, 7),
        ("parent", None, 7),
    ]
    # The other one is first in the next round.
    assert [f.driver for f in flying.all(pair(world, 2, 12))] == ["parent", "explorer"]
    assert flying.flights.ended is None


def test_a_person_takes_over_and_its_cost_is_counted(fly: Fly, world: World) -> None:
    expert = build_expert("pusht", world.spec)
    person = ScriptedPerson(expert, PatienceConfig(patience_s=0.3, reaction_s=0.0))
    flying = fly({-1: StartError("off by 30 mm")}, person=person, steps=12)
    first, second = flying.all(pair(world))
    for flown, name in zip((first, second), flying.store.ids(), strict=True):
        source = flying.store.read(name).source
        persons = [who.startswith("operator:") for who in source]
        assert not persons[0]
        assert flown.effort.person_steps == sum(persons) > 0
        assert flown.effort.take_overs == 1
        assert flown.effort.seconds == pytest.approx(1.2)
        assert flown.effort.travel_m > 0
    # To the start twice, as it was placed anew, and the episodes.
    assert (first.moves, second.moves) == (4, 2)


class Nudging(Answering):
    """Nudges the tool forward at the tenth to twentieth look of every episode."""

    name = "keyboard"

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.total = 0, np.zeros(6)

    def begin(self, opening: float | None) -> None:
        del opening

    def poll(self) -> DeviceReading:
        self.looks += 1
        self.total[0] += 0.004 * (10 <= self.looks < 20)
        return DeviceReading(time.monotonic_ns(), True, True, Steps(self.total.copy()))


def test_a_person_at_a_device_takes_over_while_an_arm_practises(fly: Fly, world: World) -> None:
    device = Nudging()
    flying = fly(person=TeleopAgent(device, world.spec), steps=16)
    task = pair(world)
    for k, flown in enumerate(flying.flights(task)):
        device.looks = 0
        assert flown.prepared is not None
        flying.writer.commit(flown.prepared)
        episode = flying.store.read(flying.store.ids()[k])
        by_hand = np.array(episode.source) == "human:keyboard"
        assert not by_hand[0]
        assert flown.effort.person_steps == by_hand.sum() > 0
        assert flown.effort.take_overs == 1
        np.testing.assert_array_equal(episode.intervention, by_hand)
        assert flown.driver == task.drivers[k]
        way = episode.action[TOOL][by_hand]
        assert len(way) < 2 or way[-1, 1] > way[0, 1]


def test_a_stop_is_an_episode_of_its_length(fly: Fly, world: World) -> None:
    flying = fly({4: SafetyStopError("the tool was pushed")})
    first, second = flying.all(pair(world))
    assert (first.success, first.steps, first.reason) == (False, 3, "safety_stop")
    assert (second.steps, second.reason) == (STEPS, "time_limit")
    kept = flying.store.read(flying.store.ids()[0])
    assert (kept.steps, kept.meta.outcome.reason) == (3, "safety_stop")
    # A lab's stop is nobody's to look at.
    assert (flying.arm.cleared, flying.flights.ended) == (1, None)


def test_a_robot_that_cannot_be_cleared_does_not_take_the_episode_with_it(
    fly: Fly, world: World
) -> None:
    flying = fly({4: SafetyStopError("robot_fault")})
    flying.arm.gone = True
    with pytest.raises(RobotConnectionError):
        flying.all(pair(world))
    assert [flying.store.read(i).steps for i in flying.store.ids()] == [3]


def test_repeated_stops_end_it(fly: Fly, world: World) -> None:
    pushed = SafetyStopError("the tool was pushed")
    flying = fly({4: pushed, 16: pushed}, stops=2)
    flown = flying.all(pair(world)) + flying.all(pair(world, 3, 12))
    assert [f.reason for f in flown] == ["safety_stop", "time_limit", "safety_stop"]
    ended = flying.flights.ended
    assert ended is not None
    assert "stopped 2 times (practice.max_stops), 2 of them while what was learned" in ended.why
    assert not ended.sound
    assert flying.arm.cleared == 1
    # The last one is cleared for the way home, and not counted again.
    flying.arm.plan[-2] = pushed
    flying.flights.home()
    assert (flying.arm.cleared, flying.arm.homes, len(flying.flights.stops)) == (2, 1, 2)
    # The parent's own stops are no news about what was learned.
    parents = fly({12: pushed}, stops=1)
    assert len(parents.all(pair(world))) == 2
    assert parents.flights.ended is not None
    assert parents.flights.ended.sound


def test_a_stop_while_it_waited_does_not_keep_it_from_home(fly: Fly, world: World) -> None:
    flying = fly({-2: SafetyStopError("state_stale")})
    flying.flights.home()
    assert (flying.arm.cleared, flying.arm.homes) == (1, 1)
    # Nobody drove: no news about what was learned.
    assert flying.flights.stops == ["nobody"]
    real = fly({-2: SafetyStopError("state_stale")}, lab=False)
    real.flights.home()
    assert (real.arm.cleared, real.arm.homes) == (0, 0)


def test_nobody_clears_the_stop_of_a_real_arm(fly: Fly, world: World) -> None:
    flying = fly({4: SafetyStopError("robot_fault")}, lab=False)
    assert [f.reason for f in flying.all(pair(world))] == ["safety_stop"]
    assert flying.arm.cleared == 0
    assert flying.flights.ended is not None
    assert "nobody is there to clear it" in flying.flights.ended.why
    assert flying.flights.ended.goes_on


def test_what_passes_costs_an_episode_and_a_start_is_placed_again(fly: Fly, world: World) -> None:
    flying = fly({4: StaleSignalError("block/pose is 0.3 s old"), -1: StartError("off by 30 mm")})
    (flown,) = flying.all(pair(world))
    assert flown.driver == "parent"
    assert len(flying.store.ids()) == 1
    assert flying.flights.stops == ["explorer"]


@pytest.mark.parametrize("error", [RobotConnectionError("the lab is gone"), KeyboardInterrupt()])
def test_what_breaks_the_cell_is_raised_after_what_was_flown(
    fly: Fly, world: World, error: BaseException
) -> None:
    flying = fly({12: error})
    with pytest.raises(type(error)):
        flying.all(pair(world))
    assert len(flying.store.ids()) == 1


class _Wanted:
    value = 1


def test_weights_are_taken_when_another_version_is_wanted(runs: Path) -> None:
    wanted = _Wanted()
    policy = VersionPolicy(runs / "out", wanted)
    from robolearn.inference.blank import blank_request

    request = blank_request(policy.spec)
    first = policy.sample(request).actions
    wanted.value = 2
    second = policy.sample(request).actions
    assert (first != second).any()
    assert (second == load_policy(runs / "two").sample(request).actions).all()
    wanted.value = 1
    assert (first == policy.sample(request).actions).all()
