"""Puts other people's worlds behind the Env contract."""
