"""Lists the policies by name, resolves them lazily, and makes a policy of a run directory again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from policies.chunks.eyes import Eyes, SeeingPolicy, eyes_of
from policies.chunks.guidance import GUIDANCE, GuidanceKind, Guided
from robolearn.config import from_dict
from robolearn.contracts import Policy
from robolearn.data.store.stats import DatasetStats
from robolearn.errors import CheckpointError, ConfigError
from robolearn.learning import Algorithm, BatchSpec, use_threads
from robolearn.representation import Representation, RepresentationConfig, RepresentedPolicy
from robolearn.spec import TaskSpace
from robolearn.table import CONFIG, Table
from robolearn.training.run_directory import HOLDS, PARENT, Run, load_run, nested_run


@runtime_checkable
class PolicyConfig(Protocol):
    """What every entry of :data:`POLICIES` is: a frozen dataclass with these methods."""

    def batches(self) -> BatchSpec:
        """What the algorithm is fed with."""
        ...

    def build(self, space: TaskSpace, stats: DatasetStats, parent: Run | None) -> Algorithm:
        """An untrained algorithm."""
        ...

    def load(self, run: Run) -> Policy:
        """The trained policy of a run directory."""
        ...


@runtime_checkable
class Exploring(Protocol):
    """What a config may have beside: who acts while its policy practises."""

    def explorer(self, run: Run) -> Policy:
        """The policy that acts; without this method it is the one that ``load`` gives."""
        ...


@runtime_checkable
class Practising(Protocol):
    """What a config may have beside: how its policy practises where nothing else is said."""

    def practice(self) -> Mapping[str, Any]:
        """Keys of the section ``practice`` and their values."""
        ...


POLICIES = Table[type[PolicyConfig]](
    {
        "a2pr": "policies.offline_rl.a2pr:A2prConfig",
        "act": "policies.imitation.act:ActConfig",
        "adversarial": "policies.online_rl.adversarial:AdversarialConfig",
        "arsq": "policies.offline_rl.arsq:ArsqConfig",
        "awac": "policies.offline_rl.awac:AwacConfig",
        "bc": "policies.imitation.bc:BcConfig",
        "bc_rnn": "policies.imitation.bc_rnn:BcRnnConfig",
        "beso": "policies.imitation.beso:BesoConfig",
        "co_rft": "policies.offline_rl.chained.co_rft:CoRftConfig",
        "cocoa": "policies.offline_rl.cocoa:CocoaConfig",
        "compose": "policies.imitation.compose:ComposeConfig",
        "consistency": "policies.imitation.consistency:ConsistencyConfig",
        "consistency_ac": "policies.offline_rl.generative.consistency_ac:ConsistencyAcConfig",
        "cql": "policies.offline_rl.cql:CqlConfig",
        "crl": "policies.offline_rl.goals.crl:CrlConfig",
        "dice_rl": "policies.online_rl.dice_rl:DiceRlConfig",
        "diffusion": "policies.imitation.diffusion:DiffusionConfig",
        "distilled": "policies.imitation.distilled:DistilledConfig",
        "doit": "policies.offline_rl.chained.doit:DoitConfig",
        "dppo": "policies.online_rl.dppo:DppoConfig",
        "dsrl": "policies.online_rl.dsrl:DsrlConfig",
        "dvl": "policies.offline_rl.dvl:DvlConfig",
        "ebt": "policies.imitation.ebt:EbtConfig",
        "expo": "policies.offline_rl.chained.expo:ExpoConfig",
        "deflow": "policies.offline_rl.generative.deflow:DeflowConfig",
        "diffusion_ql": "policies.offline_rl.generative.diffusion_ql:DiffusionQlConfig",
        "filtered_bc": "policies.online_rl.filtered_bc:FilteredBcConfig",
        "fisor": "policies.offline_rl.generative.fisor:FisorConfig",
        "flow": "policies.imitation.flow:FlowConfig",
        "fql": "policies.offline_rl.fql:FqlConfig",
        "gciql": "policies.offline_rl.goals.gciql:GciqlConfig",
        "gcivl": "policies.offline_rl.goals.gcivl:GcivlConfig",
        "h2o": "policies.online_rl.h2o:H2oConfig",
        "hil_serl": "policies.online_rl.hil_serl:HilSerlConfig",
        "hilp": "policies.offline_rl.goals.hilp:HilpConfig",
        "hiql": "policies.offline_rl.goals.hiql:HiqlConfig",
        "idql": "policies.offline_rl.idql:IdqlConfig",
        "iql": "policies.offline_rl.iql:IqlConfig",
        "mean_flow": "policies.imitation.mean_flow:MeanFlowConfig",
        "pa_rl": "policies.offline_rl.chained.pa_rl:PaRlConfig",
        "ofql": "policies.offline_rl.generative.ofql:OfqlConfig",
        "qc": "policies.offline_rl.qc:QcConfig",
        "rebrac": "policies.offline_rl.rebrac:RebracConfig",
        "reinflow": "policies.online_rl.reinflow:ReinflowConfig",
        "rlpd": "policies.online_rl.rlpd:RlpdConfig",
        "residual": "policies.online_rl.residual:ResidualConfig",
        "riql": "policies.offline_rl.riql:RiqlConfig",
        "sac": "policies.online_rl.sac:SacConfig",
        "safe": "policies.online_rl.safe:SafeConfig",
        "shortcut": "policies.imitation.shortcut:ShortcutConfig",
        "td3_bc": "policies.offline_rl.td3_bc:Td3BcConfig",
        "wsrl": "policies.online_rl.wsrl:WsrlConfig",
    },
    what="policy",
    group="robolearn.policies",
    wanted=CONFIG,
)


def policy_config(name: str) -> type[PolicyConfig]:
    """The configuration class of a policy."""
    return POLICIES.find(name)


def load_policy(
    run_dir: Path,
    threads: int | None = 1,
    guidance: GuidanceKind = "auto",
    *,
    accept_edited: bool = False,
) -> Policy:
    """Rebuild the policy of a run directory; ``threads`` sets torch's threads (None: leave).

    ``guidance``: how it continues a plan; :class:`ConfigError` if it cannot do it in this way.
    ``accept_edited``: also where files of the run are not what training wrote; else that is a
    :class:`CheckpointError` that names them.
    """
    if threads is not None:
        use_threads(threads)
    policy = policy_of(load_run(run_dir, accept_edited=accept_edited))
    if guidance != "auto":
        guide(policy, guidance, str(run_dir))
    return policy


def guide(policy: Policy, kind: GuidanceKind, name: str) -> None:
    """Let ``policy`` continue plans in this way."""
    inner = policy.inner if isinstance(policy, RepresentedPolicy) else policy
    ways = inner.continues if isinstance(inner, Guided) else ()
    if not isinstance(inner, Guided) or kind not in ways:
        why = "; 'trained' takes a run with algorithm.max_prefix" if kind == "trained" else ""
        raise ConfigError(
            f"'{name}' cannot continue a plan by '{kind}'{why}; it can by: {list(ways)}"
        )
    inner.guidance = GUIDANCE[kind]


def policy_of(run: Run) -> Policy:
    """Rebuild the policy of a run that was read already, or of its parent where it holds that."""
    if run.config.get(HOLDS) == PARENT:
        return policy_of(nested_run(run, PARENT))
    return _represented(run, _config(run).load)


def explorer_of(run: Run) -> Policy:
    """The policy that acts while the policy of a run practises (:class:`Exploring`); most act as
    they are deployed.
    """
    config = _config(run)
    return _represented(run, config.explorer if isinstance(config, Exploring) else config.load)


def _config(run: Run) -> PolicyConfig:
    """The configuration of a run's policy."""
    name = str(run.config.get("policy", ""))
    if name not in POLICIES:
        raise CheckpointError(
            f"'{run.path}' was trained by policy '{name}', which this version lacks;"
            f" it knows {sorted(POLICIES)}"
        )
    try:
        return from_dict(policy_config(name), run.config["algorithm"], f"{run.path}/config.yaml")
    except KeyError as error:
        raise CheckpointError(f"'{run.path}/config.yaml' lacks {error}") from error


