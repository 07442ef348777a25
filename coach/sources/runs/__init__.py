"""Read run directories, and coach's own records of runs and jobs."""
