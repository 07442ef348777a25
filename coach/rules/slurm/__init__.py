"""Rules about jobs that Slurm refused or ended."""
