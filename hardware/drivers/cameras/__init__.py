"""Reads pictures: MJPEG over HTTP, OpenCV, RealSense."""
