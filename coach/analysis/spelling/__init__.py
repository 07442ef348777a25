"""How values are written: Slurm's times and memory, sizes, environments, printable text."""
