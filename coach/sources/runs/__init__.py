"""Run directories, and coach's own records of runs and jobs."""
