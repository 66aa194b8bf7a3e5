"""Provides the Push-T worlds of other engines: gym-pusht and PyBullet."""
