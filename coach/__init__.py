"""coach shows a Slurm cluster, launches training recipes, and reports problems with their evidence.

Compute nodes import this module too, under the site's own Python (>= 3.9). It therefore holds only the
version.
"""

__version__ = "0.1.0"
