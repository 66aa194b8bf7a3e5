"""Runs and keeps trials: suites, rollouts, executors, the table."""
