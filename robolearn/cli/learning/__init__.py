"""Commands that make policies: train, compose, tune, export."""
