"""Holds what policies that predict action chunks share."""
