"""Says how a policy practises: rounds, updates, demonstrations, tests, and when it ends."""

from __future__ import annotations

from dataclasses import dataclass

from robolearn.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PracticeConfig:
    """The section ``practice`` of an experiment."""

    # Episodes of a round, which run in lockstep; between two rounds the policy is handed over.
    lanes: int = 16
    # Share of them that the parent drives: what it makes of its chunks is what critics learn from,
    # and on the same starts it is what the others are compared with.
    parent_share: float = 0.5
    # Time limit of an episode [control steps]; 0: that of the task.
    max_steps: int = 0
    # Episodes of the parent alone, before the first update.
    warmup_episodes: int = 208
    # Updates before what is learned drives for the first time.
    critic_updates: int = 3000
    # Updates for every decision (chunk) from then on.
    updates_per_decision: float = 0.25
    # Share of every batch that is drawn from another store: what people showed (--demonstrations)
    # or what an earlier practice recorded (--practised).
    demonstrations: float = 0.0
    # Practice ends after so many minutes, of the clock or of computing (all processes together), or
    # after so many episodes, whatever comes first; null: no such limit. fit.steps limits updates.
    max_minutes: float | None = None
    max_cpu_minutes: float | None = None
    max_episodes: int | None = None
    # Or after so many minutes in which episodes drove the arm, however long all the rest takes.
    budget_minutes: float | None = None
    # Episodes between tests on held-out starts; 0: only at the end.
    test_every: int = 512
    # Held-out starts, which the parent is tried on, too.
    test_starts: int = 50
    # Pairs of episodes after which a policy that is as good as its parent may once be taken for a
    # worse one: the larger, the later practice that harms is stopped.
    false_alarm: int = 10_000
    # A policy whose answers are further from its parent's than so many times the parent's own to
    # unrelated observations is tested at once, and practice ends if the parent does better; null:
    # that is not watched. Of what begins as its parent; looked at every fit.diagnose_every rounds.
    max_drift: float | None = 1.0
    # On a cell: it ends after so many stops of its supervisor since it was started.
    max_stops: int = 3
    # Ends before the free room on the disk of the store, or of the run, falls below this [GiB].
    disk_gib: float = 1.0

    def __post_init__(self) -> None:
        counts = {
            "lanes": (self.lanes, 1),
            "warmup_episodes": (self.warmup_episodes, 1),
            "critic_updates": (self.critic_updates, 0),
            "max_steps": (self.max_steps, 0),
            "test_every": (self.test_every, 0),
            "test_starts": (self.test_starts, 1),
            "false_alarm": (self.false_alarm, 10),
            "max_episodes": (self.max_episodes, 1),
            "max_stops": (self.max_stops, 1),
        }
        for name, (value, least) in counts.items():
            if value is not None and value < least:
                raise ConfigError(f"practice.{name} must be at least {least}, got {value}")
        for name in ("parent_share", "demonstrations"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(
                    f"practice.{name} must be in [0, 1), got {getattr(self, name)}: something has"
                    " to be practised"
                )
        if not self.updates_per_decision >= 0 or not self.disk_gib >= 0:
            raise ConfigError(
                "practice.updates_per_decision and practice.disk_gib must be at least 0, got"
                f" {self.updates_per_decision} and {self.disk_gib}"
            )
        for name in ("max_minutes", "max_cpu_minutes", "budget_minutes", "max_drift"):
            limit = getattr(self, name)
            if limit is not None and not limit > 0:
                raise ConfigError(f"practice.{name} must be positive, got {limit}")
        if self.parents_of(self.lanes) == self.lanes:
            raise ConfigError(
                f"practice.parent_share {self.parent_share:g} of {self.lanes} lanes is all of them:"
                " nothing would be practised"
            )

    def lacking(self, episodes: int) -> int:
        """How many episodes of the warm-up there will not be when ``max_episodes`` end a practice
        that has ``episodes``; rounds are whole.
        """
        if self.max_episodes is None:
            return 0
        rounds = -(-max(0, self.max_episodes - episodes) // self.lanes)
        return max(0, self.warmup_episodes - episodes - rounds * self.lanes)

    def parents_of(self, lanes: int) -> int:
        """How many of ``lanes`` the parent drives."""
        return round(lanes * self.parent_share)
