"""Slurm's nouns: jobs, nodes, partitions, accounting, and actions on jobs."""
