"""PA-RL and EXPO over a parent: what climbs, what is edited, what follows, what is taught."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch

from policies.chunks.base import ChunkAlgorithm
from policies.chunks.student import RETRAINABLE
from policies.critics.chunk_critic import judged_part, least
from policies.critics.editing.ascent import Ascent, AscentConfig
from policies.critics.ensemble import Ensemble
from policies.critics.over_parent import OverParent, OverParentConfig
from policies.critics.reranked import ChunkLimits, RerankedPolicy
from policies.offline_rl.chained.expo import ExpoConfig
from policies.offline_rl.chained.pa_rl import PaRlConfig
from policies.offline_rl.idql import IdqlConfig
from policies.registry import POLICIES, load_policy, policy_config
from robolearn.data.reading.proposed import Proposed
from robolearn.errors import CheckpointError, ConfigError, SpecMismatchError
from robolearn.training.run_directory import load_run, policy_hash, read_tensors
from tests.learning_mocks import SPACE
from tests.policies.every import STUDENTS, Family, batches_of, tiny, untrained

BOTH = ("expo", "pa_rl")


@pytest.fixture(scope="module")
def family(tmp_path_factory: pytest.TempPathFactory) -> Family:
    return Family(tmp_path_factory.mktemp("over_parent"))


class NearTo(Ensemble):
    """The nearer the first action's x is to ``place`` (normalised), the better."""

    def __init__(self, place: float) -> None:
        super().__init__(2, 4, 4)
        self.place = place

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        worth = -((x[..., -4] - self.place) ** 2)  # Two steps of two numbers are judged.
        return torch.stack([worth, worth + 1.0])


def algorithm(name: str, family: Family, **more: Any) -> Any:
    """Untrained, over the flow policy."""
    torch.manual_seed(0)
    config = tiny(name, observation_noise=0.0, bounds=None, **more)
    parent = load_run(family.run("flow"))
    built = config.build(family.space, batches_of(family, name, 8).stats(), parent)
    assert isinstance(built, OverParent)
    return built


def asked(family: Family, built: Any, rows: int = 4) -> tuple[Any, ...]:
    """Features, candidates in SI units and as they are judged, and limits, of some requests."""
    request = family.request(rows)
    chunks = torch.from_numpy(built.parent.sample(request, 8).actions.astype(np.float32))
    seen = {k: torch.from_numpy(v.astype(np.float32)) for k, v in request.observations.items()}
    flat = judged_part(built.critics, chunks, seen)
    return built.critics.observed(seen), chunks, flat, ChunkLimits(built.critics, seen)


def test_what_climbed_is_better_than_the_best_of_the_parent_and_within_limits(
    family: Family,
) -> None:
    built = algorithm("pa_rl", family)
    features, _, flat, limits = asked(family, built)
    q = NearTo(0.7)
    climbed = Ascent(AscentConfig(keep=3, steps=20, size=0.1)).edited(q, features, flat, limits)
    before, after = least(q, features, flat), least(q, features, climbed.flat)
    assert (after.amax(dim=1) > before.amax(dim=1)).all()
    assert climbed.flat.shape[1] == 3
    # The three that were best, in their order.
    assert torch.equal(climbed.source, before.topk(3, dim=1).indices)
    assert (climbed.flat[..., 0] - 0.7).abs().max() < 0.05
    # Nothing but what the critic asks for has moved.
    source = climbed.source[..., None].expand(-1, -1, 4)
    assert torch.equal(climbed.flat[..., 1:], flat.gather(1, source)[..., 1:])
    # Beyond the table the limits of the signal hold, and what was seen better remains.
    far = Ascent(AscentConfig(keep=3, steps=20, size=0.5))
    climbed = far.edited(NearTo(50.0), features, flat, limits)
    places = limits.actions(climbed.flat)
    assert float(places.max()) <= 0.512 + 1e-6
    assert float(places[:, :, 0, 0].min()) == pytest.approx(0.512)
    overshot = Ascent(AscentConfig(keep=8, steps=1, size=3.0)).edited(q, features, flat, limits)
    assert (least(q, features, overshot.flat) >= before.sort(dim=1, descending=True).values).all()


