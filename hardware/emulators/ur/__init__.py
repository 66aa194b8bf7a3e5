"""Speaks a UR controller's RTDE, script and dashboard protocols."""
