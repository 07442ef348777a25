"""Rules that judge snapshots without I/O: one rule in one file, one folder for each family."""
