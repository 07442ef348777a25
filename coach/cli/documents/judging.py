"""Documents of check, why, watch, fix, compare and ticket."""

from __future__ import annotations

from typing import Annotated, Any, NotRequired, TypedDict

from coach.analysis.comparing.fix_chain import Link
from coach.analysis.comparing.sweep_table import Point
from coach.analysis.comparing.tried_words import Tried
from coach.analysis.comparing.two_runs import Row
from coach.analysis.judging.verdict_object import DiagnosisObject, FindingObject, OutcomeObject
from coach.model.json_types import Schema1, Together
from coach.model.judging.finding import NotMeasured
from coach.model.training.run import Segment
from coach.sources.slurm.job_record import JobRecord
from coach.workflows.judging.check import ReadFile
from coach.workflows.judging.since_login import Ended


class CheckDocument(DiagnosisObject):
    """One target, judged."""

    files: NotRequired[list[Annotated[dict[str, Any], ReadFile]]]
    """Of a target whose files had to be found: those that were read."""
    not_found: NotRequired[list[str]]
    """What was looked for in vain."""
    segments: NotRequired[list[Annotated[dict[str, Any], Segment]]]
    """Of a training that is longer than its time limit: its parts, oldest first."""
    jobs: NotRequired[list[DiagnosisObject]]
    """Of a whole array, or of a heterogeneous job: its tasks or components."""


class CheckJobsDocument(TypedDict):
    """Several jobs, judged. Without any the list is empty."""

    schema: Schema1
    jobs: list[CheckDocument]


class VerdictDocument(CheckDocument):
    """A diagnosis that was kept when its target ended."""

    outcome: OutcomeObject | None
    """Null while it runs, where nothing is known, and for an open drill."""


class SinceLoginDocument(TypedDict):
    """What ended badly since the last call."""

    schema: Schema1
    jobs: list[Annotated[dict[str, Any], Ended]]


class FixChange(TypedDict):
    """A fix that a launch can carry out."""

    rule: str
    number: int
    """Counts the fixes of one rule, from 1."""
    title: str
    changes: dict[str, Any]
    changes_learning: bool
    """True if it changes what is learned."""


class FixesDocument(TypedDict):
    """What `--list` lists."""

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
    """What it changes in the batch script; null where a script cannot say it."""
    in_program: list[str]
    """What has to be changed in the program instead."""


class ForeignFixDocument(TypedDict):
    """How the script of a job that coach did not launch would have to be. Nothing is written."""

    schema: Schema1
    job_id: str
    script_from: str | None
    framework: str | None
    problem: str | None
    """Why there is no script."""
    lost: list[str]
    """What is lost if the job ends now."""
    fixes: list[ForeignFixChange]


class ComparisonDocument(TypedDict):
    """Two runs side by side."""

    schema: Schema1
    before: str
    after: str
    changes: list[str]
    """Parameters and resources that differ, as `name: old → new`."""
    rows: list[Annotated[dict[str, Any], Row]]


class FixDocument(TypedDict):
    """A run that was launched with a fix."""

    schema: Schema1
    run_id: str
    run_dir: str
    job_id: str | None
    state: str | None
    lost: list[str]
    """What was lost of the run that was cancelled for it."""
    comparison: ComparisonDocument | None
    """With `--wait`: both runs side by side."""


class GroupDocument(TypedDict):
    """The runs of a sweep."""

    schema: Schema1
    group_id: str
    recipe: str
    parameter: str
    """What differs from run to run."""
    points: list[Annotated[dict[str, Any], Point]]


class ChainDocument(ComparisonDocument):
    """What a fix did, and what fixes made of the first run, oldest first."""

    chain: list[Annotated[dict[str, Any], Link]]


class ErrorLines(TypedDict):
    """The error that ended it, as a log shows it."""

    file: str | None
    line: int | None
    rank: int | None
    lines: list[str]


class LogEnd(TypedDict):
    """How a log ends."""

    file: str
    num_lines: int | None
    lines: list[str]


class TicketNodes(TypedDict):
    """The nodes of the job, and how they are now."""

    names: str | None
    nodes: list[str]
    problem: str | None


class TicketScript(TypedDict):
    """The batch script."""

    command: str | None
    """The words of the program that was launched."""
    origin: str | None
    problem: str | None
    text: str | None


class _TriedAlso(TypedDict):
    ended: str | None
    """The time in words."""


class TicketDocument(TypedDict):
    """What a help desk asks for about a job, without secrets. Facts for people: words as keys, and only those
    that are known."""

    schema: Schema1
    target: str
    state: str | None
    written: str
    written_by: str
    verdict: list[str]
    """What `coach why` prints."""
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
    """How many secrets were struck."""
