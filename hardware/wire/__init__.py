"""Holds the protocol tables that a driver and its emulator share."""
