"""Holds what several commands share: parsing, printing, consent."""
