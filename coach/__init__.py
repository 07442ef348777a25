"""See a Slurm cluster, launch training recipes, and be told what is wrong with the proof.

This module is imported on compute nodes too, under whatever Python (>= 3.9) the site has: it holds the
version and no more.
"""

__version__ = "0.1.0"
