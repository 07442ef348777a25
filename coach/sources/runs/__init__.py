"""Run directories and coach's own memory of runs and jobs."""
