"""Slurm's commands and files: the query, and a pure parser beside it."""
