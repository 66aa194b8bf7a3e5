"""Speaks the Feetech and Dynamixel protocols on a pseudo-terminal."""
