"""Lets a person drive: devices, mapping, session, page."""
