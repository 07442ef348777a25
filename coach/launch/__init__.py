"""One launch: recipe, environment, checks, plan, script, and the only doors to sbatch, scancel and
scontrol."""
