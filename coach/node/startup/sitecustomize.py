"""Runs first in each Python process below `coach run`: makes its stacks readable on request, then imports the
site's own sitecustomize.

Python finds it because PYTHONPATH names this folder first. The program must not notice it: no error leaves
this file, no file appears on disk, and no signal that others use is touched. The dump goes into a file in
memory, which ends with the process. A reader finds it in /proc/PID/fd, and then knows that the process
expects the signal.
"""

import contextlib
import sys


def _offer_stacks() -> None:
    import faulthandler
    import os

    # The same number as in coach/node/stacks.py. SIGUSR1 asks for a checkpoint and other programs use
    # SIGUSR2; this real-time signal is free.
    faulthandler.register(44, file=os.memfd_create("coach-stacks"), all_threads=True)


def _start_as_the_site_wants() -> None:
    """Import the sitecustomize that Python would have found without this one."""
    import os
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    # pathlib is slow to import, and each Python process would pay for it.
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [place for place in sys.path if os.path.abspath(place) != here]  # noqa: PTH100 (the same)
    spec = PathFinder.find_spec(__name__, sys.path)
    if spec is not None and spec.loader is not None:
        sys.modules[__name__] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[__name__])


with contextlib.suppress(Exception):
    _offer_stacks()
_start_as_the_site_wants()
