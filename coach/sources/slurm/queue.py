"""Read the queue: the query for squeue, and the parser of its answer.

One request serves every screen. `-t all` adds the jobs that ended within MinJobAge, at no cost for the
controller: squeue itself filters states. GPUs are read from five columns: without slurmdbd the allocated TRES
contain no GPUs, and requests by --gpus, --gres and the other options are in different columns. All functions
are pure, except that each query has random separators.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping, Sequence
from sys import intern

from coach.model.slurm.cluster import Job, JobDraft, as_job, is_final
from coach.sources.io import Query, new_separator
from coach.sources.slurm.gres import count_gpus, has_parts_of_gpus
from coach.sources.slurm.text import (
    BadRow,
    Words,
    columns_option,
    is_job_id,
    is_torn,
    optional,
    parse_count,
    parse_duration,
    parse_exit_code,
    parse_time,
    parse_whole,
    split_records,
)

_FIRST_FIELDS = (
    *(
        "jobarrayid",
        "username",
        "state",
        "reason",
        "partition",
        "nodelist",
        "numnodes",
        "numcpus",
        "numtasks",
    ),
    *("tres-alloc", "tres-per-job", "tres-per-node", "tres-per-task"),
    *("timeused", "timeleft", "timelimit", "submittime", "starttime", "endtime"),
    *("account", "qos", "exit_code", "workdir"),
)
_MORE_FIELDS = ("jobid", "dependency", "reservation", "prioritylong", "schednodes", "restartcnt")
_SOCKET_FIELDS = ("tres-per-socket", "sockets")
_OWN_FIELDS = ("command", "stdout", "stderr")
_ALL_JOBS = (*_FIRST_FIELDS, *_MORE_FIELDS, *_SOCKET_FIELDS, "name")
_OWN_JOBS = (*_FIRST_FIELDS, *_MORE_FIELDS, *_SOCKET_FIELDS, *_OWN_FIELDS, "name")
_NUM_FIRST, _NUM_OLD = len(_FIRST_FIELDS), len(_FIRST_FIELDS) + len(_MORE_FIELDS)
_GAPS = {
    len(_OWN_JOBS) - num_missing: (place, num_missing)
    for place, num_missing in (
        (0, 0),
        (len(_ALL_JOBS) - 1, len(_OWN_FIELDS)),
        (_NUM_OLD, len(_SOCKET_FIELDS)),
        (_NUM_OLD, len(_SOCKET_FIELDS) + len(_OWN_FIELDS)),
        (_NUM_FIRST, len(_OWN_JOBS) - _NUM_FIRST - 1),
    )
}
"""Number of fields of a record → the place at which it lacks fields, and their number. Old recordings have
shorter records."""

_ANY_NUMBER = "*"
"""squeue's sign for a number of sockets that the job did not request."""
_MAX_RECORD_BYTES = 1 << 20
"""A hundred times the longest record of one job."""
_STATE = re.compile(r"^[A-Z][A-Z_]*$")
_CLUSTER = re.compile(r"^CLUSTER: (\S+)(?:\n+|$)")


def jobs_query(user: str | None, cluster: str | None = None) -> Query:
    """The jobs of all users in all partitions, or those of one user. The controller filters users, so one
    user's jobs are cheap in a queue of any length.

    `cluster` is the name of another cluster in the accounting database.
    """
    separator, record_end = new_separator(), new_separator()
    columns = columns_option(_ALL_JOBS if user is None else _OWN_JOBS, separator, record_end)
    whose = () if user is None else ("-u", user)
    where = () if cluster is None else (f"-M{cluster}",)
    argv = ("squeue", *where, "-h", "-a", "-t", "all", "--noconvert", *whose, "-O", columns)
    return Query("jobs" if cluster is None else f"jobs {cluster}", argv, separator, record_end)


def jobs_by_id_query(job_ids: Sequence[str]) -> Query:
    """These jobs of any user, with the paths of their output."""
    separator, record_end = new_separator(), new_separator()
    columns = columns_option(
        [f"{column}:=,userid" if column == "username" else column for column in _OWN_JOBS],
        *(separator, record_end),
    )
    which = ",".join(job_ids)
    argv = ("squeue", "-h", "-a", "-t", "all", "--noconvert", "-j", which, "-O", columns)
    return Query(f"job-files {which}", argv, separator, record_end)


def parse_jobs(
    text: str, separator: str, record_end: str, cluster: str | None = None
) -> tuple[tuple[Job, ...], int]:
    """(jobs, number of malformed records). `cluster` is the cluster that the query named."""
    reader = JobsReader(separator, record_end, cluster=cluster)
    reader.take(text)
    return tuple(reader.jobs), reader.num_bad


