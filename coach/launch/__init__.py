"""Launches: recipe, environment, checks, plan, script, and the only modules that call sbatch, scancel and
scontrol."""
