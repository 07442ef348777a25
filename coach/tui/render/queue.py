"""The queue as rows: arrays folded, the user's jobs first and marked by a sign, the progress of a training,
and in a few words why a job waits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from coach.analysis.query.language import Order, in_order
from coach.analysis.queueing.arrays import FoldedJob, fold_rows, group_id, is_part, parse_task_ids, unfold
from coach.analysis.queueing.pending_reasons import explain_job
from coach.model.errors import OTHERS_JOBS, hidden_by_site
from coach.model.slurm.cluster import Job
from coach.model.training.other_machine import last_word, place
from coach.render.severity import job_state_tone
from coach.render.text import UNKNOWN, KeyLabel, Tone, age, clock, printable, short_id, whole, whole_words
from coach.tui.render.array_row import ArrayOf, array_cells, array_verdict, nothing_of_array
from coach.tui.render.pending import short_reason, start_words
from coach.tui.render.table import Cell, Column, LazyRows, Row, Rows, natural, searchable
from coach.tui.render.training import TrainingOf, nothing_of, training_cells

_MORE_COLUMNS = (
    Column("account", "ACCOUNT", 10, grow=1, is_extra=True),
    Column("qos", "QOS", 8, grow=1, is_extra=True),
    Column("class", "CLASS", 6, is_extra=True),
    Column("cpus", "CPUS", 6, align="right", is_extra=True),
    Column("limit", "LIMIT", 10, align="right", is_extra=True),
    Column("wait", "WAITED", 10, align="right", is_extra=True),
    Column("priority", "PRIORITY", 10, align="right", is_extra=True),
    Column("submit", "SUBMITTED", 12, align="right", is_extra=True),
)
"""Columns that are shown only if the user chooses them."""
_TRAINING_COLUMNS = (
    Column("progress", "PROGRESS", 9, grow=2, is_extra=True),
    Column("to_go", "TO GO", 8, align="right", is_extra=True),
    Column("loss", "LOSS", 10, grow=2, is_extra=True),
    Column("rate", "SAMPLES/S", 9, align="right", is_extra=True),
    Column("use", "USE", 8, grow=1, is_extra=True),
    Column("memory", "MEMORY", 11, align="right", is_extra=True),
    Column("power", "POWER", 9, align="right", is_extra=True),
    Column("short_name", "NAME", 8, grow=4, is_extra=True),
    Column("doing", "PROGRESS", 9, grow=2, is_extra=True),
    Column("why", "FINDING, WHY", 13, grow=8, is_extra=True),
)
"""Columns for followed trainings. `short_name` is for narrow lists; `doing` is the progress, the start of a
waiting job, or how long a job without a known progress has run."""
JOB_COLUMNS = (
    Column("own", "", 1),
    Column("job_id", "JOB ID", 9, grow=2),
    Column("name", "NAME", 10, grow=4),
    Column("user", "USER", 7, grow=1),
    Column("state", "STATE", 9, grow=1),
    Column("reason", "REASON", 14, grow=3, priority=1),
    Column("partition", "PARTITION", 9, priority=4),
    Column("nodes", "NODES", 10, grow=2, priority=3),
    Column("gpus", "GPUS", 4, align="right"),
    Column("used", "USED", 10, align="right", priority=2),
    Column("left", "LEFT/START", 10, align="right"),
    *_TRAINING_COLUMNS,
    *_MORE_COLUMNS,
)
_OWN_LAYOUTS = (
    (0, "job_id short_name state doing why"),
    (79, "job_id short_name state doing loss use why"),
    (107, "job_id name state progress loss rate use left why"),
    (128, "job_id name state progress loss rate use left nodes gpus why"),
    (176, "job_id name state progress to_go loss rate use memory power left partition nodes gpus why"),
)
_ALL_LAYOUTS = (
    (0, "own job_id state doing why"),
    (78, "own job_id short_name user state doing why"),
    (93, "own job_id short_name user state doing loss why"),
    (100, "own job_id short_name user state doing loss use why"),
    (118, "own job_id name user state doing loss use gpus why"),
    (133, "own job_id name user state progress loss rate use gpus left why"),
    (164, "own job_id name user state progress loss rate use memory partition nodes gpus left why"),
)
"""(Least width, columns) for lists with followed trainings. The last columns are dropped first."""


def training_columns(width: int, *, are_all_shown: bool, has_use: bool = True) -> tuple[str, ...]:
    """The columns for a list of trainings of this width. Without a measured use of devices, the column of the
    use leaves its room to the names."""
    layouts = _ALL_LAYOUTS if are_all_shown else _OWN_LAYOUTS
    names = [names for least, names in layouts if width >= least][-1].split()
    if has_use or "use" not in names:
        return tuple(names)
    return tuple("name" if name == "short_name" else name for name in names if name != "use")


_STATE_ORDER = {"RUNNING": 0, "COMPLETING": 1, "CONFIGURING": 1, "SUSPENDED": 2, "PENDING": 3}
_CODES = {
    "RUNNING": "R",
    "PENDING": "PD",
    "COMPLETING": "CG",
    "CONFIGURING": "CF",
    "SUSPENDED": "S",
    "COMPLETED": "CD",
    "FAILED": "F",
    "CANCELLED": "CA",
    "TIMEOUT": "TO",
    "OUT_OF_MEMORY": "OOM",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "DEADLINE": "DL",
    "BOOT_FAIL": "BF",
}
"""squeue's short state names, for the count of an array's tasks in each state."""


_OTHERS_HIDDEN = hidden_by_site(OTHERS_JOBS)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A row of one task, below the row of its unfolded array."""

    job: Job


