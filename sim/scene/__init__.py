"""Describes a simulated workcell: the scene package, its signals and its samples."""
