"""Makes squeue's answer from rows, with the separators of the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from coach.sources.io import Query

_COLUMNS = [
    "job_id",
    "user",
    "state",
    "reason",
    "partition",
    "nodes",
    "num_nodes",
    "num_cpus",
    "num_tasks",
    "tres_alloc",
    "per_job",
    "per_node",
    "per_task",
    "used",
    "left",
    "limit",
    "submit",
    "start",
    "end",
    "account",
    "qos",
    "exit_code",
    "work_dir",
    "name",
]
_DEFAULTS = {
    "state": "RUNNING",
    "reason": "None",
    "partition": "gpu",
    "nodes": "node1",
    "num_nodes": "1",
    "num_cpus": "2",
    "num_tasks": "1",
    "used": "0:05",
    "left": "9:55",
    "limit": "10:00",
    "submit": "2026-11-21T12:00:00",
    "start": "2026-11-21T12:00:01",
    "end": "2026-11-21T12:10:01",
    "account": "(null)",
    "qos": "normal",
    "exit_code": "0",
    "work_dir": "/tmp",
    "name": "job",
}


_OWN_COLUMNS = (
    *_COLUMNS[:-1],
    *("raw_job_id", "dependency", "reservation", "priority", "scheduled_nodes", "num_requeues"),
    *("command", "stdout", "stderr", "name"),
)


def squeue(*rows: Mapping[str, str]) -> Callable[[Query], bytes]:
    """Rows need `job_id` and `user`; other fields have a default or are not set."""
    return _answering(_COLUMNS, rows)


def own_squeue(*rows: Mapping[str, str]) -> Callable[[Query], bytes]:
    """The same rows as in the user's own queue: with script and paths."""
    return _answering(_OWN_COLUMNS, rows)


def _answering(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> Callable[[Query], bytes]:
    def answer(query: Query) -> bytes:
        records = []
        for row in rows:
            values = {**_DEFAULTS, **row}
            fields = [values.get(column, "N/A") for column in columns]
            records.append(query.separator.join(fields) + query.record_end + "\n")
        return "".join(records).encode("utf-8", "surrogateescape")

    return answer
