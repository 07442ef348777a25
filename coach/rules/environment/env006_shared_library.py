"""ENV006: a shared library that a program needs is missing, or has the wrong version."""

from __future__ import annotations

from coach.model.judging.finding import Fix
from coach.rules.from_logs.ending_rule import EndingRule, by_field


class SharedLibrary(EndingRule):
    """A shared library that a program needs is missing, or has the wrong version.

    What it sees
        "libX.so.N: cannot open shared object file" in an error, "error while loading shared libraries",
        "version `GLIBCXX_3.4.29' not found", cuDNN's "Could not load library", symbols of CUDA's libraries
        that are missing, "symbol lookup error", "cannot allocate memory in static TLS block".
    Why it matters
        The program did not start. A compute node has other modules and another LD_LIBRARY_PATH than the
        terminal, and sometimes another operating system.
    When it stays silent
        On optional libraries (NCCL's network plug-ins, TensorFlow's dso_loader), and when a logger reports it
        only as a warning.
    What to do
        List the missing libraries on a compute node: `ldd FILE | grep 'not found'`. Load the module that has
        the library (`module load cuda`, a newer gcc for GLIBCXX), or install it into the environment. If two
        versions of a library conflict, run `unset LD_LIBRARY_PATH` and `module purge` before activating the
        environment. If GLIBC is too old, use another build or a container.
    Sources
        ld.so(8); Python's importlib; cuDNN's loader; libstdc++'s ABI versions.
    """

    code = "ENV006"
    name = "shared-library-missing"
    cause = "shared_library_missing"
    general = (
        Fix(
            "Load the module that brings the library, or install it into the environment, on the "
            "compute node too"
        ),
    )
    sentences = by_field(
        version="A system library is too old: {version} is not in it",
        program_version="A system library is too old: {program_version} is not in it",
        symbol="Two versions of one library are mixed: {symbol} is missing",
        looked_up="Two versions of one library are mixed: {looked_up} is missing",
        mpi="mpi4py found no MPI library",
        setup="bitsandbytes found no CUDA libraries that it can use",
        refused="A shared library could not be loaded: {refused}",
        otherwise="A shared library was not found: {first:.160}",
    )
