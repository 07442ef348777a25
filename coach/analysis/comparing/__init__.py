"""Compare runs: two of them, a sweep, a chain of fixes, earlier ones."""
