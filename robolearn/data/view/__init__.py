"""Shows stores: strips, summaries, rerun."""
