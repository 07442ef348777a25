"""How a run ended, in words: the same on every screen and in every command. Pure."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable

from coach.analysis.spelling.printable import printable
from coach.model.judging.outcome import EarlierRun, End, Outcome
from coach.runs import RUN_ID

_JOB_ID = re.compile(r"\d{1,18}(?:_\d{1,9})?", re.ASCII)
_NOT_STARTED = "53"
"""What slurmd reports as a signal when it cannot start a batch script: mostly it cannot open the log, or
enter the folder. It is no signal that a process gets."""
_SLURM = {
    "BadConstraints": "Slurm never started it: no node fits its request",
    "DEADLINE": "it could not end before its --deadline",
    "TIMEOUT": "Slurm ended it at its time limit",
    "CANCELLED": "it was cancelled",
    "PREEMPTED": "Slurm ended it for a job of higher priority",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "Slurm ended it: it used more memory than it had requested",
}


def outcome_text(outcome: Outcome | None, resumed_by: str = "") -> str:
    """The cause and place of the end, the work lost, and whether the run can resume; empty while it runs, and
    if nothing is known. `resumed_by`: the key or command that resumes it."""
    if outcome is None or outcome.end in (End.RUNNING, End.COMPLETED):
        return ""
    return "; ".join(filter(None, (end_text(outcome), lost_text(outcome, resumed_by))))


def lost_text(outcome: Outcome, resumed_by: str = "") -> str:
    """The work lost since the last complete checkpoint, and whether the run can resume; empty if neither is
    known."""
    return "; ".join(filter(None, (_lost(outcome), _resume(outcome, resumed_by))))


def end_text(outcome: Outcome) -> str:
    """The cause of the end, and the rank and node that ended first; empty if nothing is known."""
    reason = printable(outcome.reason or "")
    match outcome.end:
        case End.EXCEPTION:
            words = f"it ended with {reason or 'an exception'}"
        case End.SIGNAL if reason == _NOT_STARTED:
            return "Slurm could not start its batch script (ExitCode 0:53)"
        case End.SIGNAL:
            words = f"it was ended by {_signal_name(reason)}"
        case End.STATUS:
            words = f"it ended with exit status {reason}"
        case End.SLURM:
            return _SLURM.get(reason, f"Slurm ended it: {reason}")
        case _:
            return ""
    first = outcome.first
    if first is None or first.rank is None:
        return words
    return f"{words}, rank {first.rank} first" + (f", on {printable(first.node)}" if first.node else "")


def _signal_name(number: str) -> str:
    try:
        return signal.Signals(int(number)).name
    except ValueError:
        return f"signal {number}"


def _lost(outcome: Outcome) -> str:
    if outcome.lost_steps is None:
        return ""
    if not outcome.lost_steps:
        return "no step is lost"
    steps = "1 step is lost" if outcome.lost_steps == 1 else f"{outcome.lost_steps} steps are lost"
    return f"{steps} since the last complete checkpoint"


def resume_command(target: str) -> str:
    """The command that resumes a run, named by its own id or its job's; empty for any other name."""
    return f"`coach resume {target}`" if RUN_ID.match(target) or _JOB_ID.fullmatch(target) else ""


def _resume(outcome: Outcome, resumed_by: str) -> str:
    if outcome.can_resume is None:
        return ""
    if not outcome.can_resume:
        return "it cannot resume: it has no complete checkpoint"
    return f"it can resume: {resumed_by}" if resumed_by else "it can resume"


def earlier_runs_lines(outcome: Outcome | None) -> Iterable[str]:
    """One line on the runs above the judged one in its log; none if the log has only one run."""
    if outcome is None or not outcome.earlier:
        return
    yield f"{_earlier(outcome.earlier)}: {printable(outcome.earlier[-1].ended)}"


def _earlier(runs: tuple[EarlierRun, ...]) -> str:
    number, last = len(runs), runs[-1]
    place = f"{printable(last.file)}:{last.last_line}"
    if number == 1:
        return f"an earlier run in the same log, not checked: it ended at {place}"
    return f"{number} earlier runs in the same log, not checked: the last ended at {place}"
