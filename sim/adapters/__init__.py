"""Other people's worlds behind the Env contract."""
