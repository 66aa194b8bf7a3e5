"""Evaluates policies: trials, statistics, reports."""
