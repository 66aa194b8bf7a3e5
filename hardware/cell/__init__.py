"""Describes a robot cell: its devices, its motion, its limits."""
