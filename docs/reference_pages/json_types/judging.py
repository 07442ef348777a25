"""Documents of check, why, watch, fix, compare and ticket."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from coach.analysis.comparing.fix_chain import Link
from coach.analysis.comparing.sweep_table import Point
from coach.analysis.comparing.tried_words import Tried
from coach.analysis.comparing.two_runs import FoundIn, Row
from coach.analysis.judging.verdict_object import DiagnosisObject, FindingObject, OutcomeObject
from coach.analysis.judging.waiting import WaitingObject
from coach.model.json_types import Schema1, Together
from coach.model.judging.finding import NotMeasured
from coach.model.training.run import Segment
from coach.sources.slurm.job_record import JobRecord
from coach.workflows.judging.check import ReadFile


class CheckDocument(DiagnosisObject):
    """One target, judged."""

    files: NotRequired[list[Annotated[dict[str, Any], ReadFile]]]
    """Only if coach had to search for the files of the target: the files that it read."""
    not_found: NotRequired[list[str]]
    """Files that were searched for and not found."""
    segments: NotRequired[list[Annotated[dict[str, Any], Segment]]]
    """Only for a training longer than its time limit: its segments, oldest first."""
    pending: NotRequired[Annotated[dict[str, Any], WaitingObject]]
    """Only for a job that has not started."""
    jobs: NotRequired[list[DiagnosisObject]]
    """Only for a whole array or a heterogeneous job: its tasks or components."""


class CheckJobsDocument(TypedDict):
    """Verdicts on several jobs; the list may be empty."""

    schema: Schema1
    jobs: list[CheckDocument]


class VerdictDocument(CheckDocument):
    """A diagnosis that was stored when its target ended."""

    outcome: OutcomeObject | None
    """Null while it runs, if nothing is known, and for an open drill."""


class FixChange(TypedDict):
    """A fix that a launch can carry out."""

    rule: str
    number: int
    """Numbers the fixes of one rule, from 1."""
    title: str
    changes: dict[str, Any]
    changes_learning: bool
    """True if it changes the training result."""
    why_not: str | None
    """Why a launch cannot carry it out now; null if it can, or if the target could not be asked."""


class FixesDocument(TypedDict):
    """The fixes that `--list` prints."""

    schema: Schema1
    fixes: list[FixChange]


class ForeignFixChange(TypedDict):
    """A fix for a job that coach did not launch."""

    rule: str
    title: str
    changes: dict[str, Any]
    command: str | None
    changes_learning: bool
    diff: str | None
    """The change of the batch script; null if a script cannot express it."""
    in_program: list[str]
    """The changes that the program needs instead."""


class ForeignFixDocument(TypedDict):
    """The changed script of a job that coach did not launch. Nothing is written."""

    schema: Schema1
    job_id: str
    script_from: str | None
    framework: str | None
    problem: str | None
    """The reason why there is no script."""
    lost: list[str]
    """The work that is lost if the job ends now."""
    fixes: list[ForeignFixChange]


class ComparisonDocument(TypedDict):
    """Two runs side by side."""

    schema: Schema1
    before: str
    after: str
    changes: list[str]
    """Parameters and resources that differ, as `name: old → new`."""
    rows: list[Annotated[dict[str, Any], Row]]
    findings: list[Annotated[dict[str, Any], FoundIn]] | None
    """Findings at warning or above of either run; null if a run was not judged, or its diagnosis is
    withheld."""


class FixDocument(TypedDict):
    """A run that was launched with a fix."""

    schema: Schema1
    run_id: str
    run_dir: str
    job_id: str | None
    state: str | None
    lost: list[str]
    """The lost work of the run that was cancelled for it."""
    comparison: ComparisonDocument | None
    """With `--wait`: both runs side by side."""


class GroupDocument(TypedDict):
    """The runs of a sweep."""

    schema: Schema1
    group_id: str
    recipe: str
    parameter: str
    """The parameter that differs from run to run."""
    points: list[Annotated[dict[str, Any], Point]]


class ChainDocument(ComparisonDocument):
    """What the last fix did, and the chain of runs that fixes made, oldest first."""

    chain: list[Annotated[dict[str, Any], Link]]


class ErrorLines(TypedDict):
    """The error that ended the job, from a log."""

    file: str | None
    line: int | None
    rank: int | None
    lines: list[str]


class LogEnd(TypedDict):
    """The last lines of a log."""

    file: str
    num_lines: int | None
    lines: list[str]


class TicketNodes(TypedDict):
    """The nodes of the job, and their present state."""

    names: str | None
    nodes: list[str]
    problem: str | None


class TicketScript(TypedDict):
    """The batch script."""

    command: str | None
    """The command line of the program that was launched."""
    origin: str | None
    problem: str | None
    text: str | None


class _TriedAlso(TypedDict):
    ended: str | None
    """The time in words."""


class TicketDocument(TypedDict):
    """Facts for a help desk about a job, without secrets. They are for people: the keys are words, and
    unknown facts are left out."""

    schema: Schema1
    target: str
    state: str | None
    written: str
    written_by: str
    verdict: list[str]
    """The output of `coach why`."""
    findings: list[FindingObject]
    not_measured: list[Annotated[dict[str, Any], NotMeasured]]
    times: dict[str, str]
    job: dict[str, Any]
    parts: list[str]
    nodes: TicketNodes
    modules: dict[str, list[str]]
    environment: dict[str, Any]
    error: ErrorLines | None
    log_ends: list[LogEnd]
    logs: list[str]
    tried: list[Annotated[dict[str, Any], Together("TriedRow", (Tried, _TriedAlso))]]
    script: TicketScript
    slurm_record: Annotated[dict[str, Any] | None, JobRecord | None]
    num_struck: int
    """The number of secrets that were masked."""