@dataclass(frozen=True, slots=True)
class UnfoldedRow:
    """The row of an unfolded array, above its tasks."""

    folded: FoldedJob


QueueRow = Job | FoldedJob | UnfoldedRow | TaskRow


def is_own(job: Job, user: str | None) -> bool:
    return user is not None and job.user == user


def job_of(row: QueueRow) -> Job:
    """The job of a row; for a folded array, one job that stands for all tasks."""
    if isinstance(row, Job):
        return row
    return row.folded.job if isinstance(row, UnfoldedRow) else row.job


def folded_of(row: QueueRow) -> FoldedJob | None:
    """The array of a row; None for the row of one job or task."""
    return row.folded if isinstance(row, UnfoldedRow) else row if isinstance(row, FoldedJob) else None


def row_key(row: QueueRow) -> str:
    """The key of a row: the job id; for a folded array the array's id, which stays the same while its tasks
    start and end."""
    job = job_of(row)
    return group_id(job.job_id) if folded_of(row) is not None else job.job_id


def target_of(row: QueueRow, jobs: Iterable[Job]) -> str | None:
    """The name that means exactly the jobs of a row: the array's id only if no task of `jobs` is hidden.

    None if Slurm did not print all of the row's tasks, or if no expression names exactly these parts.
    """
    job = job_of(row)
    if not is_part(job.job_id) and isinstance(row, Job | TaskRow):
        return job.job_id
    group = group_id(job.job_id)
    if (folded := folded_of(row)) is not None:
        of_group = {
            each.job_id
            for each in jobs
            if (each.cluster, each.user) == (job.cluster, job.user) and group_id(each.job_id) == group
        }
        if of_group <= {part.job_id for part in folded.parts}:
            return group
    ids = parse_task_ids(job.job_id)
    is_exact = not ids.is_cut if ids is not None else "+" in job.job_id and "[" not in job.job_id
    return job.job_id if is_exact else None


