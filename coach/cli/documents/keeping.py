"""Documents of doctor, config, rules, data, runs and runs clean."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from coach.model.json_types import Schema1
from coach.model.judging.doctor_report import Check
from coach.model.launching.launch import SweepPoint
from coach.model.training.run import Submission
from coach.workflows.launching.datasets import Place


class DoctorDocument(TypedDict):
    """What works here and what does not."""

    schema: Schema1
    checks: list[Annotated[dict[str, Any], Check]]


class SettingObject(TypedDict):
    """One setting in force."""

    key: str
    value: Any
    """Null where nothing is set."""
    origin: str | None
    """`FILE:LINE` or an environment variable; null for a default."""
    locked: str | None
    """The site's reason why nobody else may set it."""


class ConfigFileObject(TypedDict):
    """A file of the config that was looked for."""

    path: str
    is_there: bool


class ConfigDocument(TypedDict):
    """What is set, and who set it."""

    schema: Schema1
    cluster: str
    settings: list[SettingObject]
    files: list[ConfigFileObject]
    notes: list[str]
    """What was said and does not count."""


class ProblemObject(TypedDict):
    """A mistake in a file."""

    file: str
    line: int | None
    message: str
    hint: str | None


class ReportObject(TypedDict):
    """One file of the config, checked."""

    path: str
    kind: Annotated[str, Literal["site", "user", "remembered"]]
    problems: list[ProblemObject]
    notes: list[str]


class ConfigCheckDocument(TypedDict):
    """All that is wrong in files of the config."""

    schema: Schema1
    files: list[ReportObject]


class ConfigForgetDocument(TypedDict):
    """The remembered answers that were forgotten."""

    schema: Schema1
    cluster: str
    keys: list[str]


class RuleRow(TypedDict):
    """A wording of a file, tried on its own example."""

    rule: str
    kind: str
    pattern: str
    literals: list[str]
    """One of them stands in each line that the pattern is tried on."""
    problems: list[str]
    """Empty: it does what it says."""


class RulesCheckDocument(TypedDict):
    """The wordings of a file."""

    schema: Schema1
    rows: list[RuleRow]


class DataDocument(TypedDict):
    """Where data sets lie, and how they stand there."""

    schema: Schema1
    datasets: list[Annotated[dict[str, Any], Place]]


class RunFixObject(TypedDict):
    """The fix that made a run."""

    rule: str
    title: str
    changes: dict[str, Any]


class RunFields(TypedDict):
    """One run. What its run.json does not say is null or empty."""

    run_id: str
    run_dir: str
    recipe: str | None
    backend: str
    """`slurm` or `local`."""
    job_id: str | None
    state: str | None
    submission: Annotated[str | None, Submission | None]
    host: str | None
    is_visible: bool
    """False for a local run of another machine: its state is the last word known."""
    last_word_time_s: float | None
    created_time_s: float | None
    started_time_s: float | None
    ended_time_s: float | None
    parent_run_id: str | None
    fix: RunFixObject | None
    sweep: Annotated[dict[str, Any] | None, SweepPoint | None]
    parameters: dict[str, Any]
    resources: dict[str, Any]
    device: dict[str, Any]
    dataset: dict[str, Any]
    versions: dict[str, Any]


class RunRow(RunFields):
    """One run with its size."""

    size_bytes: int | None


class RunsDocument(TypedDict):
    """The runs that coach knows."""

    schema: Schema1
    runs: list[RunRow]
    problems: list[str]
    num_bad_rows: NotRequired[int]


class Removal(TypedDict):
    """What goes of a run."""

    run_id: str
    run_dir: str
    state: str | None
    size_bytes: int | None
    paths: list[str]


class Leftover(TypedDict):
    """What belongs to no run."""

    path: str
    what: str
    size_bytes: int | None


class KeptRun(TypedDict):
    """A run that stays, and why."""

    run_id: str
    because: str


class CleanDocument(TypedDict):
    """What `coach runs clean` removes, or would remove."""

    schema: Schema1
    is_removed: bool
    removed_bytes: int
    size_bytes: int
    runs: list[Removal]
    leftovers: list[Leftover]
    kept: list[KeptRun]
    problems: list[str]


class RecordsPart(TypedDict):
    """A part of the records of a run that is thinned."""

    run_id: str
    part: str
    size_bytes: int
    num_files: int


class KeptBeside(TypedDict):
    """What is kept beside the records, and is never thinned."""

    what: str
    size_bytes: int
    num_files: int
    is_whole: bool
    """False where there is more than was looked at."""


class RecordsFields(TypedDict):
    """What the records of all runs hold, and what is thinned to fit the limits."""

    schema: Schema1
    is_thinned: bool
    size_bytes: int
    num_files: int
    max_size_bytes: int
    max_files: int
    freed_bytes: int
    freed_files: int
    parts: list[RecordsPart]
    kept: list[KeptRun]
    problems: list[str]


class RecordsDocument(RecordsFields):
    """What `coach runs clean --records` thins, or would thin."""

    beside: list[KeptBeside]
