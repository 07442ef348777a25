"""Several runs in one log: where the last one begins, and how the others ended.

People append (`>>`, `--open-mode=append`, a loop around `srun`). Rules judge the last run alone: an error of
an earlier one is not its cause. A counter that starts anew begins no run: epochs, stages and elastic restarts
do that as well. A new run needs a start behind an end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from coach.model.judging.outcome import EarlierRun
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import FIRST_LINE, MARK, LogHit, LogTail, Signature

_ATTEMPT, _REQUEUED, _JOB = "attempt", "requeued", "job"
_ENDED, _STARTED, _ENTERED, _REPORTED = "ended", "started", "entered", "reported"

_NEAR_LINES = 8
"""Ranks that start together print the same line this near to each other: such a line starts no run."""
_MIN_LINES = 10
"""A run that no header and no banner begins has at least this many lines: a program that dies may print a
line of its beginning once more, and LSF's report has a postscript."""
_MAX_ENDED_CHARS = 120
_MAX_SHAPE_CHARS = 60


def _mark(name: str, pattern: str, *literals: str) -> Signature:
    return Signature(MARK, name, literals, pattern)


MARKS = (
    # What a batch script of coach writes when its job was requeued: an earlier attempt stands above it.
    _mark(_ATTEMPT, r"coach: this is attempt (?P<attempt>\d{1,9}) of job", "coach: this is attempt "),
    # What Slurm writes at the end of an attempt: the same, if the job was started again after it.
    _mark(
        _REQUEUED,
        r"JOB \d+ ON \S+ CANCELLED AT \S+ DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE)",
        " DUE TO JOB REQUEUE",
        " DUE TO PREEMPTION",
        " DUE TO NODE FAILURE",
    ),
    # An end: an exception that nobody caught (its block tells), a shell, Slurm, a launcher, argparse.
    _mark(_ENDED, r"Traceback \(most recent call last\):", "Traceback (most recent call last):"),
    _mark(
        _ENDED,
        r"^srun: (?:error: \S+: tasks? [\d,-]+: \S|Job step aborted|Job has been cancelled"
        r"|error: Unable to allocate)",
        "srun: ",
    ),
    _mark(_ENDED, r"\*\*\* (?:JOB|STEP) \S+ ON \S+ (?:CANCELLED|FAILED)", "*** JOB ", "*** STEP "),
    _mark(
        _ENDED,
        r"^(?:\S+: line \d+: +\d+ )?(?:Killed|Aborted|Segmentation fault|Bus error|Terminated(?! at ))\b",
        "Killed",
        "Aborted",
        "Segmentation fault",
        "Bus error",
        "Terminated",
    ),
    _mark(_ENDED, r"^KeyboardInterrupt$", "KeyboardInterrupt"),
    _mark(_ENDED, r"^(?:\w+\.)*\w*(?:Error|Exception)(?:: \S|$)", "Error", "Exception"),
    _mark(_ENDED, r"^[\w.-]+\.py: error: \S", ".py: error: "),
    _mark(_ENDED, r"ChildFailedError:", "ChildFailedError:"),
    _mark(
        _ENDED,
        r"^(?:SyntaxError|IndentationError|TabError): ",
        "SyntaxError: ",
        "IndentationError: ",
        "TabError: ",
    ),
    _mark(_ENDED, r"^\S*python\S*: can't open file ", ": can't open file "),
    _mark(_ENDED, r"^nohup: failed to run command", "nohup: failed to run command"),
    _mark(
        _ENDED,
        r"^00[59] \(\d+\.\d+\.\d+\) .*Job (?:terminated|was aborted)",
        " Job terminated",
        " Job was aborted",
    ),
    # A start, by itself: a job's header, a launcher's banner.
    _mark(
        _STARTED,
        r"^srun: job \d+ (?:queued and waiting|has been allocated)"
        r"|^salloc: (?:Pending|Granted) job allocation",
        "srun: job ",
        "salloc: Pending job allocation",
        "salloc: Granted job allocation",
    ),
    _mark(_STARTED, r"^nohup: ignoring input", "nohup: ignoring input"),
    _mark(
        _STARTED,
        r"Setting OMP_NUM_THREADS environment variable for each process to be",
        "Setting OMP_NUM_THREADS environment variable for each process to be",
    ),
    _mark(_STARTED, r"\[runner\.py:\d+:main\] cmd = ", ":main] cmd = "),
    _mark(
        _STARTED,
        r"^The following values were not passed to `accelerate launch`",
        "The following values were not passed to `accelerate launch`",
    ),
    # LSF's report stands above the output, or below it: another job's output may follow.
    _mark(_STARTED, r"^The output \(if any\) follows:", "The output (if any) follows:"),
    _mark(_REPORTED, r"^The output \(if any\) is above", "The output (if any) is above"),
    _mark(_STARTED, r"^000 \(\d+\.\d+\.\d+\) .*Job submitted from host", " Job submitted from host"),
    # A job's header: another number is another job.
    _mark(
        _JOB,
        r"(?i)\b(?:slurm[_ ])?job[_ ]?id ?[:=] ?(?P<job>\d{1,10})\b",
        *("JOB_ID", "JOBID", "JobID", "JobId", "Job ID", "job ID", "job id", "Job id", "job_id", "jobid"),
    ),
    # A line that every run prints once: it starts a run where an earlier run had it as well.
    _mark(_ENTERED, r"^\++ \S.*", "+ "),
    _mark(
        _ENTERED,
        r"^wandb: (?:Tracking run with|Starting wandb agent)",
        "wandb: Tracking run with",
        "wandb: Starting wandb agent",
    ),
    _mark(_ENTERED, r"^GPU available: ", "GPU available: "),
    _mark(_ENTERED, r"Namespace\(\w+=", "Namespace("),
)
"""What tells runs apart. Their hits come with those of the rules."""


