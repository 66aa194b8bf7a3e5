"""What a report says about particular tasks: words, drawings, reference values."""
