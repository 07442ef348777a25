from __future__ import annotations

import pytest

from coach.model.errors import UserError
from coach.model.reading import JobList, NodeList, PartitionList
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query
from coach.sources.slurm.client import (
    FRESH_INTERVAL_S,
    MAX_STRETCH,
    PARTITIONS_INTERVAL_S,
    JobsSource,
    NodesSource,
    read_partitions_and_nodes,
)
from tests.sources.fake_io import FakeIo
from tests.sources.scripted_io import CONTROLLER_DOWN, PING_DOWN, PING_UP, ScriptedIo, captured
from tests.sources.squeue import squeue

DOWN = (1, CONTROLLER_DOWN)
WORDS = "Unable to contact slurm controller (connect failure)"


def healthy() -> ScriptedIo:
    return ScriptedIo(
        {
            "jobs": captured("squeue-22.05.txt"),
            "nodes": captured("scontrol-nodes-22.05.txt"),
            "partitions": captured("scontrol-partitions-22.05.txt"),
            "ping": PING_UP,
        }
    )


def test_the_queue_has_all_active_and_failed_jobs_and_own_ended_ones() -> None:
    (reading,) = JobsSource(healthy(), "nobody", 10).poll()
    assert isinstance(reading.payload, JobList)
    assert reading.payload.is_all
    jobs = reading.payload.jobs
    assert {job.user for job in jobs} == {"root", "nobody"}
    assert [job.name for job in jobs if job.user == "nobody" and job.state == "COMPLETED"] == ["theirs_ended"]
    assert not [job for job in jobs if job.user == "root" and job.state in ("COMPLETED", "CANCELLED")]
    assert [job.name for job in jobs if job.user == "root" and job.state == "FAILED"] == ["fails", "segv"]


def test_a_full_picture_takes_three_commands_and_partitions_are_read_rarely() -> None:
    io = healthy()
    source = NodesSource(io, 30)
    for _ in range(3):
        assert [reading.source for reading in source.poll()] == ["nodes", "partitions"]
    assert io.asked == ["nodes", "partitions", "nodes", "nodes"]
    io.now_s += PARTITIONS_INTERVAL_S
    list(source.poll())
    assert io.asked[-2:] == ["nodes", "partitions"]


def test_a_dead_controller_is_reported_in_slurms_words_and_then_only_probed() -> None:
    io = healthy()
    io.answers |= {"jobs": DOWN, "ping": PING_DOWN}
    source = JobsSource(io, "root", 10)
    assert [reading.error for reading in source.poll()] == [WORDS]
    assert [reading.error for reading in source.poll()] == [WORDS]
    assert io.asked == ["jobs", "ping"]
    io.answers |= {"jobs": captured("squeue-22.05.txt"), "ping": PING_UP}
    (reading,) = source.poll()
    assert reading.error is None
    assert isinstance(reading.payload, JobList)
    list(source.poll())
    assert io.asked == ["jobs", "ping", "ping", "jobs", "jobs"]


def test_a_failed_request_gives_errors_instead_of_empty_lists() -> None:
    io = healthy()
    io.answers["nodes"] = DOWN
    assert [(reading.source, reading.payload, reading.error) for reading in NodesSource(io, 30).poll()] == [
        ("nodes", None, WORDS),
        ("partitions", None, WORDS),
    ]
    assert io.asked == ["nodes"]


def test_partitions_that_fail_alone_do_not_hide_the_nodes() -> None:
    io = healthy()
    io.answers["partitions"] = DOWN
    nodes, partitions = NodesSource(io, 30).poll()
    assert isinstance(nodes.payload, NodeList)
    assert partitions.error == WORDS


def test_a_launch_gets_partitions_and_nodes_or_slurms_words() -> None:
    partitions, nodes, hidden = read_partitions_and_nodes(healthy())
    assert hidden == frozenset()
    assert [each.name for each in partitions] == ["gpu", "short", "cpu", "hidden"]
    assert [each.name for each in nodes] == ["node1", "node2", "node3"]
    io = healthy()
    io.answers["nodes"] = DOWN
    with pytest.raises(UserError, match="Unable to contact slurm controller"):
        read_partitions_and_nodes(io)


