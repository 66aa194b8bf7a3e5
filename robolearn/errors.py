"""Defines the typed errors, which say what was expected, what was got, what exists, what to do.

The command line turns any :class:`RobolearnError` into one line and exit code 2; everything else is
a bug and exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RobolearnError(Exception):
    """Root of all errors that a user can fix."""


class ConfigError(RobolearnError, ValueError):
    """A configuration value or file is not usable."""


class SpecMismatchError(RobolearnError, ValueError):
    """Two specifications (task spaces, embodiments) that must agree do not."""


class DataError(RobolearnError, ValueError):
    """Data has the wrong shape, type, order or range, or does not decode."""


class UnsafePathError(DataError):
    """A path in a manifest, a log or a foreign recording leads out of the folder it belongs to."""


class StoreError(RobolearnError, OSError):
    """An episode store cannot be opened, read or written."""


class StoreCorruptError(StoreError):
    """A committed file is missing, shortened or altered."""


class CommitConflictError(StoreError):
    """Another writer has just committed the id that this one was about to use."""


class StoreLockedError(StoreError):
    """Another writer holds the store."""


class CheckpointError(RobolearnError, ValueError):
    """A run directory or checkpoint is incomplete, altered or of another kind."""


class CertificateError(RobolearnError, ValueError):
    """A certificate is missing, does not hold, or says nothing of what is about to be run."""


class TrainingError(RobolearnError, ArithmeticError):
    """Training produced a loss that is not finite, or fed an algorithm something it refuses."""


class PracticeError(RobolearnError, RuntimeError):
    """A policy cannot practise, or nothing can be learned from what it did."""


class SceneError(RobolearnError, ValueError):
    """A scene package is invalid."""


class RenderError(RobolearnError, RuntimeError):
    """No rendering backend works on this machine."""


class PhysicsDivergedError(RobolearnError, RuntimeError):
    """The simulation became unstable (non-finite or absurd state)."""


class RobotError(RobolearnError, RuntimeError):
    """A device reported a fault or a command could not be carried out."""


class StaleSignalError(RobotError, TimeoutError):
    """A signal is older than its age limit."""


class RobotConnectionError(RobotError, ConnectionError):
    """A device cannot be reached or stopped answering."""


class CameraError(RobotError):
    """A camera delivers pictures that are of no use (black)."""


class ClockError(RobotError):
    """A device's clock ran backwards or jumped, so that its time stamps mean nothing."""


class StartError(RobotError):
    """The measured start of an episode is too far from the one that was asked for."""


class SafetyStopError(RobotError):
    """The supervisor latched a stop; an operator must clear it."""


class LinkStopError(SafetyStopError):
    """The supervisor latched a stop because a program, a link or the state of a device paused or
    ended: nothing that a policy did.
    """


class SilencedError(RobotError):
    """A device's watchdog ended what it was told: this program was silent for too long."""


class GripperError(SafetyStopError):
    """The supervisor latched a stop because of the gripper: a fault, no answer, a lost object."""


class InferenceError(RobolearnError, RuntimeError):
    """A policy could not be run (worker died, output not finite, wrong shape)."""


class RemoteError(InferenceError):
    """A policy's server failed, or what it sent cannot be used; the message quotes it."""


class MissingDependencyError(RobolearnError, ImportError):
    """An optional package or system library is absent; the message names what installs it."""


def did_you_mean(name: str, options: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest option, else ``""``."""
    close = difflib.get_close_matches(name, list(options), n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
