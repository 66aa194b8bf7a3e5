"""Describes a capture folder: pictures, depth and poses of a workcell, taken by any rig."""
