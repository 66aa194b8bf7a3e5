"""Stores are written in other formats."""
