"""Find the last error block of a log: a traceback, or the last lines that report an error. Pure, in bounded
time.

Lines are quoted unchanged; the front ends make control characters harmless. Only the kept end of a log is
searched. Each pattern begins at a word or at the line's start, so the time for a line grows only with its
length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from coach.model.error_block import ErrorBlock
from coach.model.training.log import LogHit, LogTail
from coach.rules.from_logs.aftermath import bare, cut_block, is_quiet, num_alive

MAX_BLOCK_LINES = 12
_TAIL_LINES = 5
"""Number of lines to quote if no line reports an error."""

_SHELL = re.compile(
    r"\S{1,200}: (?:line )?\d+: .{1,300}(?:command not found|not found|No such file or directory"
    r"|Permission denied|syntax error.*"
    r"|unbound variable|Is a directory|cannot execute.*|Exec format error|unexpected end of file)$"
)
_NUMBER = r"(?!\s*[-+]?[\d.])"
"""Excludes numbers behind the word: `error: 0.25` is a metric, `Error: 3 samples were left out` a count."""
_OF_GIT = r"(?!fatal: (?:not a git repository|No names found|detected dubious ownership)\b)"
"""Excludes git's answers to a program that only asks for its own version."""
_FATAL = re.compile(
    rf"{_OF_GIT}(?:FATAL|[Ff]atal)\b(?: (?:ERROR|[Ee]rror))?:"
    r"|\W{0,3}(?:FATAL|CRITICAL)\b"
    rf"|(?!ERROR:[\w.]+:)(?:ERROR|Error|error):{_NUMBER}|error\[\w+\]:"
    r"|(?:srun|salloc|sbatch|docker|podman|apptainer|singularity|enroot|mpirun|mpiexec|make|cmake|ninja|gcc"
    r"|g\+\+|nvcc|ld|bash|sh|python\d?|conda|rsync"
    r"|slurmstepd\S{0,80}: error: pyxis): (?:error|fatal|ERROR|FATAL|\*\*\*|Error|can't open"
    r"|command not found|.{1,200}: No such file)"
    r"|\S{1,120}:\d{1,7}(?::\d{1,5})?: (?:fatal )?error: "
    r"|slurmstepd\S{0,80}: error: (?:pyxis|execve|couldn't exec)"
    r"|(?:Lmod has detected the following error|ModuleCmd_\w+\.c\(\d+\):ERROR|Unable to locate a modulefile"
    r"|Module ERROR)"
    r"|F\d{4} \d\d:\d\d:|make(?:\[\d+\])?: \*\*\* |thread '.{0,80}' panicked at |panic: |Aborted\b"
    r"|Abort\(\d+\)|terminate called "
    rf"|(?:[A-Za-z]\w{{0,60}}\.){{0,6}}\w{{0,60}}(?:Error|Exception|Exit|Interrupt):{_NUMBER} \S"
    r"|Error in |Execution halted|ERROR ~ |Error executing process|WorkflowError"
    r"|Exiting because a job execution"
    r"|(?:MPI_ABORT was|application called MPI_A|Fatal error in P?MPI_|\*\*\* An error occurred in MPI_)"
    r"|(?:mpirun|mpiexec|prterun)\b.{0,80}(?:detected|noticed|was unable|has exited)|=   BAD TERMINATION"
    r"|Exception in thread \"|Error: Could not find or load main class|ERROR STOP|Error termination"
    r"|A worker died or was killed|wandb: ERROR |[A-Za-z][\w.-]{0,60} failed\.?$"
    r"|(?:nslookup|wget|curl|ping|ssh|git|tar|cp|mv|cat|ls|cd)(?:\(\d+\))?: (?:can't|bad address"
    r"|cannot|\S.*: No such file|\(\d+\) )"
)
"""Starts of lines with which the program, or the tool that starts it, gives up."""
_STATUS = re.compile(
    r"\b(?:exited|exit(?:s|ing)?|returned|terminated|failed|died|crashed)\b.{0,60}?\b(?:code|status"
    r"|signal)\b[ :=]{1,3}-?[1-9]"
    r"|\breturned non-zero exit status\b|\bexit ?code *[:=] *-?[1-9]"
)
_CANCELLED = re.compile(r"slurmstepd\S{0,80}: error: \*\*\* (?:STEP|JOB) ")
"""What Slurm says after a task failed, too: it names no cause."""
_LOGGED = re.compile(
    r".{0,120}?(?:\[(?:ERROR|CRITICAL|FATAL) *\]|[|-] (?:ERROR|CRITICAL|FATAL)\b"
    r"|\d\]? (?:\[[^\]]{1,60}\] )?(?:ERROR|CRITICAL|FATAL)\b)|(?:ERROR|CRITICAL):[\w.]{1,80}:(?!.*\bretry)"
)
"""A line that a logger prints at level ERROR: an end if hardly a line follows."""
_MAX_BELOW_LOGGED = 2
_GOES_ON = re.compile(r"(?i)\b(?:done|finish\w*|complet\w*|success\w*|saved|epoch|step|iter\w*|loss)\b")
EPILOGUE = re.compile(
    r"(?i)[ \t]{0,40}(?:exit[ _]status(?: {0,20}[:=])? {1,40}-?[1-9]\d{0,5}[ \t]{0,9}$"
    r"|exited with (?:exit code [1-9]|signal)|failed {1,20}[1-9]\d{0,5} {1,9}: "
    r"|state: (?:failed|timeout|out_of_memory|node_fail)\b|job_state {0,9}= {0,9}f\b)"
)
"""What a batch system says below the output of a job that failed."""
_BROAD = re.compile(
    (
        r"\b(?:error|fatal|failed|failure|exception|cannot|can't|could not|unable to|not found|no such|denied"
        r"|invalid|abort(?:ed|ing)?|killed|refused|unknown|usage:)\b"
    ),
    re.IGNORECASE,
)
"""Words that mark the likely reason in a job that is known to have failed."""
_CLOSING = re.compile(
    rf"MPI_ABORT was|=   BAD TERM|ERROR ~ |{EPILOGUE.pattern.removeprefix('(?i)')}", re.IGNORECASE
)
_MAX_CLOSING_LINES = 40
"""A launcher's or a batch system's last words: all lines below them are its own, up to this number."""
_PARAGRAPH = re.compile(r"Lmod has detected|thread '.{0,80}' panicked at |panic: ")
"""Errors whose text goes on to the next empty line."""
_MAX_ABOVE = 4
"""Number of lines to quote above an exit status, because the status does not name the cause."""


