"""Drives arms of serial servos, Feetech or Dynamixel."""
