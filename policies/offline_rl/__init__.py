"""Learns policies from rewarded data without acting, one file per algorithm."""
