"""Runs blinded, interleaved trials of several policies on a cell, and reports them."""
