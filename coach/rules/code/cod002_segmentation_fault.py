"""COD002: the program crashed in native code: a segmentation fault or a corrupt heap."""

from __future__ import annotations

import re
from collections.abc import Iterable

from coach.model.judging.finding import Evidence, Fix, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit
from coach.rules.from_logs.ending_rule import EndingRule
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.outcome import EXIT_CODE, exit_code_signature, is_first_failure
from coach.rules.from_logs.quoted_evidence import is_library

_DUMPED_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+)')


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
        If another error came before it: programs also crash while they shut down. If the program went on.
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
    signatures = (exit_code_signature("COD002"),)

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
        """The innermost frame of your own code in the fault handler's output, which lists the newest call
        first."""
        for tail in snapshot.log_tails:
            if tail.file != hit.file:
                continue
            for place in range(max(0, hit.line - tail.first_line), len(tail.lines)):
                found = _DUMPED_FRAME.match(tail.plain[place])
                if found is not None and not is_library(tail.plain[place]):
                    text = f"in the program's own code: {tail.plain[place].strip()}"
                    yield Evidence(text, hit.file, tail.first_line + place)
                    return

    def fixes(self, hit: LogHit | None, snapshot: TargetSnapshot) -> Iterable[Fix]:
        yield Fix("Let Python print where it crashes: export PYTHONFAULTHANDLER=1")
        yield Fix(
            "Rebuild or update the native package that is innermost, against the torch that is installed"
        )


def _is_abort(hit: LogHit) -> bool:
    return hit.signature == "abort" or hit.fields.get("exit_code") == "-6"


def _says_nothing_else(snapshot: TargetSnapshot) -> bool:
    return not any(
        hit.rule not in (SegmentationFault.code, PROGRESS.rule) and hit.signature != EXIT_CODE
        for hit in snapshot.log_hits
    )
