"""Compare runs: two runs, a sweep, a chain of fixes, or a run with earlier runs."""
