"""coach shows a Slurm cluster, launches training recipes, and reports problems with their evidence.

Compute nodes import this module too, under the site's own Python (>= 3.9). It therefore holds only the
version, and keeps the current directory off the path of imports.
"""

import os
import sys

__version__ = "0.1.0"


def _leave_out_relative_entries() -> None:
    """Take the relative entries of PYTHONPATH out of `sys.path`. `PYTHONPATH=$PYTHONPATH:/lib` often has an
    empty one: the current directory, where somebody else may have left a json.py. Where coach itself lies
    stays."""
    # pathlib could be another's.
    absolute, is_absolute, above = os.path.abspath, os.path.isabs, os.path.dirname
    try:
        os.getcwd()  # noqa: PTH109 (the same)
    except OSError:  # the current directory was removed: nothing can lie in it
        sys.path[:] = [entry for entry in sys.path if is_absolute(entry)]
        return
    entries = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    relative = {absolute(entry) for entry in entries if not is_absolute(entry)}
    relative.discard(above(above(absolute(__file__))))
    sys.path[:] = [entry for entry in sys.path if absolute(entry) not in relative]


if os.environ.get("PYTHONPATH") and not sys.flags.ignore_environment:
    _leave_out_relative_entries()