def of_last_run(snapshot: TargetSnapshot) -> tuple[TargetSnapshot, tuple[EarlierRun, ...]]:
    """The snapshot without what earlier runs and attempts left in its logs, and those runs."""
    marks: dict[str, list[LogHit]] = {}
    for hit in snapshot.log_hits:
        if hit.rule == MARK:
            marks.setdefault(hit.file, []).append(hit)
    num_lines = {tail.file: tail.num_lines for tail in snapshot.log_tails if tail.is_counted}
    runs = {file: _runs(found, num_lines.get(file)) for file, found in marks.items()}
    first = {
        file: max(_first_line_of_attempt(found, snapshot.job), _line_below(runs[file]))
        for file, found in marks.items()
    }
    hits = (hit for hit in snapshot.log_hits if hit.rule != MARK and hit.line >= first.get(hit.file, 0))
    tails = (_from_line(tail, first.get(tail.file, 0)) for tail in snapshot.log_tails)
    earlier = tuple(run for file in sorted(runs) for run in runs[file])
    return replace(snapshot, log_hits=tuple(hits), log_tails=tuple(tails)), earlier


def first_line_to_keep(marks: Iterable[LogHit]) -> int:
    """The line below which the last run of a log begins, by its marks, with a run above it: more of the log
    may show that the last one is none."""
    marks = list(marks)
    return max(_first_line_of_attempt(marks, None), _line_below(_runs(marks, None)[:-1]))


def _line_below(runs: Sequence[EarlierRun]) -> int:
    return runs[-1].last_line + 1 if runs else 0


def _first_line_of_attempt(marks: Iterable[LogHit], job: Job | None) -> int:
    lines = [0]
    for mark in marks:
        if mark.signature == _ATTEMPT:
            lines.append(mark.line)
        elif mark.signature == _REQUEUED and _was_started_again(mark, job):
            lines.append(mark.line + 1)
    return max(lines)


def _was_started_again(requeued: LogHit, job: Job | None) -> bool:
    """Slurm writes into the log that it ends a job to requeue it. Only the queue knows the rest."""
    if job is None or job.state == "PENDING" or requeued.time_s is None or job.start_time_s is None:
        return False
    return job.start_time_s >= requeued.time_s


