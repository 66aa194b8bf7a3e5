"""Drives by a page in a browser: on this computer, or on a tablet beside the arm.

The page shows what the cameras see and where things stand, and is driven by pads, a mouse, a pen or
keys; Push-T's tool by a point on the table. Its parts: :mod:`hardware.teleop.page`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from hardware.teleop.device import DeviceReading, Key, Keys, Surroundings, View
from hardware.teleop.page.layout import Layout, layout_of
from hardware.teleop.page.server import PageServer
from robolearn.web.address import LOOPBACK


@dataclass(frozen=True, slots=True)
class BrowserConfig:
    """A page on this computer, or for others in its network."""

    # Port of the page (0: any free one).
    port: int = 0
    # Address of this computer under which others in its network open the page, with TLS; 127.0.0.1:
    # nobody but this computer.
    host: str = LOOPBACK

    @property
    def keys(self) -> Keys:
        """The page has them."""
        return "own"

    def build(self, around: Surroundings) -> BrowserDevice:
        """Serve the page and tell its address."""
        device = BrowserDevice(layout_of(around), self.port, self.host)
        around.on_page(device.url)
        if device.fingerprint:
            around.write(
                f"the certificate's SHA-256 fingerprint is\n  {device.fingerprint}\n"
                "trust it where the browser shows the same one\n"
            )
        return device


class BrowserDevice:
    """Serves the page at :attr:`url` until :meth:`close`."""

    name = "browser"
    # Eight of the page's messages: a hidden tab and a lost network send none.
    lease_s = 0.2

    def __init__(self, layout: Layout, port: int = 0, host: str = LOOPBACK) -> None:
        self._server = PageServer(layout, host, port)
        self.url, self.port = self._server.url, self._server.port
        self.fingerprint = self._server.fingerprint

    @property
    def connected(self) -> bool:
        """Whether a page is open."""
        return self._server.connected

    def begin(self, opening: float | None) -> None:
        """The gripper's button starts from here."""
        self._server.begin(None if opening is None else float(round(opening)))

    def poll(self) -> DeviceReading:
        """What the hand at the page that drives does; never blocks."""
        reading, opening = self._server.poll()
        return dataclasses.replace(reading, gripper=opening)

    def pressed(self) -> tuple[Key, ...]:
        """Keys pressed since the last call, oldest first."""
        return self._server.pressed()

    def show(self, view: View) -> None:
        """Hand the view to all open pages; a slow page skips views."""
        self._server.show(view)

    def close(self) -> None:
        """Stop serving; safe to call twice."""
        self._server.close()