def in_place(jobs: Iterable[Job], user: str | None) -> list[Job]:
    """Sort jobs: the user's first, then running before waiting, newest first."""

    def number(job: Job) -> int:
        return int(job.job_id[:18])

    def rank(job: Job) -> int:
        return _STATE_ORDER.get(job.state, 4) + (0 if user is not None and job.user == user else 10)

    ordered = list(jobs)
    if all(job.job_id.isdecimal() for job in ordered):
        ordered.sort(key=number)  # a number takes a third of the memory of `natural`'s key
    else:
        ordered.sort(key=lambda job: natural(job.job_id))
    ordered.sort(key=lambda job: -(job.submit_time_s or 0.0))
    ordered.sort(key=rank)
    return ordered


def arranged(
    jobs: Iterable[Job], unfolded: Collection[str] = (), orders: Sequence[Order[Job]] = ()
) -> list[QueueRow]:
    """The rows of these jobs, sorted by `orders`; ties keep their order. `unfolded` are the keys of unfolded
    rows."""
    rows = in_order(fold_rows(jobs), orders, lambda row: row if isinstance(row, Job) else row.job)
    if not unfolded:
        return [*rows]
    shown: list[QueueRow] = []
    for row in rows:
        if isinstance(row, FoldedJob) and row_key(row) in unfolded:
            shown += [UnfoldedRow(row), *(TaskRow(job) for job in unfold(row))]
        else:
            shown.append(row)
    return shown


@dataclass(frozen=True, slots=True)
class Queue:
    """The queue as shown: its rows, their keys, and the number of jobs that they stand for."""

    rows: Sequence[QueueRow] = ()
    keys: Sequence[str] = ()
    num_own: int = 0
    num_found: int = 0

    def row(self, key: str | None) -> QueueRow | None:
        return self.rows[self.keys.index(key)] if key is not None and key in self.keys else None


def queue_of(
    jobs: Sequence[Job],
    user: str | None,
    find: Callable[[Sequence[Job]], Sequence[Job]],
    unfolded: Collection[str] = (),
    orders: Sequence[Order[Job]] = (),
) -> Queue:
    """The queue of the jobs that `find` selects from jobs that are already sorted."""
    found = find(jobs)
    rows = arranged(found, unfolded, orders)
    num_own = sum(job.user == user for job in jobs) if user is not None else 0
    keys = [row.job_id if isinstance(row, Job) else row_key(row) for row in rows]
    return Queue(rows, keys, num_own, len(found))


def job_rows(
    queue: Queue,
    user: str | None,
    now_s: float | None = None,
    training_of: TrainingOf = nothing_of,
    array_of: ArrayOf = nothing_of_array,
) -> Rows:
    """The rows; each is made when it comes into sight. Ages are counted up to `now_s`."""

    def row_of(row: QueueRow) -> Row:
        job = job_of(row)
        if (folded := folded_of(row)) is not None:
            so_far = array_of(folded)
            if folded.num_tasks > 1 or (so_far is not None and so_far.num_tasks > 1):
                num_tasks = max(folded.num_tasks, so_far.num_tasks if so_far is not None else 0)
                verdict = array_verdict(folded, so_far, _counted(folded, ""))
                return _row(row, user, now_s, array_cells(so_far, now_s), verdict, num_tasks)
        training, told = training_of(job)
        cells = training_cells(training, is_running=job.state == "RUNNING", now_s=now_s)
        return _row(row, user, now_s, cells, told)

    return LazyRows(queue.keys, queue.rows, row_of)


