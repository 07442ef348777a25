"""Rules that compare a run with the user's earlier ones."""
