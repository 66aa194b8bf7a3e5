"""What ``robolearn collect`` puts together: world, agent, recorder, store."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Generator
from typing import Any

from hardware.teleop.browser import BrowserDevice
from hardware.teleop.device import TeleopDevice
from hardware.teleop.keyboard import KeyboardDevice
from hardware.teleop.session import SessionConfig, TeleopSession
from robolearn.cli.collect import Args, CollectConfig
from robolearn.config import to_dict
from robolearn.data.episode import EpisodeKind
from robolearn.data.recording.recorder import EpisodeRecorder, RecorderLoad
from robolearn.data.store.store import EpisodeStore
from robolearn.machine.interrupt import check
from robolearn.pusht import TASK_PARAMS, Pose, recorded_goal
from robolearn.runtime import run_episode
from robolearn.seeding import child_seed
from robolearn.types import Condition
from sim.contract import World
from sim.experts.registry import play_condition
from sim.worlds import build_operator, make_world


class Collection:
    """One run of the command. ``open_store`` is called when world and agent are there, so that
    nothing is left behind where one of them is refused. ``tell`` prints a line and flushes it: one
    per saved episode, and the page's address.
    """

    def __init__(
        self,
        args: Args,
        config: CollectConfig,
        open_store: Callable[[], EpisodeStore],
        tell: Callable[[str], None],
    ) -> None:
        self._args, self._config, self._tell = args, config, tell
        self._open_store = open_store

    def run(self) -> tuple[tuple[str, ...], RecorderLoad]:
        """Record; returns the ids of the saved episodes, and the recorder's back-pressure."""
        with contextlib.closing(make_world(self._config.world)) as env:
            if self._args.agent in ("scripted", "play"):
                return self._unattended(env)
            return self._attended(env)

    def _unattended(self, env: World) -> tuple[tuple[str, ...], RecorderLoad]:
        kind = "scripted" if self._args.agent == "scripted" else "play"
        agent = build_operator(env, kind, self._args.noise)
        said = self._provenance(env) | {"operator": agent.name}
        store = self._open_store()
        with self._recorder(store, env, "scripted") as recorder:
            # Later calls go on where earlier ones stopped, killed ones included.
            first = sum(i.kind == "scripted" for i in store.list(strict=False))
            for number in range(first, first + self._args.episodes):
                check()
                run_episode(
                    env,
                    agent,
                    None,
                    [recorder],
                    self._start(env, number),
                    max_steps=self._config.max_steps or env.max_steps,
                    task=env.task,
                    env_name=env.spec.name,
                    provenance=said | {"number": number},
                )
                recorder.keep()
            return tuple(recorder.saved), recorder.total

    def _start(self, env: World, number: int) -> Condition:
        condition = env.sample_condition(child_seed(self._config.seed, "unattended", number))
        return play_condition(condition) if self._args.agent == "play" else condition

    def _attended(self, env: World) -> tuple[tuple[str, ...], RecorderLoad]:
        store = self._open_store()
        pusht = {TASK_PARAMS: env.task_params if env.task == "pusht" else {}}
        session = SessionConfig(
            episodes=self._args.episodes,
            max_steps=self._config.max_steps or env.max_steps,
            # Another start for every episode of the store, the same ones in a repeated run.
            seed=self._config.seed + len(store.ids()),
            task=env.task,
            env_name=env.spec.name,
            condition=env.sample_condition,
            provenance=self._provenance(env),
        )
        with (
            self._recorder(store, env, "demonstration") as recorder,
            contextlib.closing(self._device(recorded_goal(pusht))) as device,
        ):
            saved = TeleopSession(env, device, recorder, session).run()
            return saved, recorder.total

    def _device(self, goal: Pose) -> TeleopDevice:
        if self._args.agent == "keyboard":
            return KeyboardDevice(lambda text: print(text, end="", file=sys.stderr, flush=True))
        device = BrowserDevice(self._args.port, goal)
        self._tell(f"open this page: {device.url}")
        return device

    @contextlib.contextmanager
    def _recorder(
        self, store: EpisodeStore, env: World, kind: EpisodeKind
    ) -> Generator[EpisodeRecorder]:
        with EpisodeRecorder(
            store,
            spec=env.spec,
            kind=kind,
            task_text=self._config.task_text,
            operator=self._args.operator,
            autosave=False,
            on_saved=self._announce,
            codecs=self._config.codecs,
        ) as recorder:
            yield recorder

    def _announce(self, episode_id: str) -> None:
        # Alone on its line, after the commit: whoever reads it may rely on the episode.
        self._tell(f"saved episode {episode_id}")

    def _provenance(self, env: World) -> dict[str, Any]:
        return {
            "command": "robolearn collect",
            "config": to_dict(self._config),
            "scene_hash": env.scene_hash,
            "engine": env.engine,
            **({TASK_PARAMS: env.task_params} if env.task_params else {}),
            "cameras": {name: c.to_json() for name, c in env.calibrations().items()},
        }
