"""END001: a job failed, and no other rule explains why.

The finding shows its state, its exit status and its last error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from shlex import quote as shell_quote
from signal import Signals

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.rules.advice.remedies import ask_slurm
from coach.rules.base import Need, Rule
from coach.rules.from_logs.aftermath import lines_below, only_error, went_on
from coach.rules.from_logs.last_error_block import EPILOGUE, Block, BlockKind, block_of, last_error_block
from coach.rules.from_logs.loss_lines import PROGRESS
from coach.rules.from_logs.outcome import exit_status, has_good_end, signal_of, state_evidence, time_evidence
from coach.rules.from_logs.quoted_evidence import MAX_QUOTE_CHARS, is_library, quote

_BAD_STATES = frozenset(
    {"FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "DEADLINE", "LAUNCH_FAILED"}
)
"""Failure states. A cancelled, preempted or requeued job has not failed."""
_NO_FAILURE = frozenset({"CANCELLED", "PREEMPTED", "REVOKED"})
_MEANT = {126: "the command cannot be executed", 127: "a command was not found"}
"""Exit statuses of a shell."""
_OF_A_PEER = re.compile(
    r"(?:\w+\.)*(?:EOFError|BrokenPipeError|Connection(?:Reset|Refused|Aborted)Error|IncompleteReadError)\b"
    r"|AssertionError: can only (?:test|join) a child process"
)
"""Exceptions of a process whose peer has ended, perhaps successfully."""
_MAX_SAID_CHARS = 200


class UnknownFailure(Rule):
    """The job failed, and no rule explains why.

    What it sees
        A failure state (FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, BOOT_FAIL, DEADLINE) or an exit status
        other than 0 that no other finding explains. In a log without a job: a traceback or an error at its
        end, also a traceback that the end cuts off, the last ERROR of a logger, and the last words of R,
        Julia, nextflow, snakemake, MPI, PBS and LSF (the last two as a cause of their own). The finding
        quotes the last error block: a traceback, the lines of an error, or the last lines of stderr.
    Why it matters
        A failure without a known cause is still a failure. The quoted lines mostly name the cause.
    When it stays silent
        If another finding at warning or above explains the end. On jobs that completed with status 0, run,
        wait, or were cancelled, preempted or requeued. In a log without a job: if output follows the error,
        the log reports a successful end, or the error was tried again or ignored.
    What to do
        Read the quoted lines, then the log above them. Without a log: `sacct -j JOB -o
        JobID,State,ExitCode,Reason,NodeList` shows Slurm's record of the job.
    Sources
        Slurm's job state codes and exit codes; signal(7); bash(1), EXIT STATUS.
    """

    code = "END001"
    name = "failed-for-a-reason-unknown-here"
    cause = "unknown_failure"
    severity = Severity.WARNING
    needs = (Need.LOG, Need.JOB_STATE)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        if _ended_badly(snapshot):
            yield _of_an_end(snapshot, block_of(snapshot.log_tails))
        elif snapshot.state is None and exit_status(snapshot) is None:
            block = _last_thing_said(snapshot)
            if block is not None:
                yield _of_a_text(block)


def _ended_badly(snapshot: TargetSnapshot) -> bool:
    state = snapshot.state
    if state in _BAD_STATES:
        return True
    if state in _NO_FAILURE or (state is not None and not snapshot.has_ended):
        return False
    return exit_status(snapshot) not in (None, 0)


def _without_lines(snapshot: TargetSnapshot) -> str:
    """Why there is no line of its log."""
    if snapshot.log_tails:
        return "; its log is empty"
    unread = next((file.problem for file in snapshot.log_files if file.problem), None)
    return f"; its log was not read: {unread}" if unread is not None else "; no log was found"


def _of_an_end(snapshot: TargetSnapshot, block: Block | None) -> Hit:
    end = f"The job ended as {snapshot.state}" if snapshot.state is not None else "The program ended"
    status = _status_text(snapshot)
    said = f"; the last error: {_short(block.said)}" if block is not None else ""
    if block is not None and block.kind is BlockKind.TAIL:
        said = f"; its last line: {_short(block.said)}"
    only = only_error(snapshot) if block is None or block.kind is BlockKind.TAIL else None
    if only is not None:
        below = f"{lines_below(only, snapshot):,} lines before the end"
        said = f"; the only error in its log, {below}: {_short(only.text.strip())}"
    if block is None:
        said = _without_lines(snapshot)
    return Hit(
        summary=f"{end}{f' with {status}' if status else ''}; the cause is not recognised{said}",
        evidence=(
            *((quote(only),) if only is not None else ()),
            *_quoted(block),
            *_facts(snapshot, status),
            *(_looked_for(snapshot) if block is None else ()),
        ),
        confidence=0.9,
        fixes=tuple(_fixes(snapshot, block)),
    )


def _of_a_text(block: Block) -> Hit:
    is_cut = block.traceback is not None and block.traceback.type is None
    end = (
        "inside a traceback, so its error is not in it" if is_cut else "with an error that is not recognised"
    )
    return Hit(
        summary=f"The log ends {end}: {_short(block.said)}",
        evidence=tuple(_quoted(block)),
        confidence=0.6,
        fixes=(Fix("Read the lines that are quoted, then the log above them"),),
        cause="scheduler_epilogue" if EPILOGUE.match(block.said) else None,
    )


def _last_thing_said(snapshot: TargetSnapshot) -> Block | None:
    """The error at the end of a log, if no log of the target shows that the program went on."""
    blocks = [(block, tail) for tail in snapshot.log_tails if (block := last_error_block(tail)) is not None]
    ended = [block for block, tail in blocks if _is_the_end(block, tail, snapshot)]
    if not ended or has_good_end(snapshot):
        return None
    return min(ended, key=lambda block: block.kind is not BlockKind.TRACEBACK)


def _is_the_end(block: Block, tail: LogTail, snapshot: TargetSnapshot) -> bool:
    if (
        (block.num_alive and not block.is_logged)
        or not tail.is_counted
        or (_OF_A_PEER.match(block.said) and not _is_of_main(block))
    ):
        return False
    if went_on(block.hit, snapshot):
        return False
    # A script goes on after a failed command: below losses, such a line may come from its clean-up.
    has_trained = any(hit.rule == PROGRESS.rule and hit.file == tail.file for hit in snapshot.log_hits)
    return not (block.is_of_a_shell and has_trained)


def _is_of_main(block: Block) -> bool:
    """True if the traceback begins in the user's own main module: no process waits for it."""
    frames = block.traceback.all_frames if block.traceback is not None else ()
    return bool(frames) and frames[0].function == "<module>" and not is_library(frames[0].text)


