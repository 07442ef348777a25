"""A real Slurm, booted for the tests, and the tests that need one."""
