"""Finds where and how far pictures without depth were taken: from their colours alone."""
