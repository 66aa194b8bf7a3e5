"""Keeps an arm safe: the process between commands and motors, and its parts."""
