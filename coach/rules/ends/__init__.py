"""Rules of last resort, for failures that no other rule explains."""
