"""The command that runs the virtual lab."""
