"""Works on a robot cell: checks, measures, guides by hand, brings back, calibrates its servos."""