def _quoted(block: Block | None) -> Iterable[Evidence]:
    """The block as evidence, the most informative line first: a screen may show only one."""
    if block is None:
        return
    yield Evidence(_cut(block.said, MAX_QUOTE_CHARS), block.file, block.said_line)
    for number, line in enumerate(block.lines, block.first_line):
        if number != block.said_line and line.strip():
            yield Evidence(_cut(line.rstrip(), MAX_QUOTE_CHARS), block.file, number)


def _facts(snapshot: TargetSnapshot, status: str) -> Iterable[Evidence]:
    if snapshot.state is not None:
        yield state_evidence(snapshot)
    if status:
        yield Evidence(f"ended with {status}")
    first = snapshot.outcome.first if snapshot.outcome is not None else None
    if first is not None and first.rank is not None and first.exit_code is not None:
        code = first.exit_code
        yield Evidence(
            f"rank {first.rank} ended with {_signal_name(-code) if code < 0 else f'exit status {code}'}"
        )
    yield from time_evidence(snapshot)


def _looked_for(snapshot: TargetSnapshot) -> Iterable[Evidence]:
    """Evidence: where the logs were searched for, and the result."""
    for file in snapshot.log_files:
        found = "it is empty" if file.is_found else "looked for here: there is no such file"
        yield Evidence(file.problem or found, file.path)
    if not snapshot.log_files and snapshot.run is not None:
        yield Evidence("looked for its logs here", snapshot.run.run_dir)
    elif not snapshot.log_files:
        yield Evidence("where it writes its log is not known")


def _fixes(snapshot: TargetSnapshot, block: Block | None) -> Iterable[Fix]:
    if block is not None:
        yield Fix("Read the end of the log", command=f"less +{block.said_line} {shell_quote(block.file)}")
    job, run = snapshot.job, snapshot.run
    is_slurm = run.backend == "slurm" if run is not None else job is not None and job.raw_job_id is not None
    job_id = snapshot.job_id
    if is_slurm and job_id is not None:
        yield ask_slurm(job_id)
    if block is None and job_id is not None:
        yield Fix("Name its log", command=f"coach check {shell_quote(job_id)} --log FILE")


def _status_text(snapshot: TargetSnapshot) -> str:
    """`signal 9 (SIGKILL)` or `exit status 127 (a command was not found)`; empty if unknown."""
    status, signal = exit_status(snapshot), signal_of(snapshot)
    if status is None:
        return _signal_name(signal) if signal is not None else ""
    if signal is None:
        return f"exit status {status}" + (f" ({_MEANT[status]})" if status in _MEANT else "")
    return f"exit status {status}: {_signal_name(signal)}" if status == 128 + signal else _signal_name(signal)


def _signal_name(number: int) -> str:
    try:
        return f"signal {number} ({Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _short(text: str) -> str:
    return _cut(text, _MAX_SAID_CHARS)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
