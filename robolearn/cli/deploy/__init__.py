"""The command that runs a policy on a robot."""
