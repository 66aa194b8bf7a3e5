"""Decides at every tick: chunk execution, ensembling, real time, replay, sub-goals, take-over."""
