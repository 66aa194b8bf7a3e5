"""Commands that judge policies: suites, trials, comparisons, reports."""