@pytest.mark.parametrize("taught", ["best", "drawn"])
def test_the_policy_is_taught_what_climbed(taught: str, family: Family) -> None:
    built = algorithm("pa_rl", family, taught=taught, ascent=AscentConfig(2, 20, 0.1))
    assert isinstance(built.student, ChunkAlgorithm)
    built.critics.q = NearTo(0.7)
    data = batches_of(family, "pa_rl", 8)
    batch = data.batch(0)
    lessons: list[Any] = []
    plain = built.student.forward

    def forward(lesson: Any, step: int, rng: torch.Generator) -> Any:
        lessons.append(lesson)
        return plain(lesson, step, rng)

    built.student.forward = forward
    losses = built(batch, 1, torch.Generator().manual_seed(0)).by_group
    assert set(losses) == {"critic", "flow"}
    (lesson,) = lessons
    first = built.critics.chunk(lesson.actions, lesson.observations)[:, 0]
    assert (first - 0.7).abs().max() < 0.05
    assert lesson.action_mask.all()
    # Behind what is judged a chunk is as the parent's.
    proposed = batch.candidates
    rest = (proposed[:, :, 2:] - lesson.actions[:, None, 2:]).abs().amax(dim=(2, 3))
    assert float(rest.amin(dim=1).max()) < 1e-6
    assert {g.lr for n, g in built.groups().items() if n != "critic"} == {5e-5}
    # Before the critics know anything, nothing is taught.
    later = algorithm("pa_rl", family, critics_first=5)
    assert set(later(batch, 4, torch.Generator().manual_seed(0)).by_group) == {"critic"}


@pytest.mark.parametrize("name", BOTH)
def test_the_same_improvement_acts_and_follows(name: str, family: Family) -> None:
    """The target is the best of what the parent would do there and of what is made of it."""
    more = {"ascent": AscentConfig(3, 20, 0.1)} if name == "pa_rl" else {"beta": 0.2}
    built = algorithm(name, family, **more)
    built.target = NearTo(0.7)
    batch = batches_of(family, name, 8).batch(0)
    rng = torch.Generator().manual_seed(0)
    worth = built.follow(batch, batch.next_observations, rng)
    flat = judged_part(built.critics, batch.next_candidates, batch.next_observations)
    features = built.critics.observed(batch.next_observations)
    parent = least(built.target, features, flat).amax(dim=1)
    assert (worth >= parent).all()
    assert (worth > parent + 1e-4).any()


def test_edits_stay_within_beta_and_go_up(family: Family) -> None:
    built = algorithm("expo", family, beta=0.2, lr=1e-2, entropy=0.0)
    built.critics.q = NearTo(0.7)
    data = batches_of(family, "expo", 8)
    optimizer = torch.optim.Adam(built.edits.parameters(), lr=1e-2)
    for step in range(1, 61):
        losses = built(data.batch(step), step, torch.Generator().manual_seed(step)).by_group
        optimizer.zero_grad()
        losses["edit"].backward()
        optimizer.step()
    batch = data.batch(0)
    flat, limits = built.judged(batch.candidates, batch.observations)
    features = built.critics.observed(batch.observations)
    with torch.no_grad():
        edited = built.edits.edited(built.critics.q, features, flat, limits)
    assert float((edited.flat - flat).abs().max()) <= 0.2 + 1e-6
    low = flat[..., 0] < 0.5
    assert low.any()
    assert (edited.flat[..., 0] - flat[..., 0])[low].mean() > 0.15
    # Edited chunks compete with those that they were made of.
    request = family.request(4)
    plain = RerankedPolicy(built.critics, built.parent, 8).sample(request).scores
    assert (built.policy().sample(request).scores >= plain).all()


