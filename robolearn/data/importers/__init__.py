"""Importers: one file per foreign layout, each streaming into an :class:`EpisodeStore`."""
