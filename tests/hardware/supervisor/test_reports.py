"""What the supervisor tells is in the link as often as it happens, in the log without a flood."""

import logging

from hardware.supervisor.link import Cause, Event, Link
from hardware.supervisor.reports import Reports


def test_what_comes_and_goes_is_logged_once_in_a_while_with_its_number(caplog):
    link = Link.create(6, 2, slots=8)
    try:
        reports = Reports(link)
        with caplog.at_level(logging.WARNING):
            for k in range(120):
                t_ns = k * 100_000_000
                reports.event(Event(t_ns, Cause.AGENT_LATE, 0.151, 0.15, k))
                reports.event(Event(t_ns + 1, Cause.AGENT_BACK, 0.001, 0.15, k))
            reports.event(Event(12_000_000_000, Cause.STATE_STALE, 0.5, 0.4, -1))
            reports.event(Event(12_000_000_001, Cause.STATE_STALE, 0.6, 0.4, -1))
        rows = link.events.since(0).value
    finally:
        link.close()
        link.unlink()
    # All of them are told to the agent, which records them.
    assert len(rows) == 242
    said = [r.getMessage() for r in caplog.records]
    late = [text for text in said if text.startswith("agent_late")]
    assert len(late) == 3, said
    assert late[0] == "agent_late (value 0.151, limit 0.15, command 0)"
    assert late[1].endswith("command 50); 49 more since it was told")
    assert sum(text.startswith("agent_back") for text in said) == 3
    # A stop that latches is never left out.
    assert sum(text.startswith("state_stale") for text in said) == 2
