"""Slurm's commands and files: a query, and its pure parser in the same module."""
