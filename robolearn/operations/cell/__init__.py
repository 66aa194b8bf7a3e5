"""Work on a robot cell: checked, measured, guided by hand, brought back, its servos calibrated."""
