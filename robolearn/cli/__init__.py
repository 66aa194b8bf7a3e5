"""Commands of the console script: arguments in, text out."""
