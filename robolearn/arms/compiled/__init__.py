"""Compiles what an arm's set-points are made of: a supervisor's tick has no time for Python."""
