"""Draws scenes: cameras, offscreen renderers, videos."""
