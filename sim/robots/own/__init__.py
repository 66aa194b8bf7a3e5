"""Takes a robot arm of somebody's own, as URDF or MJCF, into a scene package."""
