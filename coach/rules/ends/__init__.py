"""Rules of last resort, for an end that no other rule explains."""
