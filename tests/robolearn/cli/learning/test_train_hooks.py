"""robolearn train: trackers and evaluations of checkpoints."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from robolearn.cli.main import main
from robolearn.data.store.store import EpisodeStore
from robolearn.errors import ConfigError, MissingDependencyError
from robolearn.training.trackers import tracked
from tests.robolearn.cli.learning.test_train import CONFIG, add


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("ROBOLEARN_CACHE", str(tmp_path / "cache"))
    store = EpisodeStore.create(tmp_path / "store")
    for i in range(2):
        add(store, f"e{i}", "demonstration", i)
    (tmp_path / "x.yaml").write_text(CONFIG)
    paths = ["--config", f"{tmp_path}/x.yaml", "--store", f"{tmp_path}/store"]
    return ["train", *paths, "--out", f"{tmp_path}/run"]


def test_the_final_checkpoint_is_evaluated_and_logged(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--evaluate-world", "gym_pusht", "--evaluate-conditions", "1"]
    assert main([*words, *more, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["fit"]["metrics"]
    assert 0 <= told["evaluation/score"] <= 1
    rows = [json.loads(x) for x in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert ["evaluation/score" in row for row in rows] == [False, False, False, True]
    assert rows[-1]["evaluation/score"] == told["evaluation/score"]
    assert (tmp_path / "run/evaluation/trials.sqlite").is_file()


def test_what_would_fail_later_is_refused_now(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--evaluate-world", "pick_place"]) == 2
    assert "does not fit" in capsys.readouterr().err
    assert main([*words, "--fit.evaluate-every", "2"]) == 2
    assert "say where, by a world to evaluate in" in capsys.readouterr().err
    assert main([*words, "--evaluate-world", "gym_pusht", "--evaluate-conditions", "0"]) == 2
    assert "at least 1" in capsys.readouterr().err
    suite = "configs/eval/drawer.yaml"
    assert main([*words, "--evaluate-world", "gym_pusht", "--evaluate-suite", suite]) == 2
    assert "has starts of the task 'drawer'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_tensorboard_has_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with tracked(("tensorboard",), tmp_path, {"seed": 1}) as on_log:
        assert on_log is not None
        on_log(3, {"loss/flow": 0.5})
        on_log(6, {"loss/flow": 0.25})
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [(e.step, e.value) for e in events.Scalars("loss/flow")] == [(3, 0.5), (6, 0.25)]


def test_weights_and_biases_is_told_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []

    class Run:
        def log(self, figures: dict[str, float], step: int) -> None:
            calls.append((step, figures))

        def finish(self) -> None:
            calls.append("finish")

    fake = types.ModuleType("wandb")
    fake.init = lambda **given: calls.append(given) or Run()  # type: ignore[attr-defined]
    fake.login = lambda: calls.append("login")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with tracked(("wandb",), tmp_path / "run", {"seed": 1}) as on_log:
        assert on_log is not None
        assert calls == ["login"]  # Before the first figures.
        on_log(3, {"loss/flow": 0.5})
    assert calls[1]["config"] == {"seed": 1}
    assert calls[2:] == [(3, {"loss/flow": 0.5}), "finish"]
    calls.clear()
    monkeypatch.setenv("WANDB_MODE", "offline")
    with tracked(("wandb",), tmp_path / "run", {}):
        assert calls == []


def test_who_cannot_log_in_hears_so_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def login() -> None:
        raise RuntimeError("api_key not configured (no-tty)")

    fake = types.ModuleType("wandb")
    fake.login = login  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with (
        pytest.raises(ConfigError, match="WANDB_API_KEY, or WANDB_MODE=offline"),
        tracked(("wandb",), tmp_path / "run", {}),
    ):
        pass


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_missing_tracker_names_what_installs_it(
    name: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = "torch.utils.tensorboard" if name == "tensorboard" else "wandb"
    monkeypatch.setitem(sys.modules, module, None)
    with (
        pytest.raises(MissingDependencyError, match=rf"robolearn\[{name}\]"),
        tracked((name,), tmp_path, {}),
    ):
        pass
    with tracked((), tmp_path, {}) as on_log:
        assert on_log is None