def _row(
    row: QueueRow,
    user: str | None,
    now_s: float | None,
    cells: tuple[Cell, ...],
    verdict: Cell | None,
    num_tasks: int = 1,
) -> Row:
    """`num_tasks` also counts tasks of a sweep that have left the queue."""
    job = job_of(row)
    own = is_own(job, user)
    name, said_by = printable(job.name), printable(job.user)
    state, reason, tone = state_words(job, now_s)
    reason, reason_tone = _reason(row, reason)
    sign = {UnfoldedRow: "▾ ", TaskRow: "└ "}.get(type(row), "")
    job_id, partition = sign + short_id(job.job_id), printable(job.partition)
    short = _short_id_of_array(job_id, num_tasks)
    nodes = printable(job.nodes) if job.nodes else "" if job.num_nodes is None else f"({job.num_nodes})"
    left = clock(job.time_left_s) if job.state != "PENDING" else UNKNOWN
    start = start_words(job, now_s) if now_s is not None else ""
    why = verdict or Cell(reason, reason_tone, fill=partial(_reason_in, reason))
    return Row(
        row_key(row),
        (
            Cell("▸" if own else "", "accent"),
            Cell(job_id, "strong" if own else "", fill=lambda width: _id_in(job_id, short, width)),
            Cell(name),
            Cell(said_by, "accent" if own else ""),
            Cell(state, tone),
            why,
            Cell(partition),
            Cell(nodes or UNKNOWN),
            Cell(whole(job.num_gpus)),
            Cell(clock(job.time_used_s)),
            Cell(start, fill=partial(_start_in, start)) if start else Cell(left),
            *cells,
            Cell(name),
            _doing(job, start, cells[0], num_tasks),
            why,
            *_more_cells(job, now_s),
        ),
        searchable(
            printable(job.job_id), name, said_by, state, reason, printable(job.reason or ""), partition, nodes
        ),
    )


def _short_id_of_array(job_id: str, num_tasks: int) -> str:
    """`17 ×8` for all tasks of array 17; the job id itself for one job, or the parts of one."""
    array, underscore, tasks = job_id.partition("_")
    is_whole = underscore and num_tasks > 1 and ("[" in tasks or tasks.isdecimal())
    return f"{array} ×{num_tasks}" if is_whole else job_id


def _id_in(job_id: str, short: str, width: int) -> str:
    """The job id. A narrow column, or a row of one task that stands for its whole sweep, shows the short
    one."""
    is_one_of_many = short != job_id and "[" not in job_id
    return short if is_one_of_many or len(job_id) > width else job_id


def _doing(job: Job, start: str, progress: Cell, num_tasks: int) -> Cell:
    if start:
        return Cell(start, fill=partial(_start_in, start))
    if progress.text != UNKNOWN or job.state != "RUNNING" or job.time_used_s is None or num_tasks > 1:
        return progress
    run = f"for {age(job.time_used_s)}"
    return Cell(run, "muted", fill=lambda width: run if len(run) <= width else run.removeprefix("for "))


_LONGEST_START = "~in 119 min"


def _start_in(start: str, width: int) -> str:
    """The start of a waiting job. In a narrow column the `in` is left out, for all rows alike."""
    return start if width >= len(_LONGEST_START) else start.replace("~in ", "~")


def _reason_in(reason: str, width: int) -> str:
    """Why a job waits. In a narrow column the sign is left out if the words then fit, but not that of a job
    that never starts."""
    sign, _, words = reason.partition(" ")
    is_sign = len(sign) == 1 and not sign.isalnum() and sign != "✖"
    return words if is_sign and len(words) <= width < len(reason) else whole_words(reason, width)


def _reason(row: QueueRow, said: str) -> tuple[str, Tone]:
    """Why a job waits, or the number of tasks in each state. `said` is Slurm's reason."""
    job = job_of(row)
    reason, tone = short_reason(job) if job.state == "PENDING" and job.is_visible else (said, "muted")
    if (folded := folded_of(row)) is None:
        return reason, tone
    counted = _counted(folded, reason)
    return (f"✖ {counted}", "critical") if folded.num_failed else (counted, tone)


def _counted(folded: FoldedJob, reason: str) -> str:
    """If tasks are in different states, the number in each state, and why the waiting ones wait: `2 R 6 PD ·
    in line`."""
    if len(folded.states) < 2:
        return reason
    waiting = next((job for job in folded.parts if job.state == "PENDING"), None)
    why = short_reason(waiting)[0] if waiting is not None else reason
    counts = " ".join(f"{count} {_CODES.get(state, printable(state))}" for state, count in folded.states)
    return f"{counts} {why}".strip()