class JobsReader:
    """Parses the jobs of an answer, whole or in pieces.

    A job that has not changed since `known` is the same object as there: two answers about a long queue share
    most of their rows.
    """

    def __init__(
        self,
        separator: str,
        record_end: str,
        known: Mapping[str, Job] | None = None,
        *,
        cluster: str | None = None,
    ) -> None:
        self.jobs: list[Job] = []
        self.num_bad = 0
        """Number of malformed records."""
        self._separator = separator
        self._record_end = record_end
        self._known = known or {}
        self._rows = _RowReader(cluster)
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Parse the records that the piece completes. Raises OSError for a record without an end."""
        told, end = self._rest + piece, self._record_end.encode()
        at = told.rfind(end)
        if at < 0:
            if len(told) > _MAX_RECORD_BYTES:
                raise OSError(errno.EFBIG, "printed too much for one job, and was ended")
            self._rest = told
            return
        whole, self._rest = told[: at + len(end)], told[at + len(end) :]
        self.take(whole.decode("utf-8", "surrogateescape"))

    @property
    def is_torn(self) -> bool:
        """True if the pieces end within a record."""
        return is_torn(self._rest.decode("utf-8", "surrogateescape"), self._record_end)

    def take(self, text: str) -> None:
        """Parse complete records."""
        known, rows, jobs = self._known, self._rows, self.jobs
        for record in split_records(text, self._separator, self._record_end):
            if record[0].startswith("CLUSTER: "):
                rows.take_headings(record)
                if record == [""]:
                    continue
            try:
                job = rows.read(record)
            except BadRow:
                self.num_bad += 1
                continue
            before = known.get(job.job_id)
            jobs.append(before if before is not None and before == job else job)


class _RowReader:
    """Parses the rows of one answer. It keeps the value of each word, because tens of thousands of rows
    repeat few words."""

    def __init__(self, cluster: str | None) -> None:
        self._cluster = cluster
        self._states = Words(_parse_state)
        self._users = Words(_parse_user)
        self._texts = Words(optional)
        self._counts = Words(parse_count)
        self._wholes = Words(parse_whole)
        self._durations = Words(parse_duration)
        self._times = Words(parse_time)
        self._gpus = Words(_count_job_gpus)

    def take_headings(self, record: list[str]) -> None:
        """With -M, some versions print the cluster's name before its first row."""
        while (heading := _CLUSTER.match(record[0])) is not None:
            self._cluster = heading[1]
            record[0] = record[0][heading.end() :]

    def read(self, record: list[str]) -> Job:
        """Raises BadRow if the record is not a job."""
        gap = _GAPS.get(len(record))
        if gap is None:
            raise BadRow(f"{len(record)} fields")
        place, num_missing = gap
        record[place:place] = [""] * num_missing
        # In the order of _FIRST_FIELDS, _MORE_FIELDS, _SOCKET_FIELDS and _OWN_FIELDS.
        job_id, user, state, reason, partition, nodes, num_nodes, num_cpus, num_tasks = record[:9]
        allocated, per_job, per_node, per_task, used, left, limit, submit, start, end = record[9:19]
        account, qos, exit_code, work_dir, raw_job_id, dependency, reservation = record[19:26]
        priority, scheduled_nodes, num_requeues, per_socket, sockets = record[26:31]
        command, stdout, stderr, name = record[31:]
        texts, times, durations = self._texts, self._times, self._durations
        known_state, has_ended = self._states[state]
        if not is_job_id(job_id) or not user:
            raise BadRow(f"not a job: {job_id!r}")
        draft = JobDraft(
            job_id=job_id,
            name=name,
            user=self._users[user],
            state=known_state,
            reason=texts[reason],
            partition=intern(partition),
            nodes=texts[nodes],
            num_nodes=self._counts[num_nodes],
            num_cpus=self._counts[num_cpus],
            num_gpus=self._gpus[
                allocated, per_job, per_node, per_task, per_socket, num_nodes, num_tasks, sockets
            ],
            time_used_s=durations[used],
            # squeue continues to count after the end.
            time_left_s=None if has_ended else durations[left],
            time_limit_s=durations[limit],
            submit_time_s=times[submit],
            start_time_s=times[start],
            end_time_s=times[end],
            account=texts[account],
            qos=texts[qos],
            work_dir=texts[work_dir],
            exit_code=_parse_job_exit_code(exit_code, state) if has_ended else None,
            raw_job_id=job_id if raw_job_id == job_id else texts[raw_job_id],
            dependency=texts[dependency],
            reservation=texts[reservation],
            priority=self._wholes[priority],
            scheduled_nodes=texts[scheduled_nodes],
            num_requeues=self._wholes[num_requeues],
            command=texts[command],
            stdout=texts[stdout],
            stderr=texts[stderr],
            cluster=self._cluster,
        )
        return as_job(draft)


def _parse_state(text: str) -> tuple[str, bool]:
    """(state, True if a job in it has ended). Raises BadRow if the text is no state."""
    if not _STATE.match(text):
        raise BadRow(f"not a state: {text!r}")
    return intern(text), is_final(text)


def _parse_user(text: str) -> str:
    """The name, with which the uid may stand. Slurm calls every user `nobody` who has no name on this
    machine: the uid then tells them apart."""
    name, _, uid = text.partition("=")
    return intern(uid if name == "nobody" and uid not in ("", "65534") else name)


def _parse_job_exit_code(text: str, state: str) -> int | None:
    """The exit status. For a job that did not complete, 0 becomes None: Slurm reports it also if the script
    never started, or was ended from outside."""
    code = parse_exit_code(text)
    return None if code == 0 and state != "COMPLETED" else code


def _count_job_gpus(words: tuple[str, str, str, str, str, str, str, str]) -> int | None:
    """GPUs of a whole job: the allocated ones if the site accounts for GPUs, else the requested ones per job,
    node, task or socket; 0 if none were requested, None if their number is not known, as of shards."""
    allocated, per_job, per_node, per_task, per_socket, num_nodes, num_tasks, sockets = words
    for told, multipliers in (
        (allocated, ()),
        (per_job, ()),
        (per_node, (num_nodes,)),
        (per_task, (num_tasks,)),
        (per_socket, (sockets, num_nodes)),
    ):
        count = count_gpus(told) if "gpu" in told else None
        if count is None:
            continue
        for multiplier in multipliers:
            factor = None if multiplier == _ANY_NUMBER else parse_count(multiplier)
            if factor is None:
                return None
            count *= factor
        return count
    has_parts = any(map(has_parts_of_gpus, (allocated, per_job, per_node, per_task, per_socket)))
    return None if has_parts else 0