def _runs(marks: Iterable[LogHit], num_lines: int | None) -> tuple[EarlierRun, ...]:
    """The runs of one log but the last, in order. `num_lines` of the log, where that is known."""
    ordered = sorted(marks, key=lambda mark: mark.line)
    division = _Division(_repeated(ordered))
    for mark in ordered:
        division.take(mark)
    return division.runs(num_lines)


class _Division:
    """Divides a log into runs, mark by mark."""

    def __init__(self, repeated: set[str]) -> None:
        self._repeated = repeated
        self._found: list[EarlierRun] = []
        self._first = 1
        self._end = ""
        """The words of the last end; empty while the run goes on."""
        self._end_line = 0
        self._job = ""
        self._entered: set[str] = set()
        self._is_weak = False
        """True if no header and no banner began the present run."""

    def runs(self, num_lines: int | None) -> tuple[EarlierRun, ...]:
        has_shown = num_lines is None or num_lines - self._first + 1 >= _MIN_LINES
        return tuple(self._found if has_shown or not self._is_weak else self._found[:-1])

    def take(self, mark: LogHit) -> None:
        if mark.signature == _JOB:
            if self._job not in ("", mark.fields["job"]):
                self._divide(mark, mark.line, self._end or f"job {self._job}")
            self._job = mark.fields["job"]
        elif mark.signature == _REPORTED:
            self._divide(mark, mark.line + 1, self._end or mark.text, is_weak=True)
        elif mark.signature == _ENDED and _is_end(mark):
            self._end, self._end_line = _words_of_end(mark), _last_line(mark)
        elif mark.line > self._end_line and self._is_start(mark):
            if self._end:
                self._divide(mark, mark.line, self._end, is_weak=mark.signature != _STARTED)
            self._entered.add(_shape(mark))

    def _divide(self, mark: LogHit, first: int, ended: str, *, is_weak: bool = False) -> None:
        self._found.append(EarlierRun(mark.file, self._first, first - 1, ended))
        self._first, self._end, self._entered, self._is_weak = first, "", set(), is_weak

    def _is_start(self, mark: LogHit) -> bool:
        if mark.signature == _STARTED:
            return True
        if mark.signature not in (_ENTERED, FIRST_LINE):
            return False
        shape = _shape(mark)
        is_known = mark.signature == FIRST_LINE or shape in self._entered or not self._end
        return is_known and shape not in self._repeated


def _repeated(marks: Sequence[LogHit]) -> set[str]:
    """The shapes of lines that stand near each other without an end between them."""
    last: dict[str, int] = {}
    found: set[str] = set()
    for mark in marks:
        if mark.signature == _ENDED and _is_end(mark):
            last.clear()
        elif mark.signature in (_ENTERED, FIRST_LINE):
            shape = _shape(mark)
            if 0 < mark.line - last.get(shape, -_NEAR_LINES) < _NEAR_LINES:
                found.add(shape)
            last[shape] = mark.line
    return found


def _shape(mark: LogHit) -> str:
    return re.sub(r"\d+", "0", mark.text[:_MAX_SHAPE_CHARS])


def _is_end(mark: LogHit) -> bool:
    """False for an exception that does not begin in a program's main module: a function caught it, or it is
    of a thread or of a child process."""
    block = mark.block
    if block is None or not block.is_traceback:
        return "Traceback" not in mark.text
    if block.is_ignored or block.process is not None or block.type is None:
        return False
    return next((frame.function for frame in block.frames), None) in ("<module>", None)


def _last_line(mark: LogHit) -> int:
    return mark.block.error_line if mark.block is not None else mark.line


def _words_of_end(mark: LogHit) -> str:
    block = mark.block
    words = (block.type or "") if block is not None and block.type else mark.text.strip()
    return words[:_MAX_ENDED_CHARS]


def _from_line(tail: LogTail, line: int) -> LogTail:
    """The end of a log from a line on."""
    num_before = line - tail.first_line
    if num_before <= 0 or not tail.is_counted:
        return tail
    return replace(
        tail,
        first_line=min(line, tail.first_line + len(tail.lines)),
        lines=tail.lines[num_before:],
        words=tail.words[num_before:],
        blocks=tuple(block for block in tail.blocks if block.first_line >= line),
    )
