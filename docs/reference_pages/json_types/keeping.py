"""Documents of doctor, config, data, runs and runs clean."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from coach.model.json_types import Schema1
from coach.model.judging.doctor_report import Check
from coach.model.launching.launch import SweepPoint
from coach.model.training.run import Submission
from coach.workflows.launching.datasets import Place


class DoctorDocument(TypedDict):
    """The checks of what works here and what does not."""

    schema: Schema1
    checks: list[Annotated[dict[str, Any], Check]]


class SettingObject(TypedDict):
    """One setting in force."""

    key: str
    value: Any
    """Null if nothing is set."""
    origin: str | None
    """`FILE:LINE` or an environment variable; null for a default."""
    locked: str | None
    """The site's reason why users may not set it."""


class ConfigFileObject(TypedDict):
    """A config file that coach looked for."""

    path: str
    is_there: bool


class ConfigDocument(TypedDict):
    """The settings, each with its origin."""

    schema: Schema1
    cluster: str
    settings: list[SettingObject]
    files: list[ConfigFileObject]
    notes: list[str]
    """Settings without effect."""


class ProblemObject(TypedDict):
    """An error in a file."""

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
    """All errors in config files."""

    schema: Schema1
    files: list[ReportObject]


class DataDocument(TypedDict):
    """The directories of data sets, and the state of each set."""

    schema: Schema1
    datasets: list[Annotated[dict[str, Any], Place]]


class RunFixObject(TypedDict):
    """The fix that made a run."""

    rule: str
    title: str
    changes: dict[str, Any]


class RunFields(TypedDict):
    """One run. A field that its run.json lacks is null or empty."""

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
    """False for a local run on another machine: its state is the last one known."""
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
    """The paths of a run that are removed."""

    run_id: str
    run_dir: str
    state: str | None
    size_bytes: int | None
    paths: list[str]


class Leftover(TypedDict):
    """A path that belongs to no run."""

    path: str
    what: str
    size_bytes: int | None


class KeptRun(TypedDict):
    """A run that stays, and the reason."""

    run_id: str
    because: str


class CleanDocument(TypedDict):
    """The result, or the plan, of `coach runs clean`."""

    schema: Schema1
    is_removed: bool
    removed_bytes: int
    size_bytes: int
    runs: list[Removal]
    leftovers: list[Leftover]
    kept: list[KeptRun]
    problems: list[str]
