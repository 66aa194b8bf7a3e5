"""Puts the MJCF of a reconstructed package together: the robot of another scene, and bodies."""
