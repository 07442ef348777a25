"""Documents of launch, recipes, drill, workshop and cohort."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from coach.model.json_types import Schema1, Together
from coach.model.launching.launch import Scalar
from coach.model.teaching.rehearsal import Share


class LaunchedRun(TypedDict):
    """One run that was launched."""

    run_id: str
    run_dir: str
    job_id: str | None
    state: str | None
    """Slurm's word; with `--wait` the final state."""


class LaunchDocument(TypedDict):
    """The launched runs: the first, and all of them. With `--as-is` a batch file makes no run."""

    schema: Schema1
    run_id: str | None
    run_dir: str | None
    job_id: str | None
    state: str | None
    group_id: NotRequired[str]
    """Only for a sweep."""
    runs: list[LaunchedRun]


class ParameterObject(TypedDict):
    """A parameter of a recipe."""

    name: str
    type: Annotated[str, Literal["int", "float", "str", "bool"]]
    default: Scalar
    unit: str | None
    above: float | None
    """Its value must be greater than this."""
    min: float | None
    max: float | None
    choices: list[Scalar]
    usual: list[float] | None
    """From, to: a value outside gets a warning."""
    help: str


class SweepObject(TypedDict):
    """The values that a recipe sweeps over."""

    parameter: str
    values: list[Scalar]
    divides: NotRequired[str]
    """The parameter with the total that the ranks of a sweep over ranks divide."""


class RecipeObject(TypedDict):
    """One recipe."""

    name: str
    title: str
    summary: str
    trainer: str
    devices: Annotated[str, Literal["single", "multiple", "one process"]]
    key: str | None
    time_limit_s: int | None
    torch: str | None
    requires: list[str]
    teaches: str | None
    expect: str | None
    duration: str | None
    gpu_hours: float | None
    watch: list[str]
    next: str | None
    expects: list[str]
    uneven_by_design: bool
    remedies: dict[str, dict[str, Scalar]]
    sweep: SweepObject | None
    is_own: bool
    """True for a user's own recipe."""
    path: str
    parameters: list[ParameterObject]


class RecipePage(RecipeObject):
    """One recipe with its lesson."""

    previous: str | None
    """The previous step of the ladder."""
    lesson: str | None
    diff: list[str]
    """The difference between its trainer and that step's."""


class RecipesDocument(TypedDict):
    """The recipes."""

    schema: Schema1
    recipes: list[RecipeObject]


class RecipeDocument(TypedDict):
    """One recipe with all its fields."""

    schema: Schema1
    recipes: list[RecipePage]


class DrillObject(TypedDict):
    """A drill as a learner may see it."""

    name: str
    planted: str | None
    """The cause; null until it is solved or given up."""
    run_dir: str | None
    """The run directory of its newest run."""
    diagnosed: None
    seconds_to_finding: None
    fixed: None
    throughput_ratio: None
    skipped: str | None
    """The reason why it cannot be launched here."""
    is_solved: bool | None
    """Null before the first answer that counts."""
    spoiled: str | None
    """How its newest run ended, if the planted fault did not end it: its answer does not count."""


class ListedDrill(DrillObject):
    """A drill in the list."""

    title: str


class DrillsDocument(TypedDict):
    """The drills."""

    schema: Schema1
    drills: list[ListedDrill]


class DrillAnswerDocument(TypedDict):
    """The result of an answer."""

    schema: Schema1
    drills: list[DrillObject]


class DrillResultObject(TypedDict):
    """A drill that was run, judged and fixed."""

    name: str
    planted: str
    run_dir: str | None
    diagnosed: bool | None
    seconds_to_finding: float | None
    fixed: bool | None
    throughput_ratio: float | None
    throughput_ratio_noise: float | None
    skipped: str | None
    found: str | None
    mended_by: str | None
    missed: list[str]
    """The requirements that it missed; empty if it passed."""


class DrillResultsDocument(TypedDict):
    """With `--all`: every drill."""

    schema: Schema1
    drills: list[DrillResultObject]


class FoundObject(TypedDict):
    """The primary finding of a run."""

    rule: str
    name: str
    cause: str


class RehearsedObject(TypedDict):
    """The result of one of the day's recipes. Values that were not reached are null."""

    name: str
    run_id: str | None
    run_dir: str | None
    job_id: str | None
    state: str | None
    queued_s: float | None
    started_time_s: float | None
    first_step_s: float | None
    ended_time_s: float | None
    seconds: float | None
    gpu_seconds: float | None
    finding: FoundObject | None
    problem: str | None
    """The problem; null if all is well."""
    hint: str | None
    warnings: list[str]


class PlaceRoom(TypedDict):
    """The machines that the learners share."""

    name: str
    num_nodes: int
    num_gpus: int


class _ShareAlso(TypedDict):
    total_s: float | None


class FitObject(TypedDict):
    """Whether all learners can finish within the day."""

    learners: int
    fits: bool | None
    """Null if unknown."""
    least_s: float
    most_s: float | None
    available_s: float
    places: list[PlaceRoom]
    recipes: list[Annotated[dict[str, Any], Together("ShareRow", (Share, _ShareAlso))]]


class WorkshopDocument(TypedDict):
    """The rehearsal of a day."""

    schema: Schema1
    recipes: list[RehearsedObject]
    fit: FitObject


class OneSharedRun(TypedDict):
    """The state of a run, as the run shared it."""

    run_id: str
    job_id: str | None
    recipe: str | None
    drill: str | None
    state: str | None
    samples_per_s: float | None
    step: int | None
    """The last step that its first rank recorded."""
    max_steps: int | None
    is_judged: bool
    rule: str | None
    severity: Annotated[str | None, Literal["info", "warning", "critical", None]]
    is_solved: bool | None
    is_spoiled: bool
    """True for the run of a drill that ended otherwise than by its planted fault."""
    pending_s: float | None
    silent_s: float | None
    stalled_s: float | None
    """Seconds since the last step of a run that makes no progress; null for any other run."""
    created_time_s: float | None
    started_time_s: float | None
    last_step_time_s: float | None
    ended_time_s: float | None
    updated_time_s: float | None


class SharedRun(OneSharedRun):
    """A person's newest run of a recipe or drill, and the best one."""

    best: OneSharedRun
    """The newest itself if no earlier run is better: one that completed, or solved the drill."""


class CountObject(TypedDict):
    """How many people stand where in one recipe or drill. Each person counts once."""

    recipe: str | None
    drill: str | None
    num_finished: int
    """People with a completed run, or a solved drill."""
    num_active: int
    """The newest run waits or runs, or the drill is open."""
    num_failed: int
    """The newest run ended otherwise, or the drill was given up."""


class PersonObject(TypedDict):
    """One person of the course."""

    user: str
    uid: int | None
    is_expected: bool | None
    """True if the roster or the group lists the person; null if there is neither."""
    is_pending_long: bool
    runs: list[SharedRun]


class CohortDocument(TypedDict):
    """The state of everybody in a course."""

    schema: Schema1
    people: list[PersonObject]
    bad_files: list[str]
    num_left_out: int
    counts: list[CountObject]
