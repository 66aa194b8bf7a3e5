"""Solves Push-T by planning pushes on a planar model; also makes play."""
