"""Models arms and how they may move: kinematics, collision, limits, what slows them."""
