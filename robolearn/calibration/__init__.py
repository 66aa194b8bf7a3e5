"""Computes what measuring a cell needs: lens, boards, tags, latency."""