class BlockKind(StrEnum):
    TRACEBACK = "traceback"
    ERROR = "error"
    TAIL = "tail"
    """The last lines, because no line reports an error."""


@dataclass(frozen=True, slots=True)
class Block:
    """Lines at the end of one log."""

    file: str
    kind: BlockKind
    first_line: int
    """Number of lines[0] in the file."""
    lines: tuple[str, ...]
    said: str
    """The most informative line: the exception's or the error's."""
    said_line: int
    num_alive: int
    """Number of lines below it that are a sign of life."""
    is_of_a_shell: bool = False
    is_logged: bool = False
    """True if a logger printed it, and the program only tidied up below it."""
    traceback: ErrorBlock | None = None

    @property
    def hit(self) -> LogHit:
        """The block as a log hit."""
        return LogHit(
            rule="",
            signature="last_words",
            file=self.file,
            line=self.said_line,
            text=self.said,
            fields={},
            block=self.traceback,
        )


def last_error_block(tail: LogTail) -> Block | None:
    """The last traceback or error in the kept lines of a log; None where no line reports one."""
    if tail.is_binary:
        return None
    lines = [bare(line) for line in tail.plain]
    kept = (each for each in reversed(tail.blocks) if each.error_line >= tail.first_line)
    raised = cut_block(tail) or next((each for each in kept if each.may_end_process), None)
    error = _last_error(tail, lines)
    if raised is not None:
        end = raised.last_line - tail.first_line
        if error is None or error <= end or not num_alive(lines[end + 1 : error]):
            return _traceback(tail, lines, raised)
    return _error(tail, lines, error) if error is not None else None


def _last_error(tail: LogTail, lines: Sequence[str]) -> int | None:
    """Index of the last line that reports an error, outside the exceptions that Python ignored."""
    ignored = [range(each.first_line, each.last_line + 1) for each in tail.blocks if each.is_ignored]
    errors = (place for place in range(len(lines) - 1, -1, -1) if _is_error(lines[place]))
    return next((place for place in errors if not any(tail.first_line + place in it for it in ignored)), None)


def likely_error_block(tail: LogTail) -> Block | None:
    """The same for a job that is known to have failed. If no line reports an error, take the last line near
    the end that has a word of failure."""
    block = last_error_block(tail)
    if block is not None or tail.is_binary:
        return block
    lines = [bare(line) for line in tail.plain]
    near = range(len(lines) - 1, max(-1, len(lines) - 1 - MAX_BLOCK_LINES), -1)
    found = next((i for i in near if _BROAD.search(lines[i])), None)
    return _error(tail, lines, found) if found is not None else None


