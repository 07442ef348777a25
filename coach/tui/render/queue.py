"""Jobs as rows: own ones first, and marked by a sign, not by colour alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from coach.model.cluster import Job
from coach.model.elsewhere import last_word, place
from coach.tui.render.runs import short_id
from coach.tui.render.severity import job_state_tone
from coach.tui.render.table import Cell, Column, LazyRows, Row, Rows, natural, searchable
from coach.tui.render.text import (
    UNKNOWN,
    Line,
    Span,
    Tone,
    age,
    clock,
    line,
    muted,
    plural,
    printable,
    strong,
    whole,
)

JOB_COLUMNS = (
    Column("own", "", 1),
    Column("job_id", "JOB ID", 9, grow=2),
    Column("name", "NAME", 12, grow=3),
    Column("user", "USER", 8, grow=1),
    Column("state", "STATE", 10),
    Column("reason", "REASON", 10, grow=2, priority=1),
    Column("partition", "PARTITION", 9, priority=4),
    Column("nodes", "NODES", 12, grow=2, priority=3),
    Column("gpus", "GPUS", 4, align="right"),
    Column("used", "USED", 10, align="right", priority=2),
    Column("left", "LEFT", 10, align="right"),
)

_STATE_ORDER = {"RUNNING": 0, "COMPLETING": 1, "CONFIGURING": 1, "SUSPENDED": 2, "PENDING": 3}


def is_own(job: Job, user: str | None) -> bool:
    return user is not None and job.user == user


def job_rows(jobs: Iterable[Job], user: str | None, are_all_shown: bool, now_s: float | None = None) -> Rows:
    """Rows of the queue: own first, then running before waiting, newest first. `now_s` is what ages are counted to."""
    shown = [job for job in jobs if are_all_shown or is_own(job, user)]
    shown.sort(
        key=lambda job: (
            not is_own(job, user),
            _STATE_ORDER.get(job.state, 4),
            -(job.submit_time_s or 0.0),
            natural(job.job_id),
        )
    )
    keys = [job.job_id for job in shown]
    return LazyRows(keys, shown, lambda job: _job_row(job, is_own(job, user), now_s))


def _job_row(job: Job, own: bool, now_s: float | None) -> Row:
    name, user = printable(job.name), printable(job.user)
    state, reason, tone = _state_of(job, now_s)
    job_id, partition = short_id(job.job_id), printable(job.partition)
    nodes = printable(job.nodes) if job.nodes else "" if job.num_nodes is None else f"({job.num_nodes})"
    return Row(
        job.job_id,
        (
            Cell("▸" if own else "", "accent"),
            Cell(job_id, "strong" if own else ""),
            Cell(name),
            Cell(user, "accent" if own else ""),
            Cell(state, tone),
            Cell(reason, "muted"),
            Cell(partition),
            Cell(nodes or UNKNOWN),
            Cell(whole(job.num_gpus)),
            Cell(clock(job.time_used_s)),
            Cell(clock(job.time_left_s)),
        ),
        searchable(printable(job.job_id), name, user, state, reason, partition, nodes),
    )


def _state_of(job: Job, now_s: float | None) -> tuple[str, str, Tone]:
    """State, reason and tone; for a local run of another machine where it is, and the last word known."""
    if job.is_visible:
        return printable(job.state), printable(job.reason or ""), job_state_tone(job.state)
    spoke_s = job.last_word_time_s
    since = age(now_s - spoke_s) if now_s is not None and spoke_s is not None else None
    return printable(place(job.host)), printable(last_word(job.state, since)), "muted"


def queue_title(
    jobs: Sequence[Job], user: str | None, are_all_shown: bool, query: str, num_shown: int
) -> str:
    """For example `queue · 3 own of 19 · filter "ddp": 2`."""
    num_own = sum(is_own(job, user) for job in jobs)
    if are_all_shown:
        title = f"queue · {plural(len(jobs), 'job')}, {num_own} yours"
    else:
        title = f"queue · {num_own} yours (a shows all {len(jobs)})"
    return f'{title} · filter "{printable(query)}": {num_shown}' if query else title


def empty_queue_note(has_answer: bool, are_all_shown: bool, query: str) -> str:
    """What an empty table says: nothing read is not the same as nothing there."""
    if not has_answer:
        return "waiting for the first answer…"
    if query:
        return "no job matches the filter; Esc clears it"
    return "the queue is empty" if are_all_shown else "no job of yours; a shows everybody's, 1 and 2 launch"


def job_lines(job: Job, now_s: float) -> list[Line]:
    """All that is known about one job, for the detail of a foreign one."""
    state, reason, _ = _state_of(job, now_s)
    facts: Mapping[str, str] = {
        "job id": printable(job.job_id),
        "name": printable(job.name),
        "user": printable(job.user),
        "account": printable(job.account or UNKNOWN),
        "qos": printable(job.qos or UNKNOWN),
        "partition": printable(job.partition),
        "state": state,
        "reason": reason or UNKNOWN,
        "nodes": printable(job.nodes or UNKNOWN),
        "num nodes": whole(job.num_nodes),
        "cpus": whole(job.num_cpus),
        "gpus": whole(job.num_gpus),
        "time used": clock(job.time_used_s),
        "time left": clock(job.time_left_s),
        "time limit": clock(job.time_limit_s),
        "submitted": _ago(job.submit_time_s, now_s),
        "started": _ago(job.start_time_s, now_s),
        "ended": _ago(job.end_time_s, now_s),
        "exit code": whole(job.exit_code),
        "work dir": printable(job.work_dir or UNKNOWN),
    }
    return [
        line(muted(f" {name:<12}"), strong(text) if name == "state" else Span(text))
        for name, text in facts.items()
    ]


def _ago(time_s: float | None, now_s: float) -> str:
    if time_s is None:
        return UNKNOWN
    if time_s > now_s:
        return f"in {clock(time_s - now_s)}"
    return f"{clock(now_s - time_s)} ago"
