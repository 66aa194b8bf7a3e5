"""Draws the lab's world, in a process of its own where a lab serves meanwhile."""

from __future__ import annotations

import dataclasses
import multiprocessing
import selectors
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from hardware.emulators.lab.workcell import Rendered
from robolearn.arms.shapes import Joints
from robolearn.errors import RobolearnError
from robolearn.operations.lab.scene_view import scene_view
from robolearn.operations.lab.workcell import LabConfig, drawn_scene
from robolearn.shapes import AnyFloats, Picture
from sim.plants.pusht import PyBulletPlant

if TYPE_CHECKING:
    from sim.plants.plant_view import PlantView


class ViewProcess:
    """Draws in a process of its own, started before the lab serves: a picture (and the start of a
    process) takes many control periods, and the arm must not freeze meanwhile.
    """

    def __init__(self, config: LabConfig) -> None:
        self._waiting: list[Rendered] = []
        self._selector: selectors.BaseSelector | None = None
        context = multiprocessing.get_context("spawn")
        pipe, theirs = context.Pipe()
        self._pipe: Connection[Any, Any] | None = pipe
        self._process = context.Process(target=_draw, args=(config, theirs), daemon=True)
        self._process.start()
        theirs.close()

    def attach(self, selector: selectors.BaseSelector) -> None:
        """Deliver pictures from this selector's loop."""
        self._selector = selector
        if self._pipe is not None:
            selector.register(self._pipe.fileno(), selectors.EVENT_READ, self._arrived)

    def render(
        self,
        view: str,
        width: int,
        height: int,
        q: Joints,
        poses: Mapping[str, AnyFloats],
        opening_m: float | None,
        done: Callable[[Picture | str], None],
    ) -> None:
        """Ask for a picture; ``done`` is called from the loop."""
        if self._pipe is None or len(self._waiting) >= 16:
            done("too many are waiting" if self._pipe else "the drawing process ended")
            return
        self._waiting.append(done)
        self._pipe.send((view, width, height, q, dict(poses), opening_m))

    def close(self) -> None:
        """End the process; safe to call twice."""
        self._process.terminate()
        self._process.join()

    def _arrived(self, _mask: int) -> None:
        if self._pipe is None or self._selector is None:
            return
        try:
            answer = self._pipe.recv()
        except (EOFError, OSError):
            self._selector.unregister(self._pipe.fileno())
            self._pipe, waiting, self._waiting = None, self._waiting, []
            for done in waiting:
                done("the drawing process ended")
            return
        self._waiting.pop(0)(answer)


def lab_view(config: LabConfig) -> PlantView:
    """Draws states of a lab's world, in this process."""
    from sim.plants.plant_view import PlantView

    scene = drawn_scene(config)
    if scene is not None:
        return scene_view(scene)
    return PlantView(PyBulletPlant(dataclasses.replace(config.physics, spread=0.0)))


def _draw(config: LabConfig, pipe: Connection[Any, Any]) -> None:
    """The drawing process: one picture per request until the pipe closes."""
    from robolearn.machine.process import exit_with_parent

    exit_with_parent()
    view = lab_view(config)
    while True:
        try:
            view_name, *state = pipe.recv()
        except EOFError:
            return
        try:
            pipe.send(view.draw(view_name, *state))
        except RobolearnError as error:
            pipe.send(str(error))