def test_without_edits_expo_is_reranking(family: Family) -> None:
    built = algorithm("expo", family, beta=0.0)
    plain = algorithm("idql", family)
    plain.critics.load_state_dict(built.critics.state_dict())
    plain.target.load_state_dict(built.target.state_dict())
    request = family.request(6)
    for n in (1, 3):
        expected = plain.policy().sample(request, n)
        found = built.policy().sample(request, n)
        np.testing.assert_array_equal(found.scores[:, 0], expected.scores[:, 0])
        np.testing.assert_array_equal(found.actions[:, 0], expected.actions[:, 0])
    batch = batches_of(family, "expo", 8).batch(0)
    rng = torch.Generator().manual_seed(0)
    follow = built.follow(batch, batch.next_observations, rng)
    torch.testing.assert_close(follow, plain.follow(batch, batch.next_observations, rng))


def test_the_density_of_an_edit_by_hand(family: Family) -> None:
    """That of a squashed normal number."""
    built = algorithm("expo", family, beta=1.0)
    for parameter in built.edits.parameters():
        parameter.data.zero_()
    seen, chunks = torch.zeros(1, built.critics.observed.size), torch.zeros(1, 500, 4)
    with torch.no_grad():
        noise = built.noise(chunks, torch.Generator().manual_seed(0))
        edits, _, density = built.edits.draw(seen, chunks, noise)
    # u ~ N(0, 1): log p(tanh u) = log N(u) - log(1 - tanh(u)^2), summed over four numbers.
    u = torch.atanh(edits.clamp(-1 + 1e-6, 1 - 1e-6))
    normal = torch.distributions.Normal(0.0, 1.0)
    by_hand = (normal.log_prob(u) - torch.log(1 - edits**2)).sum(dim=-1)
    torch.testing.assert_close(density, by_hand, atol=2e-2, rtol=1e-3)


@pytest.mark.parametrize("name", BOTH)
def test_who_practises_leaves_something_to_chance(name: str, family: Family) -> None:
    """EXPO draws its edits, PA-RL one of what climbed; each row by its own seed."""
    more: Any = {"beta": 0.2} if name == "expo" else {"temperature": 10.0}
    family.train(name, f"{name}-practising", **more)
    run = load_run(family.folder / f"{name}-practising")
    config: Any = tiny(name, **more)
    explorer, deployed = config.explorer(run), config.load(run)
    # Seeds of their own for what is drawn here; the parent's candidates are the same.
    request = family.request(6)
    practised, settled = explorer.sample(request), deployed.sample(request)
    assert not np.allclose(practised.actions, settled.actions)
    np.testing.assert_array_equal(explorer.sample(request).actions, practised.actions)
    row = dataclasses.replace(
        request,
        observations={k: v[2:3] for k, v in request.observations.items()},
        t_ns=request.t_ns[2:3],
        seed=request.seed[2:3],
        task=request.task[2:3],
    )
    np.testing.assert_allclose(explorer.sample(row).actions[0], practised.actions[2], atol=1e-5)
    if name == "pa_rl":
        # At a low temperature the best is drawn.
        cold = dataclasses.replace(config, temperature=1e-9).explorer(run).sample(request)
        np.testing.assert_array_equal(cold.actions, settled.actions)


def test_the_weight_of_entropy_holds_it_at_its_target(family: Family) -> None:
    """Below the target the weight rises, above it falls; so equation 18 of SAC says."""
    for target, rises in ((100.0, True), (-100.0, False)):
        built = algorithm("expo", family, entropy=0.1, target_entropy=target)
        assert built.entropy.log_weight is not None
        assert float(built.entropy.weight()) == pytest.approx(0.1)
        batch = batches_of(family, "expo", 8).batch(0)
        losses = built(batch, 0, torch.Generator().manual_seed(0)).by_group
        assert set(losses) == {"critic", "edit", "entropy"}
        (slope,) = torch.autograd.grad(losses["entropy"], built.groups()["entropy"].parameters)
        assert bool(slope < 0) == rises
    assert "entropy" not in algorithm("expo", family).groups()


