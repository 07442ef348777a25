"""Compare the silence of a running job with its usual pause.

A job that hangs prints nothing, and neither does one that evaluates, compiles or keeps its output in a
buffer. So a silence is judged only against the rhythm that the program had before. Without a known rhythm it
is told, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from coach.lookback.history import History
from coach.model.judging.finding import PROGRESS, NotMeasured
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.rules.from_logs.aftermath import signs_of
from coach.rules.from_logs.loss_lines import last_losses
from coach.rules.from_logs.printed_progress import unexplained_end
from coach.rules.from_logs.quoted_evidence import earliest, hits_of
from coach.rules.from_numbers.training_windows import newest_steps

_TOLD_S = 300.0
"""Shorter silences are checkpoints and evaluations."""
_OF_USUAL, _OF_LONGEST = 3.0, 1.5
_MIN_LINES = 20
"""Fewer lines give no rhythm."""
_BUFFER_BYTES = 4096
_LAST_LINES = 3
_OTHER_WORK = re.compile(
    r"\b(?:evaluat\w*|validat\w*|testing|inference|predict\w*|generat\w*|sav(?:e|ed|ing)|checkpoint\w*"
    r"|writing|compil\w*|autotun\w*|download\w*|upload\w*|extract\w*|tokeniz\w*|preprocess\w*|load(?:ing)?"
    r"|export\w*|merg\w*|waiting|sleep\w*|done|finished|completed?)\b",
    re.IGNORECASE,
)
"""Words of work that takes long and prints nothing."""
_PART = re.compile(r"(?<![\w.])(\d{1,9})\s?(?:/|of)\s?(\d{1,9})(?![\w.])")


@dataclass(frozen=True, slots=True)
class Silence:
    """The present silence of a running job."""

    silent_s: float
    last_s: float
    """When it last wrote."""
    usual_s: float | None
    """The usual pause between two steps that it reports; None if it has no known rhythm."""
    longest_s: float
    """The longest pause that is known; 0 if none is."""
    does_other_work: bool
    """True if its last lines announce work that prints nothing, or end an epoch."""
    failed_task: LogHit | None
    """srun's line about the first task that failed while others still run."""

    @property
    def times(self) -> float | None:
        """How many usual pauses the silence lasts."""
        return None if self.usual_s is None else self.silent_s / max(self.usual_s, 0.001)

    @property
    def words(self) -> str:
        """Whole minutes, as the screen counts them above the log."""
        return f"no output for {int(self.silent_s // 60)} min"


def started_s(snapshot: TargetSnapshot) -> float | None:
    """When the job started, or started again after a requeue; None if unknown."""
    if snapshot.job is not None:
        return snapshot.job.start_time_s
    return snapshot.run.started_time_s if snapshot.run is not None else None


def silence_of(snapshot: TargetSnapshot, history: History) -> Silence | None:
    """The silence of a running job; None if it is short for this program, or if nothing tells when it
    wrote."""
    now_s, last_s = snapshot.now_s, _last_sign_s(snapshot, history)
    if snapshot.state != "RUNNING" or now_s is None or last_s is None or now_s - last_s < _TOLD_S:
        return None
    usual_s, longest_s = _pauses(snapshot, history, last_s)
    longest_s = max([longest_s, *(tail.longest_pause_s for tail in snapshot.log_tails)])
    silent_s = now_s - last_s
    if silent_s < max(_OF_USUAL * (usual_s or 0.0), _OF_LONGEST * longest_s):
        return None
    others = any(map(_does_other_work, snapshot.log_tails))
    failed = hits_of(snapshot, "JOB005", "task_failed")
    return Silence(silent_s, last_s, usual_s, longest_s, others, earliest(failed) if failed else None)


def unknown_progress(snapshot: TargetSnapshot, history: History) -> list[NotMeasured]:
    """An item that says how long a running job is silent, or that an ended one is not known to be complete;
    empty if neither is so."""
    silence = silence_of(snapshot, history)
    if silence is None:
        return unexplained_end(snapshot)
    job_id = snapshot.job.job_id if snapshot.job is not None else snapshot.target
    because = f"{silence.words}: coach cannot tell whether it works"
    return [NotMeasured(PROGRESS, because, f"`coach stacks {job_id}` shows where it stands")]


def _last_sign_s(snapshot: TargetSnapshot, history: History) -> float | None:
    """When it last wrote to a log or to its metrics, or started again; None if its steps come from a file
    without times, which may still grow, and not from its log."""
    ends = [steps[-1].time_s for rank in history.ranks if (steps := history.steps(rank))]
    if None in ends and not last_losses(snapshot.log_hits):
        return None
    signs = [*ends, *(tail.written_s for tail in snapshot.log_tails)]
    signs += [event.time_s for event in snapshot.events]
    known = [each for each in signs if each is not None]
    return max([*known, started_s(snapshot) or 0.0]) if known else None


def _pauses(snapshot: TargetSnapshot, history: History, last_s: float) -> tuple[float | None, float]:
    """The usual and the longest pause between two steps: by their times, else the mean of the lines that
    report a step. A job that has written nothing since its start is starting up, and has no usual pause."""
    start_s = started_s(snapshot)
    if not history.ranks or (start_s is not None and last_s <= start_s):
        return None, 0.0
    rank = history.ranks[0]
    times = [step.time_s for step in newest_steps(history.steps(rank), 500) if step.time_s is not None]
    gaps = [after - before for before, after in pairwise(times) if after >= before]
    if len(gaps) >= _MIN_LINES:
        return median(gaps), max(gaps)
    number = history.num_steps(rank)
    if start_s is None or number < _MIN_LINES or any(map(_may_be_buffered, snapshot.log_tails)):
        return None, max(gaps, default=0.0)
    return (last_s - start_s) / number, max(gaps, default=0.0)


def _may_be_buffered(tail: LogTail) -> bool:
    """True if the log ends where a buffer was full, not where a line ends. Also for a log that is not read
    to its end: its steps are not counted yet."""
    return (
        tail.is_torn or not tail.is_counted or (tail.size_bytes > 0 and not tail.size_bytes % _BUFFER_BYTES)
    )


def _does_other_work(tail: LogTail) -> bool:
    lines = [line for line in tail.plain if line.strip()][-_LAST_LINES:]
    if any(_OTHER_WORK.search(line[:512]) for line in lines) or signs_of(tail).good_ends:
        return True
    parts = [(int(part), int(whole)) for line in lines[-1:] for part, whole in _PART.findall(line[:512])]
    return any(part == whole > 1 for part, whole in parts)