def _represented(run: Run, load: Callable[[Run], Policy]) -> Policy:
    """What ``load`` makes of a run, in the representation of the run's data."""
    if "data" not in run.config:
        raise CheckpointError(f"'{run.path}/config.yaml' lacks 'data'")
    data = run.config["data"]
    eyes = _eyes(run, data)
    if eyes is not None:
        seen = dataclasses.replace(run.spec, task_space=eyes.space)
        return SeeingPolicy(load(dataclasses.replace(run, spec=seen)), eyes)
    changed = from_dict(RepresentationConfig, data.get("representation", {}), f"{run.path}: data")
    if changed.plain:
        return load(run)
    seen = Representation(changed, run.spec.task_space)
    spec = dataclasses.replace(run.spec, task_space=seen.inner)
    return RepresentedPolicy(load(dataclasses.replace(run, spec=spec)), seen)


def _eyes(run: Run, data: Mapping[str, Any]) -> Eyes | None:
    """Of the parent that ``run`` keeps, where it learned without a picture what acts by some."""
    pictures = [s.name for s in run.spec.task_space.observations if s.is_image]
    if not pictures or {*pictures} & {*data["observations"]}:
        return None
    eyes = eyes_of(policy_of(nested_run(run, PARENT)))
    if eyes is None:
        raise CheckpointError(
            f"'{run.path}' observes {pictures} and learned without, but its parent tells nothing of"
            " pictures: expected the folder 'parent' with the policy that it was trained over"
        )
    return eyes
