"""Base of the rules about jobs that Slurm ended: it checks the job's state, Slurm's log lines, and whether
the log goes on after them.

A job that was ended from outside prints no error of its own. Each rule explains the meaning of its end.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import ClassVar

from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity
from coach.model.slurm.cluster import is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogHit, LogTail
from coach.rules.advice.circumstances import fixes_of_wording
from coach.rules.base import Need, Rule
from coach.rules.from_logs.aftermath import (
    PROGRAM,
    ended_well,
    is_below,
    losses_after,
    num_alive_after,
    tail_of,
)
from coach.rules.from_logs.library_exceptions import PLAIN
from coach.rules.from_logs.quoted_evidence import earliest, hits_of, quote

REQUEUES = re.compile(r"\b(?:[Rr]eque(?:ued|u?e?ing)|scontrol requeue|[Rr]esubmitt(?:ed|ing))\b")
"""Messages of a job that requeues itself. Lightning writes "requeing"."""

_RESUMED = re.compile(r"\b(?:[Rr]esum(?:ed?|ing)|[Rr]estor(?:ed|ing))\b.{0,200}\b(?:from|training)\b")

_STILL_FLUSHED_LINES = 200
"""The tasks of an ended job go on printing for some seconds. Losses more than this many lines below come from
a later attempt."""


class EndedBySlurm(Rule):
    """A rule about a job that Slurm ended, for one reason."""

    severity = Severity.WARNING
    needs = (Need.LOG, Need.JOB_STATE)
    states: ClassVar[frozenset[str]]

    @abstractmethod
    def summary(self, hits: Sequence[LogHit], snapshot: TargetSnapshot) -> str:
        """One line that says what happened."""

    @abstractmethod
    def fixes(self, snapshot: TargetSnapshot, history: History) -> Iterable[Fix]:
        """The fixes to offer."""

    def counts(self, hit: LogHit, snapshot: TargetSnapshot) -> bool:
        """True if a line reports the end itself."""
        return True

    def more_evidence(self, snapshot: TargetSnapshot, history: History) -> Iterable[Evidence]:
        """Further evidence about the end."""
        return ()

    def _told_state(self, snapshot: TargetSnapshot) -> str | None:
        """The state that names this end, in words; None if no state does."""
        return f"state {snapshot.state}" if snapshot.state in self.states else None

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        hits = [hit for hit in hits_of(snapshot, self.code) if self.counts(hit, snapshot)]
        told = self._told_state(snapshot)
        if told is None and (not hits or all(_was_outlived(hit, snapshot) for hit in hits)):
            return
        first = earliest(hits) if hits else None
        yield Hit(
            summary=self.summary(hits, snapshot),
            evidence=(
                *([quote(first)] if first is not None else []),
                *([Evidence(told)] if told is not None else []),
                *self.more_evidence(snapshot, history),
            ),
            confidence=0.98 if told is not None else 0.95,
            fixes=(fixes_of_wording(first, snapshot) if first is not None else ())
            or tuple(self.fixes(snapshot, history)),
            since_s=first.time_s if first is not None else None,
        )


def _was_outlived(hit: LogHit, snapshot: TargetSnapshot) -> bool:
    """True if the job went on: only a step was ended, or a later attempt writes into the same log."""
    state = snapshot.state
    if state == "COMPLETED" or (state is not None and not is_final(state)):
        return True
    tail = tail_of(hit, snapshot)
    if tail is None:
        return False
    if hit.fields.get("what") is not None and _is_of_an_earlier_job(hit, tail, snapshot):
        return True
    trained_on = losses_after(hit, snapshot)
    is_resumed = trained_on or is_below(_RESUMED, hit, snapshot)
    if ended_well(hit, tail, snapshot) and (is_resumed or hit.fields.get("what") != "JOB"):
        return True
    return trained_on and tail.num_lines - hit.line > _STILL_FLUSHED_LINES


def _is_of_an_earlier_job(hit: LogHit, tail: LogTail, snapshot: TargetSnapshot) -> bool:
    """True if the log was appended to: many lines that no dying process prints follow, or the line is its
    first and the error of a program follows that no signal causes."""
    told = (each for each in hits_of(snapshot, PLAIN, PROGRAM) if each.file == hit.file)
    return num_alive_after(hit, tail) > _STILL_FLUSHED_LINES or (hit.line == 1 and any(told))
