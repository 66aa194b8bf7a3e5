"""An option that would change nothing is refused by its own name."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from robolearn.cli.main import main
from robolearn.cli.shared.without_use import refuse_without_use
from robolearn.errors import ConfigError


@dataclass(frozen=True)
class Limits:
    max_speed: float | None = None
    max_force_n: float | None = None


@dataclass(frozen=True)
class Args:
    store: str
    seed: int = 0
    tags: list[str] = field(default_factory=list[str])
    limits: Limits = field(default_factory=Limits)


def test_those_that_were_given_are_named_also_in_a_group() -> None:
    names = ("seed", "tags", "limits")
    refuse_without_use(Args("s"), names, "for an arm")
    refuse_without_use(Args("s", seed=4), ("limits", "tags"), "for an arm")
    given = Args("s", seed=4, tags=["a"], limits=Limits(max_force_n=0.0))
    with pytest.raises(ConfigError, match=r"^--seed, --tags, --max-force-n: for an arm$"):
        refuse_without_use(given, names, "for an arm")


def test_an_option_that_is_always_needed_counts_as_given() -> None:
    with pytest.raises(ConfigError, match="--store: no"):
        refuse_without_use(Args("s"), ("store",), "no")


def test_a_name_that_is_no_option_is_the_programs_mistake() -> None:
    with pytest.raises(KeyError, match="sed"):
        refuse_without_use(Args("s"), ("sed",), "")


def test_deploy_refuses_settings_of_a_device_that_nobody_holds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ("--takeover-config", "c.yaml", "--port", "8443")
    assert main(["deploy", "run", "--robot", "r", "--out", "o", *given]) == 2
    assert "--takeover-config, --port: of the device of --takeover" in capsys.readouterr().err
