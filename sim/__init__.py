"""Simulates workcells and adapts other people's worlds to the same contract."""
