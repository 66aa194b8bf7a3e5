"""Policy and person in turn: nothing jumps, nothing old is executed, and a person who does not
touch the device changes nothing.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robolearn.agents.actions import clip_action, hold_action
from robolearn.agents.chunk import ChunkAgent
from robolearn.agents.easing import Easing, EasingConfig
from robolearn.agents.execution import Execution
from robolearn.agents.replay import WrappedAgent
from robolearn.agents.take_over import Person, TakeOver, TakeOverConfig, Touch
from robolearn.data.episode import drivers
from robolearn.errors import ConfigError
from robolearn.geometry import quat_from_rotation, rot_z
from robolearn.inference.local import InProcessInference
from robolearn.runtime import run_episode
from robolearn.spec import ActionSpec
from robolearn.types import Command, Observation, PolicyInput, PolicyOutput, Signals
from tests.contracts import AgentContract
from tests.mocks import ACTION, CONDITION, POLICY_SPEC, SPEC, TOOL, Listener, PointEnv, WalkPolicy

CONFIG = TakeOverConfig(easing=EasingConfig(speed_m_s=0.05))
STEP_M = 0.005
BLOCKS = ("." * 7, "." * 12, "#" * 3, "#" * 9, "o", "t", "b", "x", "T")
"""What the speed above covers in a tick."""


@dataclass
class Scripted:
    """Touches the device as ``touches`` says, tick by tick, and walks up from where it is latched,
    or goes to ``target`` at once, as somebody whose device is absolute.
    """

    touches: list[Touch]
    target: tuple[float, float] | None = None
    name: str = "human:script"
    latched: list[np.ndarray] = field(default_factory=list)

    def reset(self, seed: int) -> None:
        del seed
        self.tick = -1
        self.at = np.zeros(2)

    def request(self, observation: Observation) -> PolicyInput | None:
        del observation
        return None

    def touched(self, observation: Observation) -> Touch:
        del observation
        self.tick += 1
        return self.touches[self.tick] if self.tick < len(self.touches) else Touch()

    def latch(self, observation: Observation, sent: Signals) -> None:
        del observation
        self.at = np.array(sent[TOOL], dtype=np.float64)
        self.latched.append(self.at.copy())

    def decide(self, observation: Observation, reply: PolicyOutput | None) -> Command:
        del reply
        self.at = self.at + np.array([0.0, 0.002]) if self.target is None else np.array(self.target)
        action = clip_action(SPEC.actions, {TOOL: self.at})
        return Command(99, action, observation.t_ns, self.name)


def policy_agent(**execution: object) -> ChunkAgent:
    agent = Execution(**execution).agent(POLICY_SPEC, SPEC, "walk")  # type: ignore[arg-type]
    assert isinstance(agent, ChunkAgent)
    return agent


def drive(person: Scripted, config: TakeOverConfig = CONFIG, *, ticks=60, delay=0, **execution):
    agent = TakeOver(policy_agent(**execution), person, SPEC, config)
    policy, listener = WalkPolicy(), Listener()
    inference = InProcessInference(policy, delay_ticks=delay)
    run_episode(PointEnv(), agent, inference, [listener], CONDITION, max_steps=ticks)
    return [t.command for t in listener.ticks], policy, agent


def sources(commands: list[Command]) -> str:
    """``p`` policy, ``h`` human, ``-`` nobody."""
    said = {"policy": "p", "human": "h", "nobody": "-"}
    return "".join(said[d] for d in drivers([c.source for c in commands]))


def touches(text: str) -> list[Touch]:
    """``#`` touched, ``.`` not, ``o`` in the dead zone, ``t``/``b`` take-over and hand-back by
    button, ``T`` that button while the device lies elsewhere, ``x`` device gone, ``X`` also held.
    """
    known = {
        "#": Touch(0.8),
        ".": Touch(),
        "o": Touch(0.08),
        "t": Touch(wish="take_over"),
        "b": Touch(wish="hand_back"),
        "B": Touch(0.8, wish="hand_back"),
        "T": Touch(wish="take_over", aligned=False),
        "/": Touch(aligned=False),
        "x": Touch(present=False),
    }
    return [known[c] for c in text]


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([{}, {"lead_ticks": 3}, {"ensemble": 0.1}, {"realtime_chunking": True}]),
    st.integers(0, 3),
    st.lists(st.sampled_from("o.#/b"), max_size=40),
)
def test_who_never_touches_changes_no_bit(execution, delay, touched) -> None:
    text = "".join(touched).replace("##", "#.").replace("##", "#.")
    commands, _, _ = drive(Scripted(touches(text)), delay=delay, ticks=40, **execution)
    alone, listener = policy_agent(**execution), Listener()
    run_episode(
        PointEnv(), alone, InProcessInference(WalkPolicy(), delay), [listener], CONDITION,
        max_steps=40,
    )  # fmt: skip
    assert len(commands) == len(listener.ticks)
    for found, tick in zip(commands, listener.ticks, strict=True):
        wanted = tick.command
        assert (found.seq, found.due_ns, found.source) == (wanted.seq, wanted.due_ns, wanted.source)
        np.testing.assert_array_equal(found.action[TOOL], wanted.action[TOOL])
        assert (found.plan is None) == (wanted.plan is None)
        if found.plan is not None:
            np.testing.assert_array_equal(found.plan, wanted.plan)


def test_two_samples_take_over_and_half_a_second_hands_back() -> None:
    """10 Hz: five ticks of half a second, in which nobody corrects anything."""
    commands, policy, agent = drive(Scripted(touches("...#.##########o.......")), ticks=24)
    # What was touched once is no touch; .08 is inside of the dead zone, and no release.
    assert sources(commands) == "pppppp" + "h" * 10 + "-----" + "-pp"
    assert agent.driver == "policy"
    assert [c.seq for c in commands] == list(range(24))
    # Asked at 0, and once when the plan was void; not while the person drove.
    assert len(policy.batches) == 2


def test_a_short_pause_is_no_release() -> None:
    commands, _, _ = drive(Scripted(touches("##....##....####")), ticks=16)
    assert sources(commands) == "phhhhh"[:2] + "----" + "hh" + "----" + "hhhh"


def test_a_button_waits_until_the_device_is_where_the_arm_is() -> None:
    person = Scripted(touches("..T//.......b..."))
    commands, _, _ = drive(person, ticks=16)
    # By button: letting go hands nothing back, the button does.
    assert sources(commands) == "ppppp" + "hhhhhhh" + "-ppp"
    waiting = TakeOver(policy_agent(), Scripted(touches("T/")), SPEC)
    env = PointEnv()
    env.reset(CONDITION, np.random.default_rng(0))
    waiting.reset(0)
    waiting.decide(env.observe(), None)
    assert waiting.waiting


def test_who_gives_back_by_button_must_let_go_before_touching_again() -> None:
    commands, _, _ = drive(Scripted(touches("..####B####..##..")), ticks=17)
    assert sources(commands) == "ppp" + "hhh" + "-pppppp" + "p" + "h--"


def test_a_device_that_was_lost_and_lies_there_untouched_hands_nothing_back() -> None:
    commands, _, agent = drive(Scripted(touches("##" + "x" * 3 + "." * 12)), ticks=17)
    assert agent.driver == "person"
    # Nobody corrects anything by it, either.
    assert sources(commands)[5:] == "-" * 12
    # A tremble is no touch; who touches it may let go of it.
    commands, _, _ = drive(Scripted(touches("##xxx.....#.....##......")), ticks=24)
    assert sources(commands)[5:] == "-" * 5 + "h" + "-" * 5 + "hh" + "-" * 5 + "-"
    # So may who presses the button.
    commands, _, _ = drive(Scripted(touches("##xxx......b....")), ticks=16)
    assert sources(commands)[11:] == "-pppp"


def test_who_took_over_by_button_goes_on_when_the_device_is_back() -> None:
    commands, _, agent = drive(Scripted(touches("t" + "xxx" + "." * 8)), ticks=12)
    assert agent.driver == "person"
    assert sources(commands)[4:] == "h" * 8


def test_a_device_that_is_gone_hands_nothing_back() -> None:
    commands, policy, agent = drive(Scripted(touches("##" + "x" * 40)), ticks=40)
    assert agent.driver == "person"
    assert "p" not in sources(commands)[1:]
    assert len(policy.batches) == 1
    commands, _, _ = drive(Scripted(touches("x" * 30)), ticks=30)
    assert sources(commands) == "p" * 30


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.sampled_from(BLOCKS), max_size=10),
    st.integers(0, 3),
    st.sampled_from([{}, {"ensemble": 0.05}, {"realtime_chunking": True, "lead_ticks": 4}]),
    st.one_of(st.none(), st.tuples(st.floats(0.0, 0.5), st.floats(0.0, 0.5))),
    st.booleans(),
)  # fmt: skip
def test_nothing_jumps_at_any_edge(blocks, delay, execution, target, shadow) -> None:
    """A step is at most what whoever drives moves in it, and what easing adds."""
    person = Scripted(touches("".join(blocks)), target)
    config = dataclasses.replace(CONFIG, shadow=shadow)
    commands, _, _ = drive(person, config, delay=delay, ticks=50, **execution)
    places = np.array([CONDITION.poses[TOOL], *(c.action[TOOL] for c in commands)])
    moved = np.linalg.norm(np.diff(places, axis=0), axis=1)
    # Chunks of the policy differ by up to .01 in y and go on by .001 in x; the very first one
    # begins elsewhere, and nobody drove before it.
    first = commands[0].source == "policy" or "h" not in sources(commands).split("p")[0]
    moved[[k for k, c in enumerate(commands) if first and c.source == "policy"][:1]] = 0.0
    assert moved.max() <= math.hypot(0.01, 0.001) + STEP_M + 1e-6
    by_person = [
        k for k in range(1, 50) if commands[k].source == commands[k - 1].source != "policy"
    ]
    assert all(moved[k] <= 0.002 + STEP_M + 1e-6 for k in by_person)
    assert [c.seq for c in commands] == list(range(50))


@settings(max_examples=12, deadline=None)
@given(st.integers(2, 20), st.integers(2, 12), st.integers(0, 3), st.sampled_from([None, 0.05]))
def test_nothing_of_an_old_plan_is_executed(before, held, delay, ensemble) -> None:
    """After hand-back every action of the policy stems from a request that was asked afterwards."""

    class Numbered(WalkPolicy):
        """y says in which tick a chunk was asked: tick / 1000 + .3, within the range."""

        def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
            output = super().sample(request, n)
            tick = (request.t_ns - 1_000_000_000) // 100_000_000
            output.actions[..., 1] = 0.3 + 0.001 * tick[:, None, None]
            return output

    text = "." * before + "#" * held + "." * 30
    person = Scripted(touches(text))
    fast = dataclasses.replace(CONFIG, easing=EasingConfig(speed_m_s=100.0))
    agent = TakeOver(policy_agent(ensemble=ensemble, lead_ticks=delay), person, SPEC, fast)
    listener = Listener()
    inference = InProcessInference(Numbered(), delay_ticks=delay)
    run_episode(PointEnv(), agent, inference, [listener], CONDITION, max_steps=before + held + 25)
    commands = [t.command for t in listener.ticks]
    kinds = sources(commands)
    back = max(k for k, c in enumerate(kinds) if c == "h") + 6
    answered = [k for k in range(back, len(kinds)) if kinds[k] == "p"]
    # Asked at the tick after, answered ``delay`` later.
    assert answered[0] == back + 1 + delay
    for k in answered:
        asked = round((float(commands[k].action[TOOL][1]) - 0.3) / 0.001)
        assert asked > back - 1
    # In between the arm stays where it was sent last.
    for k in range(back, answered[0]):
        np.testing.assert_array_equal(commands[k].action[TOOL], commands[back - 1].action[TOOL])


def test_a_person_begins_where_the_policy_stopped() -> None:
    person = Scripted(touches("." * 5 + "#" * 5))
    commands, _, _ = drive(person, ticks=10)
    np.testing.assert_array_equal(person.latched[0], commands[5].action[TOOL])
    np.testing.assert_allclose(
        commands[6].action[TOOL], commands[5].action[TOOL] + np.array([0.0, 0.002])
    )


def test_a_policy_sees_what_happened_while_a_person_drove() -> None:
    """Its history at hand-back is that of the last ticks, not of its own last one."""
    seen: list[np.ndarray] = []

    class Watching(WalkPolicy):
        def sample(self, request: PolicyInput, n: int = 1) -> PolicyOutput:
            seen.append(request.observations[TOOL][0, :, 1])
            return super().sample(request, n)

    agent = TakeOver(policy_agent(), Scripted(touches("..#######b")), SPEC, CONFIG)
    run_episode(
        PointEnv(), agent, InProcessInference(Watching()), [], CONDITION, max_steps=12
    )  # fmt: skip
    # The person moved by 2 mm a tick until the last one.
    assert seen[1][1] - seen[1][0] == pytest.approx(0.0, abs=1e-9)
    assert seen[1][0] > seen[0][0] + 0.01 - 0.1


def test_a_shadowed_policy_says_what_it_would_have_done() -> None:
    config = dataclasses.replace(CONFIG, shadow=True)
    commands, policy, agent = drive(Scripted(touches("..########")), config, ticks=10)
    assert sources(commands) == "ppphhhhhhh"
    assert agent.proposed is not None
    assert agent.proposed[TOOL].shape == (2,)
    assert len(policy.batches) == 2


def test_wrapped_agents_are_interrupted_too_and_experts_have_no_plan() -> None:
    agent = policy_agent()
    wrapped = TakeOver(WrappedAgent(agent), Scripted(touches("###.......")), SPEC, CONFIG)
    listener = Listener()
    run_episode(
        PointEnv(), wrapped, InProcessInference(WalkPolicy()), [listener], CONDITION, max_steps=10
    )
    assert sources([t.command for t in listener.ticks]) == "phh-----" + "-p"
    WrappedAgent(Scripted([])).interrupt({})
    assert isinstance(Scripted([]), Person)


@settings(max_examples=30, deadline=None)
@given(
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.tuples(*[st.floats(-1, 1)] * 3),
    st.floats(-math.pi, math.pi),
    st.floats(-math.pi, math.pi),
    st.sampled_from(["tool/pose", "tool/xyz_yaw"]),
)
def test_poses_and_headings_are_led_at_bounded_speed(a, b, turn_a, turn_b, name) -> None:
    def value(xyz, turn):
        if name.endswith("yaw"):
            return np.array([*xyz, turn])
        return np.array([*xyz, *quat_from_rotation(rot_z(turn))])

    start, wanted = value(a, turn_a), value(b, turn_b)
    action = ActionSpec(name, start.shape)
    easing = Easing((action,), 0.1, EasingConfig(0.5, 2.0))
    easing.begin({name: start})
    last, ticks = start, 0
    while easing.active:
        found = np.asarray(easing.next({name: wanted})[name])
        assert math.dist(found[:3], last[:3]) <= 0.05 + 1e-5
        if name.endswith("yaw"):
            turned = abs(math.remainder(float(found[3] - last[3]), 2 * math.pi))
        else:
            turned = 2 * math.acos(min(1.0, abs(float(found[3:] @ last[3:]))))
        assert turned <= 0.2 + 1e-3
        last, ticks = found, ticks + 1
        assert ticks < 100
    np.testing.assert_array_equal(last, wanted)
    assert easing.next({name: start})[name] is start


def test_who_moves_fast_is_not_held_back() -> None:
    """What lies between two drivers is covered while the next one moves, however fast."""
    easing = Easing((ACTION,), 0.1, EasingConfig(0.1))
    easing.begin({TOOL: np.array([0.1, 0.1])})
    wanted = [np.array([0.13 + 0.05 * k, 0.1]) for k in range(4)]
    found = [np.asarray(easing.next({TOOL: w})[TOOL])[0] for w in wanted]
    # 3 cm apart, of which 1 cm goes at every tick.
    np.testing.assert_allclose(found, [0.11, 0.17, 0.23, 0.28], atol=1e-6)
    assert not easing.active


def test_relative_actions_are_sent_as_they_are() -> None:
    step = ActionSpec("tool/delta_xy", (2,), mode="relative")
    easing = Easing((step, ACTION), 0.1, EasingConfig())
    easing.begin({"tool/delta_xy": np.ones(2), TOOL: np.zeros(2)})
    found = easing.next({"tool/delta_xy": np.zeros(2), TOOL: np.ones(2)})
    assert not np.asarray(found["tool/delta_xy"]).any()
    assert 0 < np.asarray(found[TOOL])[0] < 1


@pytest.mark.parametrize(
    "wrong", [{"dead_zone": 1.0}, {"release": 0.0}, {"samples": 0}, {"hold_s": -1.0}]
)
def test_wrong_settings_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        TakeOverConfig(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="speed_m_s"):
        EasingConfig(speed_m_s=0.0)


class TestTakeOver(AgentContract):
    def make(self) -> TakeOver:
        return TakeOver(policy_agent(), Scripted(touches("..###")), SPEC, CONFIG)

    def inference(self) -> InProcessInference:
        return InProcessInference(WalkPolicy())


def test_before_anything_was_sent_a_person_begins_where_the_arm_is() -> None:
    person = Scripted([Touch(wish="take_over")])
    commands, _, _ = drive(person, ticks=2)
    assert sources(commands) == "hh"
    env = PointEnv()
    env.reset(CONDITION, np.random.default_rng(0))
    held = hold_action(SPEC.actions, env.observe())
    np.testing.assert_array_equal(person.latched[0], held[TOOL])
