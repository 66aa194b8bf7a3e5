"""Shows on one local page what a lab keeps: stores, runs, evaluations, trials, scenes."""
