"""Split a log that holds several runs: find where the last one begins, and how the others ended.

Logs are appended to by `>>`, `--open-mode=append` or a loop around `srun`. Rules judge only the last run,
because an error of an earlier run is not its cause. A step counter that restarts is no new run: epochs,
stages and elastic restarts reset it too. A new run needs a start mark after an end mark.
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
"""Equal lines within this many lines come from ranks that start together, and start no run."""
_MIN_LINES = 10
"""Minimal length of a run that begins without header or banner. A dying program may repeat a line from its
beginning, and LSF's report has a postscript."""
_MAX_ENDED_CHARS = 120
_MAX_SHAPE_CHARS = 60


_OTHER_JOBS = (
    *("array", "child", "dependency", "dependent", "following", "last", "new", "next", "old", "original"),
    *("parent", "prev", "previous", "resubmitted", "submitted"),
)
_NOT_OF_ANOTHER = "".join(rf"(?<!\b{word}[ -])" for word in _OTHER_JOBS) + r"(?<!\bslurm[ _])"
_NOT_OF_A_WORKFLOW = r"(?-i:(?<!    jobid)(?<!\(jobid))"
"""`Next job id: 18` at the end of a chained job, and `Array job ID: 16` in a header, name other jobs.
Snakemake numbers the rules of a workflow by `jobid: 4`, indented or behind a bracket."""


def _mark(name: str, pattern: str, *literals: str) -> Signature:
    return Signature(MARK, name, literals, pattern)


MARKS = (
    # coach's batch script writes this in a requeued job: an earlier attempt stands above it.
    _mark(_ATTEMPT, r"coach: this is attempt (?P<attempt>\d{1,9}) of job", "coach: this is attempt "),
    # Slurm writes this at the end of an attempt. An earlier attempt stands above if the job was started
    # again.
    _mark(
        _REQUEUED,
        r"JOB \d+ ON \S+ CANCELLED AT \S+ DUE TO (?:JOB REQUEUE|PREEMPTION|NODE FAILURE)",
        " DUE TO JOB REQUEUE",
        " DUE TO PREEMPTION",
        " DUE TO NODE FAILURE",
    ),
    # An end: an uncaught exception (by its block), or a message of a shell, Slurm, a launcher or argparse.
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
    _mark(_ENDED, r"^\S*python\S*: can't open file ", ": can't open file "),
    _mark(_ENDED, r"^nohup: failed to run command", "nohup: failed to run command"),
    _mark(
        _ENDED,
        r"^00[59] \(\d+\.\d+\.\d+\) .*Job (?:terminated|was aborted)",
        " Job terminated",
        " Job was aborted",
    ),
    # A certain start: a job's header or a launcher's banner.
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
    # LSF's report stands above or below the job's output; another job's output may follow.
    _mark(_STARTED, r"^The output \(if any\) follows:", "The output (if any) follows:"),
    _mark(_REPORTED, r"^The output \(if any\) is above", "The output (if any) is above"),
    _mark(_STARTED, r"^000 \(\d+\.\d+\.\d+\) .*Job submitted from host", " Job submitted from host"),
    # A job's header: a different job id means another job.
    _mark(
        _JOB,
        rf"(?i)\b{_NOT_OF_ANOTHER}(?:slurm[_ ])?job[_ ]?id{_NOT_OF_A_WORKFLOW} ?[:=] ?(?P<job>\d{{1,10}})\b",
        *("JOB_ID", "JOBID", "JobID", "JobId", "Job ID", "job ID", "job id", "Job id", "job_id", "jobid"),
    ),
    # A line that each run prints once: it starts a run if an earlier run has the same line.
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
"""Signatures that mark starts and ends of runs. Their hits arrive together with those of the rules."""


def of_last_run(snapshot: TargetSnapshot) -> tuple[TargetSnapshot, tuple[EarlierRun, ...]]:
    """The snapshot without the log lines of earlier runs and attempts, and a list of those runs."""
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
    """The line below which the last run begins, with one more run kept above it: as the log grows, the last
    run may turn out to be part of it."""
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
    """True if the queue shows that a requeued job has started again. The log only reports that Slurm ended
    it."""
    if job is None or job.state == "PENDING" or requeued.time_s is None or job.start_time_s is None:
        return False
    return job.start_time_s >= requeued.time_s


def _runs(marks: Iterable[LogHit], num_lines: int | None) -> tuple[EarlierRun, ...]:
    """The runs of one log except the last, in order. `num_lines` is the length of the log, if known."""
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
        """The text of the last end mark; empty while the run goes on."""
        self._end_line = 0
        self._job = ""
        self._entered: set[str] = set()
        self._is_weak = False
        """True if the present run began without header and banner."""

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
            kind, line = (mark.block.type, mark.block.error_line) if mark.block else (None, mark.line)
            self._end, self._end_line = (kind or mark.text.strip())[:_MAX_ENDED_CHARS], line
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
    """Lines, with numbers masked, that occur twice near each other without an end between them."""
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
    """False for an exception whose traceback does not begin in the main module: a function caught it, or a
    thread or child process raised it."""
    block = mark.block
    if block is None or not block.is_traceback:
        return "Traceback" not in mark.text
    if block.is_ignored or block.process is not None or block.type is None:
        return False
    return next((frame.function for frame in block.frames), None) in ("<module>", None)


def _from_line(tail: LogTail, line: int) -> LogTail:
    """The kept end of a log, from `line` on."""
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
