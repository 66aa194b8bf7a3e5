"""Plans, keeps and replays blinded trials of policies on a real cell."""