def test_cal_ql_pushes_down_what_is_above_its_return(family: Family) -> None:
    built = algorithm("pa_rl", family, penalty=0.5)
    data = batches_of(family, "pa_rl", 8)
    spec = dataclasses.replace(tiny("pa_rl", penalty=0.5).batches(), batch_size=8)
    assert "returns" in spec.parts
    batch = dataclasses.replace(data.batch(0), returns=torch.full((8,), 2.0))
    for parameter in built.critics.q.parameters():
        parameter.data.zero_()
    plain = algorithm("pa_rl", family)
    plain.critics.load_state_dict(built.critics.state_dict())
    plain.target.load_state_dict(built.target.state_dict())
    rng = torch.Generator().manual_seed(0)
    with_penalty = built(batch, 1, rng).by_group["critic"].item()
    without = plain(batch, 1, torch.Generator().manual_seed(0)).by_group["critic"].item()
    # Three chunks of the parent, held at their return 2, against a recorded one at 0; two members.
    assert with_penalty - without == pytest.approx(0.5 * 2 * (2.0 + np.log(3)), rel=1e-4)
    # What is floored is not pushed any further: no gradient flows through it.
    loss = built(batch, 1, rng).by_group["critic"]
    gradient = torch.autograd.grad(loss, built.critics.q.biases[-1], retain_graph=True)[0]
    other = plain(batch, 1, torch.Generator().manual_seed(0)).by_group["critic"]
    expected = torch.autograd.grad(other, plain.critics.q.biases[-1])[0] - 0.5
    torch.testing.assert_close(gradient, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", BOTH)
def test_chains_are_complete_and_every_edit_in_them_counts(name: str, family: Family) -> None:
    """Over critics over a student: any policy with ``sample`` is a parent."""
    more: Any = {"retrain": False} if name == "pa_rl" else {}
    family.run("idql", parent="distilled")
    family.train(name, f"{name}-deep", parent="idql", **more)
    run = load_run(family.folder / f"{name}-deep")
    inside = [load_run(run.path / p).config["policy"] for p in ("parent", "parent/parent")]
    assert inside == ["idql", "distilled"]
    answer = load_policy(run.path).sample(family.request(3)).actions
    moved = run.path.rename(family.folder / f"{name}-moved")
    np.testing.assert_array_equal(load_policy(moved).sample(family.request(3)).actions, answer)
    before = policy_hash(moved)
    weights = moved / "parent/parent/weights.safetensors"
    raw = bytearray(weights.read_bytes())
    raw[-1] ^= 1
    weights.write_bytes(bytes(raw))
    assert policy_hash(moved) != before
    with pytest.raises(CheckpointError, match=r"edited after it was written: parent/parent/w"):
        load_policy(moved)


def test_a_taught_policy_alone_answers_in_one_call(family: Family) -> None:
    family.train("pa_rl", "alone", improve=False)
    policy = load_policy(family.folder / "alone")
    assert not isinstance(policy, RerankedPolicy)
    student = read_tensors(family.folder / "alone/weights.safetensors")
    parent = read_tensors(family.folder / "alone/parent/weights.safetensors")
    taught = {k.removeprefix("policy."): v for k, v in student.items() if k.startswith("policy.")}
    assert taught.keys() == parent.keys()
    assert any(not torch.equal(v, parent[k]) for k, v in taught.items())


@pytest.mark.parametrize("parent", ["bc", "act"])
def test_policies_of_other_kinds_are_taught(parent: str, family: Family) -> None:
    family.train("pa_rl", f"taught-{parent}", parent=parent)
    answer = load_policy(family.folder / f"taught-{parent}").sample(family.request(2)).actions
    assert np.isfinite(answer).all()


OVER = [n for n in sorted(POLICIES) if issubclass(policy_config(n), OverParentConfig)]


@pytest.fixture(scope="module")
def sure(tmp_path_factory: pytest.TempPathFactory) -> Family:
    """Parents that answer by one chunk."""
    made = Family(tmp_path_factory.mktemp("sure"))
    made.run("bc")
    made.run("act", spread=0.0)
    return made


@pytest.mark.parametrize("name", OVER)
@pytest.mark.parametrize("parent", ["bc", "act"])
def test_a_parent_whose_noise_has_no_say_is_not_chosen_from(
    parent: str, name: str, sure: Family
) -> None:
    """Whoever makes other chunks of them needs no more than one."""
    run = load_run(sure.run(parent))
    config: Any = tiny(name, bounds=None)
    if not config.chooses:
        assert config.build(SPACE, run.stats, run) is not None
        return
    sooner = "draws noise 4 times" if (name, parent) == ("dsrl", "act") else "noise has no say"
    with pytest.raises(ConfigError, match=sooner):
        config.build(SPACE, run.stats, run)


def test_who_makes_no_other_chunks_is_known() -> None:
    kinds = {name: policy_config(name) for name in OVER}
    choosing = [
        n for n, kind in kinds.items() if issubclass(kind, OverParentConfig) and kind.chooses
    ]
    assert choosing == ["doit", "dsrl", "idql"]


@pytest.mark.parametrize("parent", ["distilled", "idql", "fql"])
def test_who_cannot_be_taught_is_told_why(parent: str, family: Family) -> None:
    if parent == "fql":
        family.run("fql", n_obs=2, horizon=4)
    why = {"fql": "has no imitation loss", "idql": "has no imitation loss"}
    with pytest.raises(
        ConfigError,
        match=f"{why.get(parent, 'learns from a parent of its own')}.*retrain to false.*'flow'",
    ):
        family.train("pa_rl", "none", parent=parent)
    assert not (family.folder / "none").exists()


def test_those_that_can_be_taught_are_the_ones_that_imitate() -> None:
    from policies.chunks.base import ChunkConfig

    found = [
        name
        for name in sorted(POLICIES)
        if issubclass(policy_config(name), ChunkConfig) and name not in STUDENTS
    ]
    assert tuple(found) == RETRAINABLE


@pytest.mark.parametrize("name", BOTH)
def test_bad_input_is_explained(name: str, family: Family) -> None:
    config: Any = tiny(name, bounds=None)
    stats = batches_of(family, name, 8).stats()
    with pytest.raises(ConfigError, match=f"{name} needs a parent run"):
        config.build(SPACE, stats, None)
    parent = load_run(family.run("flow"))
    other = dataclasses.replace(SPACE, observations=SPACE.observations[:1])
    with pytest.raises(SpecMismatchError, match="another task space"):
        config.build(other, stats, parent)
    with pytest.raises(ConfigError, match=r"must be the parent's \(2, 4\)"):
        dataclasses.replace(config, horizon=6).build(SPACE, stats, parent)
    with pytest.raises(ConfigError, match="stride must be in"):
        dataclasses.replace(config, stride=9)
    for key, value in (("weight_decay", -1.0), ("observation_noise", -0.1), ("margin", -1e-9)):
        with pytest.raises(ConfigError, match=f"{key} must be at least 0, got {value}"):
            dataclasses.replace(config, **{key: value})
    for rate in (0.0, -1.0, 1.5):
        with pytest.raises(ConfigError, match=r"tau in \(0, 1\]"):
            dataclasses.replace(config, tau=rate)
    built: Any = untrained(name, family)
    data = batches_of(family, name, 8)
    assert isinstance(data.candidates, Proposed)
    with pytest.raises(ConfigError, match="the parent's chunks at every row"):
        built(dataclasses.replace(data.batch(0), candidates=None), 0, torch.Generator())
    family.run("flow")
    run = family.run(name)
    moved = run.rename(family.folder / f"{name}-orphan")
    (moved / "parent").rename(family.folder / f"{name}-lost")
    with pytest.raises(CheckpointError, match="lacks the folder 'parent'"):
        load_policy(moved, accept_edited=True)


def test_bad_settings_are_explained() -> None:
    for name, bad in (("beta", {"beta": -0.1}), ("entropy", {"entropy": -1.0})):
        with pytest.raises(ConfigError, match=f"{name} must be at least 0"):
            ExpoConfig(**bad)
    with pytest.raises(ConfigError, match="nothing is left"):
        PaRlConfig(retrain=False, improve=False)
    with pytest.raises(ConfigError, match="must be positive"):
        PaRlConfig(temperature=0.0)
    with pytest.raises(ConfigError, match="at least 0"):
        PaRlConfig(penalty=-1.0)
    with pytest.raises(ConfigError, match="ascent"):
        AscentConfig(keep=0)
    with pytest.raises(ConfigError, match="expectile"):
        IdqlConfig(expectile=1.0)
