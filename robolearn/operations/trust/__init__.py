"""Reports how far a simulator may be trusted, from a spreadsheet or from trials in both worlds."""
