"""Rebuilds scene packages in PyBullet, a second engine."""
