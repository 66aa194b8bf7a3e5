"""Says what a report has about particular tasks: words, drawings, reference values."""
