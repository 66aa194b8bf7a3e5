"""A tool on a table that must reach a line: an example of a package that extends robolearn."""