def state_words(job: Job, now_s: float | None) -> tuple[str, str, Tone]:
    """State, reason and tone. For a local run on another machine: the machine, and the last known state."""
    if job.is_visible:
        return printable(job.state), printable(job.reason or ""), job_state_tone(job.state)
    spoke_s = job.last_word_time_s
    since = age(now_s - spoke_s) if now_s is not None and spoke_s is not None else None
    return printable(place(job.host)), printable(last_word(job.state, since)), "muted"


def queue_title(
    queue: Queue,
    num_jobs: int | None,
    are_all_shown: bool,
    query: str,
    label: KeyLabel,
    *,
    are_others_hidden: bool = False,
) -> str:
    """For example `queue · 19 jobs, 3 yours · filter "ddp": 2 of 19`. `num_jobs` is None while coach has only
    the user's jobs."""
    if are_all_shown and are_others_hidden:
        title = f"queue · {queue.num_own:,} yours, {_OTHERS_HIDDEN}"
    elif are_all_shown and num_jobs is None:
        title = f"queue · {queue.num_own:,} yours, asking for everybody's…"
    elif are_all_shown:
        title = f"queue · {num_jobs:,} {'job' if num_jobs == 1 else 'jobs'}, {queue.num_own:,} yours"
    else:
        title = f"queue · {queue.num_own:,} yours ({label('all')} shows everybody's)"
    if not query:
        return title
    num_asked = num_jobs if are_all_shown and num_jobs is not None else queue.num_own
    return f'{title} · filter "{printable(query)}": {queue.num_found:,} of {num_asked:,}'


@dataclass(frozen=True, slots=True)
class EmptyBecause:
    """The facts that decide the text of an empty queue."""

    has_answer: bool
    are_all_shown: bool
    query: str = ""
    are_others_hidden: bool = False
    can_launch: bool = True
    """False if launches are not allowed."""
    is_recorded: bool = False
    has_queue: bool = True
    """False on a machine without Slurm."""
    is_failed_today: bool = False


def empty_queue_note(why: EmptyBecause, label: KeyLabel) -> str:
    """The text of an empty queue, and what the user can do. A queue that was not read has another text than
    an empty one."""
    if not why.has_answer:
        return "waiting for the first answer…"
    everybody = "" if why.are_all_shown or not why.has_queue else f"{label('all')}: everybody's"
    if why.is_failed_today or why.query:
        ended = f"{label('history')}: ended ones" if why.has_queue and not why.is_recorded else ""
        return _nothing_found(why, everybody, ended)
    if why.are_all_shown and why.are_others_hidden:
        return f"You have no jobs; {_OTHERS_HIDDEN}"
    launch = f"1: train a small model, {label('new_launch')}: launch yours" if why.can_launch else ""
    ways = ", ".join(filter(None, (launch, everybody)))
    return f"{_nothing_there(why)}. {ways}" if ways else _nothing_there(why)


def _nothing_found(why: EmptyBecause, everybody: str, ended: str) -> str:
    if why.is_failed_today:
        return "Nothing of yours ended badly within a day. Esc: all your jobs"
    if why.are_all_shown:
        return "No job matches the filter. Esc clears it"
    return ", ".join(filter(None, ("No job of yours matches. Esc clears the filter", everybody, ended)))


def _nothing_there(why: EmptyBecause) -> str:
    if why.is_recorded:
        return "The recording has no job here"
    if not why.has_queue:
        return "Nothing runs on this machine"
    return "The queue is empty" if why.are_all_shown else "You have no jobs"


def _more_cells(job: Job, now_s: float | None) -> tuple[Cell, ...]:
    """One cell for each of _MORE_COLUMNS. Times are counted up to `now_s`."""
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
