"""Holds the devices that a person drives by: one file each."""