def test_a_failure_without_stderr_still_names_the_command() -> None:
    io = healthy()
    io.answers["jobs"] = (7, "")
    assert [reading.error for reading in JobsSource(io, "root", 10).poll()] == ["squeue: exit status 7"]


def test_a_reading_counts_its_malformed_rows() -> None:
    io = healthy()
    io.answers["partitions"] = captured("scontrol-partitions-22.05.txt") + b"garbage\n"
    nodes, partitions = NodesSource(io, 30).poll()
    assert isinstance(partitions.payload, PartitionList)
    assert (nodes.num_bad_rows, partitions.num_bad_rows) == (0, 1)


class Asked(ScriptedIo):
    """Answers for one user or for all, and records the scope of each query."""

    def __init__(self, whole: bytes, own: bytes) -> None:
        super().__init__({})
        self._answers_of = {False: whole, True: own}
        self.is_own: list[bool] = []

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        self.is_own.append("-u" in query.argv)
        self.answers["jobs"] = self._answers_of[self.is_own[-1]]
        return super().run(query, timeout_s)


def test_all_jobs_are_read_once_a_minute_and_own_jobs_in_between() -> None:
    whole_queue = captured("squeue-22.05.txt")
    own_rows = [row for row in whole_queue.split(b"|RECORDEND") if b"nobody" in row]
    io = Asked(whole_queue, b"|RECORDEND".join([*own_rows, b""]))
    source = JobsSource(io, "nobody", 10, cluster_interval_s=60)
    (first,) = source.poll()
    for _ in range(5):
        io.now_s += 10
        (reading,) = source.poll()
        assert isinstance(reading.payload, JobList)
        assert isinstance(first.payload, JobList)
        assert set(reading.payload.jobs) == set(first.payload.jobs)
        assert reading.payload.is_all
    assert io.is_own == [False] + [True] * 5
    io.now_s += 10
    list(source.poll())
    assert not io.is_own[-1]


def test_unchanged_nodes_are_read_less_and_less_often_within_a_limit() -> None:
    io = healthy()
    source = NodesSource(io, 60)
    intervals = []
    for _ in range(6):
        list(source.poll())
        intervals.append(source.interval_s)
    assert intervals[0] == 60
    assert intervals == sorted(intervals)
    assert intervals[-1] == 60 * MAX_STRETCH
    io.answers["nodes"] = captured("scontrol-nodes-22.05.txt").replace(b"State=IDLE", b"State=DRAINED")
    list(source.poll())
    assert source.interval_s == 60


@pytest.mark.parametrize("kind", ["jobs", "nodes", "partitions"])
def test_an_incomplete_answer_is_an_error_even_with_exit_status_0(kind: str) -> None:
    io = healthy()
    whole = io.answers[kind]
    assert isinstance(whole, bytes)
    io.answers[kind] = whole[: len(whole) // 2]
    source = JobsSource(io, "root", 10) if kind == "jobs" else NodesSource(io, 30)
    said = {reading.source: reading for reading in source.poll()}
    assert said[kind].error is not None
    assert said[kind].error.endswith("its answer is incomplete")
    assert said[kind].payload is None


@pytest.mark.parametrize(("least_s", "soon_s"), [(0, FRESH_INTERVAL_S), (10, 10), (15, 15)])
def test_a_new_job_is_read_again_soon_but_not_below_the_sites_interval(least_s: float, soon_s: float) -> None:
    io = FakeIo()
    source = JobsSource(io, "me", 15, is_all=False, least_interval_s=least_s)
    intervals = []
    for pause_s, ids in (
        (0, ("1",)),
        (15, ("1",)),
        (15, ("1", "2")),
        (0.3, ("1", "2")),
        (soon_s, ("1", "2")),
        (15, ("1",)),
    ):
        io.now_s += pause_s
        io.answer("jobs", squeue(*({"job_id": job_id, "user": "me", "state": "PENDING"} for job_id in ids)))
        list(source.poll())
        intervals.append(source.interval_s)
    assert intervals == [15, 15, soon_s, soon_s, 15, 15]
