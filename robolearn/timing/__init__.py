"""Keeps time: clocks, rates and latencies."""
