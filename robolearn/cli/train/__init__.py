"""The command that trains a policy."""
