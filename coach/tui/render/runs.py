"""The list of runs as rows, newest first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from coach.analysis.jobs.belonging import is_job_of
from coach.analysis.judging.no_finding import Look, look_of, sign_of
from coach.analysis.teaching.withheld_findings import why_withheld
from coach.model.judging.finding import Diagnosis, Finding
from coach.model.slurm.cluster import Job, is_final
from coach.model.snapshot import TargetSnapshot
from coach.model.training.other_machine import place
from coach.model.training.run import Run, Submission
from coach.render.severity import job_state_tone, severity_sign, severity_tone
from coach.render.text import UNKNOWN, age, number, printable, short_id
from coach.tui.render.table import Cell, Column, Row, searchable

RUN_COLUMNS = (
    Column("mark", "", 1),
    Column("run", "RUN", 13, grow=3),
    Column("state", "STATE", 11),
    Column("recipe", "RECIPE", 10, priority=4, grow=1),
    Column("job", "JOB", 8, priority=2),
    Column("size", "SIZE", 9, priority=5),
    Column("lr", "LR", 7, align="right", priority=3),
    Column("rate", "SAMPLES/S", 9, align="right", priority=6),
    Column("age", "AGE", 7, align="right", priority=1),
    Column("finding", "FINDING", 19, grow=3),
    Column("parent", "CHILD OF", 13, priority=4),
)


def run_state(run: Run, job: Job | None, target: TargetSnapshot | None) -> str | None:
    """The run's state from the best source: its followed target, then the queue, then its own file."""
    if target is not None and target.state is not None:
        return target.state
    if job is not None:
        return job.state
    return run.state


def primary_finding(diagnosis: Diagnosis | None) -> Finding | None:
    return next(iter(diagnosis.findings), None) if diagnosis is not None else None


def run_rows(
    runs: Iterable[Run],
    jobs: Mapping[str, Job],
    targets: Mapping[str, TargetSnapshot],
    diagnoses: Mapping[str, Diagnosis],
    rates: Mapping[str, float],
    marked: Iterable[str],
    now_s: float,
) -> list[Row]:
    """One row per run. Throughput is `–` until the run has been read."""
    marks = set(marked)
    newest_first = sorted(runs, key=lambda run: (run.created_time_s or 0.0, run.run_id), reverse=True)
    rows = []
    for run in newest_first:
        job = jobs.get(run.job_id) if run.job_id else None
        job = job if job is not None and is_job_of(job, run) else None
        state = run_state(run, job, targets.get(run.run_id))
        diagnosis = diagnoses.get(run.run_id)
        rows.append(
            _row(run, state, diagnosis, rates.get(run.run_id), run.run_id in marks, now_s),
        )
    return rows


def _row(
    run: Run,
    state: str | None,
    diagnosis: Diagnosis | None,
    rate: float | None,
    is_marked: bool,
    now_s: float,
) -> Row:
    finding = primary_finding(diagnosis)
    if finding is not None:
        sign = severity_sign(finding.severity).text
        short, told = f"{sign} {printable(finding.name)}", f"{sign} {finding.rule} {printable(finding.name)}"
        verdict = Cell(
            told, severity_tone(finding.severity), lambda width: told if len(told) <= width else short
        )
    elif diagnosis is not None and (withheld := why_withheld(diagnosis)):
        verdict = Cell(withheld.because, "accent")
    else:
        look = look_of(diagnosis)
        verdict = Cell(f"{sign_of(look)} {look.value}", "good" if look is Look.HEALTHY else "muted")
    lr = run.parameters.get("lr")
    size = short_size(run)
    recipe, run_id = printable(run.recipe), printable(run.run_id)
    job = printable(run.job_id) if run.job_id and run.job_id != run.run_id else run.backend
    created = run.created_time_s
    return Row(
        run.run_id,
        (
            Cell("◆" if is_marked else "", "accent"),
            Cell(run_id, fill=lambda width: run_id if len(run_id) <= width else short_id(run_id)),
            _state_cell(run, state),
            Cell(recipe),
            Cell(job, "muted" if job == run.backend else ""),
            Cell(size),
            Cell(number(lr) if isinstance(lr, (int, float)) else UNKNOWN),
            Cell(number(rate)),
            Cell(age(now_s - created) if created is not None else UNKNOWN, "muted"),
            verdict,
            Cell(_belongs_to(run), "muted"),
        ),
        searchable(run_id, state, run.host, recipe, job, verdict.text, run.parent_run_id),
    )


def is_elsewhere(run: Run, state: str | None) -> bool:
    """True if the run continues on a machine that coach cannot observe from here."""
    return not run.is_visible and not is_final(state)


def _state_cell(run: Run, state: str | None) -> Cell:
    if is_elsewhere(run, state):
        return Cell(printable(place(run.host)), "muted")
    if state in (None, "PENDING") and run.submission is not None:
        # The column has no room for "never submitted"; the run's own page shows it.
        short = Submission.NOT_QUEUED if run.submission is Submission.NEVER else run.submission
        return Cell(short.words, "warning")
    return Cell(printable(state) if state else UNKNOWN, job_state_tone(state))


def _belongs_to(run: Run) -> str:
    """The run's parent, or its value in a sweep: `batch_size 64`."""
    if run.parent_run_id:
        return short_id(run.parent_run_id)
    return printable(f"{run.sweep.parameter} {run.sweep.value}") if run.sweep is not None else ""


def short_size(run: Run) -> str:
    """Nodes and ranks or GPUs: `2n 4gpu`, `1n 2cpu`."""
    nodes, gpus = run.resources.get("num_nodes"), run.num_gpus
    ranks = run.resources.get("nproc_per_node")
    if not isinstance(nodes, int):
        return UNKNOWN
    if gpus:
        return f"{nodes}n {gpus}gpu"
    return f"{nodes}n {nodes * ranks}cpu" if isinstance(ranks, int) else f"{nodes}n"
