"""Rules: pure checks of what was read, one rule in one file, families in folders."""