def last_lines(tail: LogTail) -> Block | None:
    """The last lines that are not empty."""
    kept = [(i, line) for i, line in enumerate(tail.plain) if line.strip()][-_TAIL_LINES:]
    if not kept or tail.is_binary:
        return None
    number = tail.first_line + kept[-1][0]
    shown = tuple(line for _, line in kept)
    return Block(tail.file, BlockKind.TAIL, tail.first_line + kept[0][0], shown, shown[-1].strip(), number, 0)


def block_of(tails: Iterable[LogTail]) -> Block | None:
    """The block that best explains why a job failed.

    A traceback is preferred to an error, an error to mere last lines, and stderr to stdout.
    """
    ordered = sorted(tails, key=lambda tail: (not _is_stderr(tail.file), tail.file))
    blocks = [block for tail in ordered if (block := likely_error_block(tail)) is not None]
    blocks.sort(key=lambda block: (block.kind is not BlockKind.TRACEBACK, block.num_alive))
    return next(iter(blocks), None) or next(
        (block for tail in ordered if (block := last_lines(tail)) is not None), None
    )


def _is_stderr(file: str) -> bool:
    name = file.rsplit("/", 1)[-1]
    return name.endswith((".err", ".stderr", ".e")) or "stderr" in name


def _is_error(line: str) -> bool:
    return bool(
        _FATAL.match(line)
        or _SHELL.match(line)
        or _STATUS.search(line)
        or _LOGGED.match(line)
        or EPILOGUE.match(line)
    )


def _traceback(tail: LogTail, lines: Sequence[str], block: ErrorBlock) -> Block:
    """Head, innermost frames and exception of a traceback. The middle of a long one is left out."""
    end = block.error_line - tail.first_line
    first = max(0, block.first_line - tail.first_line, end - MAX_BLOCK_LINES + 1)
    inner = block.frames[-1].number - tail.first_line if block.type is None and block.frames else end
    alive = num_alive(lines[block.last_line - tail.first_line + 1 :])
    shown = tuple(tail.plain[first : end + 1])
    number = tail.first_line
    return Block(
        tail.file,
        BlockKind.TRACEBACK,
        number + first,
        shown,
        lines[max(first, inner)].strip(),
        number + max(first, inner),
        alive,
        traceback=block,
    )


def _error(tail: LogTail, lines: Sequence[str], last: int) -> Block:
    """The error's line, with the error lines right above it and the continuation of its text below."""
    first = last
    while first > 0 and last - first < MAX_BLOCK_LINES // 2 and _belongs(lines[first - 1]):
        first -= 1
    # Later errors follow from earlier ones, so the first is the most informative. A launcher's exit status is
    # the least.
    said = next((i for i in range(first, last + 1) if _is_error(lines[i]) and not _is_echo(lines[i])), None)
    if said is None:
        said, first = _above(lines, first, last), max(0, min(first, last - _MAX_ABOVE))
    own = last + 1
    if _PARAGRAPH.match(lines[last]):
        own += sum(1 for _ in takewhile(str.strip, lines[own:]))
    elif _CLOSING.match(lines[last]) and len(lines) - own <= _MAX_CLOSING_LINES:
        own = len(lines)
    shown = own + sum(1 for _ in takewhile(is_quiet, lines[own:]))
    shown = min(shown, first + MAX_BLOCK_LINES)
    while shown > last + 1 and not lines[shown - 1].strip():
        shown -= 1
    number = tail.first_line
    return Block(
        tail.file,
        BlockKind.ERROR,
        number + first,
        tuple(tail.plain[first:shown]),
        lines[said].strip(),
        number + said,
        num_alive(lines[own:]),
        bool(_SHELL.match(lines[said])),
        is_logged=_is_logged_end(lines[last], lines[own:]),
    )


def _is_logged_end(line: str, below: Sequence[str]) -> bool:
    """True if a logger printed the error, and only a line or two of a program that tidies up follow."""
    alive = [each for each in below if not is_quiet(each)]
    return (
        bool(_LOGGED.match(line)) and len(alive) <= _MAX_BELOW_LOGGED and not any(map(_GOES_ON.search, alive))
    )


def _above(lines: Sequence[str], first: int, last: int) -> int:
    """The nearest line with a word of failure above a launcher's exit status; the first status without
    one."""
    near = range(last - 1, max(-1, last - 1 - _MAX_ABOVE), -1)
    return next((i for i in near if _BROAD.search(lines[i]) and not _is_echo(lines[i])), first)


def _belongs(line: str) -> bool:
    return line.startswith("srun: ") or (
        bool(line.strip()) and (_is_error(line) or line[0].isspace() or bool(_BROAD.search(line)))
    )


def _is_echo(line: str) -> bool:
    return bool(_STATUS.search(line) or _CANCELLED.match(line)) and not _SHELL.match(line)
