"""COD002: the program crashed in native code: a segmentation fault or a corrupt heap."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from coach.model.judging.finding import Evidence, Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.outcome import EXIT_CODE, is_first_failure
from coach.rules.from_logs.quoted_evidence import hits_of, is_library, own_frame

_DUMPED_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+)')
_DUMPED_THREAD = re.compile(
    r"^(?:(?P<crashed>Current thread\b|Stack )|Thread 0x).{0,99}\(most recent call first\):"
)

_CRASHED = re.compile(
    r": line \d+: +\d+ (?:Segmentation fault|Aborted) +(?:\(core dumped\) +)?(?P<command>\S.*)$"
)
_FAULT_HANDLER = "Fatal Python error"
_MAY_BE_PYTHON = re.compile(
    r"(?i)python|torch|accelerate|deepspeed|jupyter|\.py\b"
    r"|\b(?:srun|mpirun|mpiexec|apptainer|singularity|conda)\b"
)
_OF_PYTHON = re.compile(r'(?i)^Traceback \(most recent|^  File "|\bpython|\btorch')


class SegmentationFault(EndingRule):
    """The program crashed in native code, with a segmentation fault.

    What it sees
        Python's "Fatal Python error: Segmentation fault", the shell's and srun's "Segmentation fault (core
        dumped)", "Signal 11 (SIGSEGV) received by PID", exit code -11 of a rank, and the messages of MPI, the
        kernel, Julia, R, Java and Fortran; glibc's messages about an overwritten heap ("free(): invalid
        pointer", "double free or corruption"). If the log holds nothing else, a process that aborted itself
        ("Aborted (core dumped)", SIGABRT, exit code -6).
    Why it matters
        A native library crashed, so there is no Python exception. Typical causes: an extension built against
        another torch, two versions of a library in one process, a decoder that reads a broken file.
    When it stays silent
        If another error came before the crash: programs also crash while they shut down. If the program went
        on.
    What to do
        Run with `PYTHONFAULTHANDLER=1` (or `python -X faulthandler`): it prints the Python frames of the
        crash. Rebuild or update the extension of the innermost frame; try `num_workers=0`. If it happens on
        one node only, suspect its memory or GPU.
    Sources
        signal(7); Python's faulthandler; torch.distributed.elastic's exit codes.
    """

    code = "COD002"
    name = "segmentation-fault"
    cause = "segfault"

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        if _is_abort(hit):
            return is_first_failure(hit, snapshot, -6) and _says_nothing_else(snapshot)
        return "exit_code" not in hit.fields or is_first_failure(hit, snapshot, -11)

    def severity_of(self, hit: LogHit) -> Severity | None:
        return Severity.WARNING if _is_abort(hit) else None

    def summary(self, hit: LogHit, snapshot: TargetSnapshot) -> str:
        if _is_abort(hit):
            return "The program aborted itself in native code (SIGABRT), and the log does not say why"
        how = f"its heap is corrupt: {hit.fields['heap']}" if "heap" in hit.fields else "segmentation fault"
        return f"The program crashed in native code ({how})"

    def more_evidence(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Evidence]:
        """The innermost frame of the program's own code in the thread that crashed, if the error block has
        none."""
        if own_frame(hit) is not None:
            return
        for number, found in _dumped(hit, snapshot):
            if not is_library(found.string):
                yield Evidence(f"in the program's own code: {found.string.strip()}", hit.file, number)
                return

    def fixes(self, hit: LogHit, snapshot: TargetSnapshot) -> Iterable[Fix]:
        if _is_native(snapshot):
            yield Fix(
                "Write a core file, and see where the program crashed",
                command="ulimit -c unlimited  # in the batch script; afterwards: gdb PROGRAM core -ex bt",
            )
            yield Fix("Compile it with -g (Fortran: -g -fbacktrace -fcheck=bounds), and run a small case")
            return
        newest = next(_dumped(hit, snapshot), None)
        if newest is not None:
            yield Fix(
                f"See the call that crashed: the newest in the stack of the log is {newest[1]['name']}, line "
                f"{newest[1]['line']} of {newest[1]['file']}"
            )
        elif _FAULT_HANDLER not in hit.text:
            yield Fix("Let Python print where it crashes: export PYTHONFAULTHANDLER=1")
        rebuild = "Rebuild or update the native package that is innermost"
        yield Fix(f"{rebuild}, against the torch that is installed", needs=("torch",))
        yield Fix(rebuild, needs=("not torch",))


def _dumped(hit: LogHit, snapshot: TargetSnapshot) -> Iterator[tuple[int, re.Match[str]]]:
    """The frames of the thread that crashed, with their lines in the log, the newest first. The fault handler
    prints the other threads, which did not crash, before and after it."""
    if _FAULT_HANDLER not in hit.text:
        return
    for tail in snapshot.log_tails:
        start = max(0, hit.line - tail.first_line) if tail.file == hit.file else len(tail.plain)
        is_crashed = False
        for number, line in enumerate(tail.plain[start:], tail.first_line + start):
            if (thread := _DUMPED_THREAD.match(line)) is not None:
                if is_crashed:
                    return
                is_crashed = thread["crashed"] is not None
            elif is_crashed and (found := _DUMPED_FRAME.match(line)) is not None:
                yield number, found


def _is_native(snapshot: TargetSnapshot) -> bool:
    """True if a shell names the command that crashed, and neither it nor the log is of Python."""
    commands = [_CRASHED.search(hit.text) for hit in hits_of(snapshot, SegmentationFault.code)]
    is_named = any(found is not None and not _MAY_BE_PYTHON.search(found["command"]) for found in commands)
    return is_named and not any(map(_OF_PYTHON.search, snapshot.lines))


def _is_abort(hit: LogHit) -> bool:
    return hit.signature == "abort" or hit.fields.get("exit_code") == "-6"


def _says_nothing_else(snapshot: TargetSnapshot) -> bool:
    return not any(
        hit.rule not in (SegmentationFault.code, PROGRESS.rule) and hit.signature != EXIT_CODE
        for hit in snapshot.log_hits
    )
