"""What more can be shown of a job: the columns that are there for whom asks for them."""

from __future__ import annotations

from coach.analysis.queueing.pending_reasons import explain_job
from coach.model.slurm.cluster import Job
from coach.tui.render.table import Cell, Column
from coach.tui.render.text import UNKNOWN, age, clock, printable, whole

MORE_JOB_COLUMNS = (
    Column("account", "ACCOUNT", 10, grow=1, is_extra=True),
    Column("qos", "QOS", 8, grow=1, is_extra=True),
    Column("class", "CLASS", 6, is_extra=True),
    Column("cpus", "CPUS", 6, align="right", is_extra=True),
    Column("limit", "LIMIT", 10, align="right", is_extra=True),
    Column("wait", "WAITED", 10, align="right", is_extra=True),
    Column("priority", "PRIORITY", 10, align="right", is_extra=True),
    Column("submit", "SUBMITTED", 12, align="right", is_extra=True),
)


def more_cells(job: Job, now_s: float | None) -> tuple[Cell, ...]:
    """One for each of these columns. `now_s` is what times are counted to."""
    why = explain_job(job)
    submitted_s = now_s - job.submit_time_s if now_s is not None and job.submit_time_s is not None else None
    return (
        Cell(printable(job.account or UNKNOWN)),
        Cell(printable(job.qos or UNKNOWN)),
        Cell(why.kind.value if why is not None else UNKNOWN),
        Cell(whole(job.num_cpus)),
        Cell(clock(job.time_limit_s)),
        Cell(clock(submitted_s if why is not None else None)),
        Cell(whole(job.priority)),
        Cell(f"{age(submitted_s)} ago" if submitted_s is not None else UNKNOWN),
    )
