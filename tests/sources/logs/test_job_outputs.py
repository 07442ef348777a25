"""Output files of foreign jobs: from the rows of the queue, else from one query, else from other records of
the job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.reading import JobRow
from coach.model.slurm.cluster import Job
from coach.sources.io import CommandResult, Query
from coach.sources.logs import job_outputs
from coach.sources.logs.job_outputs import ROW_INTERVAL_S, JobRowSource, OutputPaths, parse_accounting
from tests.sources.fake_io import FakeIo

JOB = Job(
    *("17", "train", "ada", "RUNNING", None, "gpu", "node1"),
    *(None,) * 9,
    work_dir="/home/ada",
    stdout="/o/%j",
)


def squeue(*jobs: tuple[str, str]) -> bytes:
    """Rows (id, StdOut) in squeue's answer to the query for paths: 32 fields, most of them not set."""
    rows = []
    for job_id, stdout in jobs:
        told = [job_id, "ada", "RUNNING", "None", "gpu", "node1", *["N/A"] * 16, "/home/ada"]
        rows.append(
            "|SEP".join([*told, job_id, *["N/A"] * 5, "train.sh", stdout, "(null)", "train"]) + "|END\n"
        )
    return "".join(rows).encode()


class _Slurm(FakeIo):
    """Counts its queries."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    def run(self, query: Query, timeout_s: float = 12.0) -> CommandResult:
        self.asked.append(
            (query.argv[0], query.argv[query.argv.index("-j" if "-j" in query.argv else "-u") + 1])
        )
        result = super().run(query)
        known = Query(query.kind, query.argv, "|SEP", "|END")
        return replace(result, query=known)


def test_paths_in_the_queue_are_not_queried_again() -> None:
    io = _Slurm()
    paths = OutputPaths(io)
    paths.learn([JOB, replace(JOB, job_id="18")])
    assert [paths.of(job_id) for job_id in ("17", "18")] == [(Path("/o/17"),), (Path("/o/18"),)]
    assert io.asked == []


def test_the_path_follows_the_job_to_its_node() -> None:
    paths = OutputPaths(_Slurm())
    paths.learn([replace(JOB, nodes=None, stdout="/o/%N", state="PENDING")])
    assert paths.of("17") == ()
    paths.learn([replace(JOB, nodes="node[3-4]", stdout=None)])  # everybody's queue holds no paths
    assert paths.of("17") == (Path("/o/node3"),)


def test_all_missing_paths_are_requested_in_one_query() -> None:
    io = _Slurm()
    io.answer("job-files 17,18", lambda query: squeue(("17", "(null)"), ("18", "/o/%j"), ("18_1", "/never")))
    paths = OutputPaths(io)
    paths._wanted.add("18")  # another thread is about to ask
    assert paths.of("17") == (Path("/home/ada/slurm-17.out"),)
    assert paths.of("18") == (Path("/o/18"),)
    assert io.asked == [("squeue", "17,18")]


def test_pending_tasks_have_no_log_and_cause_no_query() -> None:
    io = _Slurm()
    assert OutputPaths(io).of("17_[3-8%2]") == ()
    assert io.asked == []


def test_a_forgotten_job_comes_from_coachs_record_or_else_from_accounting() -> None:
    io = _Slurm()
    for job_id in ("17", "19"):
        io.answers[f"job-files {job_id}"] = lambda query: CommandResult(
            query, 1, b"", "Invalid job id", 0.0, 0.1
        )
    row = (
        "19|SEP19|SEPada|SEPFAILED|SEPnode2|SEP|SEP2026-11-21T12:00:00|SEPUnknown|SEP90"
        "|SEP/home/ada|SEP/o/%j-%N|SEP|SEPtr\nain|SEP\n"
    )
    io.answer("job-files-accounting 19", lambda query: row.encode())
    paths = OutputPaths(io, lambda: [JOB])
    assert paths.of("17") == (Path("/o/17"),)
    assert paths.of("19") == (Path("/o/19-node2"),)
    assert io.asked == [("squeue", "17"), ("squeue", "19"), ("sacct", "19")]
    told = paths.row("19") or JOB
    assert (told.state, told.time_limit_s) == ("FAILED", 5400)


def test_a_job_from_accounting_gets_its_neighbours_that_coach_has_never_seen() -> None:
    io = _Slurm()
    io.answers["job-files 19"] = lambda query: CommandResult(query, 1, b"", "Invalid job id", 0.0, 0.1)

    def row(job_id: str, hour: int) -> str:
        times = f"2026-11-21T{hour}:00:00|SEP2026-11-21T{hour}:00:00|SEP2026-11-21T{hour + 1}:00:00"
        head = f"{job_id}|SEP{job_id}|SEPada|SEPFAILED|SEPnode2|SEP{times}"
        return f"{head}|SEP90|SEP/w|SEP|SEP|SEPtrain|SEP\n"

    io.answer("job-files-accounting 19", lambda query: row("19", 12).encode())
    io.answer(
        "job-files-neighbours 19",
        lambda query: (row("19", 12) + row("20", 12) + row("21", 15)).encode(),
    )
    paths = OutputPaths(io)
    job = paths.row("19")
    assert job is not None
    assert [row.job_id for row in paths.others(job)] == ["20"]
    assert [row.job_id for row in paths.others(job)] == ["20"]
    assert len(io.asked) == 3, "the neighbours are asked for once"


def test_a_job_that_coach_saw_end_is_not_asked_for_once_the_queue_is_known() -> None:
    io = _Slurm()
    for number in ("17", "18"):
        io.answers[f"job-files {number}"] = lambda query: CommandResult(
            query, 1, b"", "Invalid job id", 0.0, 0.1
        )
    ended, again = replace(JOB, state="FAILED"), replace(JOB, job_id="18", state="FAILED")
    paths = OutputPaths(io, lambda: [ended, replace(again, state="RUNNING"), again])
    paths.learn([replace(JOB, job_id="20")], is_own_queue=True)
    assert paths.of("17") == (Path("/o/17"),)
    assert io.asked == []
    assert paths.of("18") == (Path("/o/18"),)  # it was last seen running
    assert io.asked == [("squeue", "18")]


def test_an_older_accounting_knows_at_most_the_command_that_submitted_the_job() -> None:
    io = _Slurm()
    fields = []

    def answer(query: Query) -> CommandResult:
        fields.append(query.argv[-1])
        if "StdOut" in query.argv[-1]:
            return CommandResult(query, 1, b"", 'sacct: error: Invalid field requested: "StdOut"', 0.0, 0.1)
        row = (
            "19|SEP19|SEPada|SEPTIMEOUT|SEPNone assigned|SEP|SEP|SEP|SEPUNLIMITED|SEP/w"
            "|SEPsbatch -o log --error=e%j a.sh|SEPtrain|SEP\n"
        )
        return CommandResult(query, 0, row.encode(), "", 0.0, 0.1)

    io.answers["job-files-accounting 19"] = answer
    assert OutputPaths(io).of("19") == (Path("/w/log"), Path("/w/e19"))
    assert len(fields) == 2


@pytest.mark.parametrize(
    ("line", "paths"),
    [
        ("sbatch -oout -e err a.sh", ("out", "err")),
        ("sbatch --output out --error=err a.sh", ("out", "err")),
        ("sbatch a.sh", None),
        ("sbatch -e err a.sh", None),
        ("sbatch --parsable -J na -o out --wrap srun -o step-%J hostname", ("out", None)),
        ("sbatch --parsable --wrap srun -o step-%J hostname", None),
        ("sbatch --parsable train.sh -o results", None),
        ("sbatch -p gpu train.sh -o results", None),
        ("sbatch -N2 train.sh -o results", None),
        ("sbatch -N2 -oout -t10 train.sh -o results", ("out", None)),
        ("sbatch --nice train.sh --output results", None),
        ("sbatch --nice=100 -k -o out train.sh --output results", ("out", None)),
        ("sbatch 'torn", None),
        ("sbatch -o", None),
    ],
)
def test_options_are_taken_from_the_command_line_and_never_guessed(
    line: str, paths: tuple[str, str | None] | None
) -> None:
    fields = ("JobID", "JobIDRaw", "User", "State", "NodeList", "WorkDir", "SubmitLine", "JobName")
    text = "|SEP".join(["19", "19", "ada", "FAILED", "n1", "/w", line, "x", "\n"])
    assert [(job.stdout, job.stderr) for job in parse_accounting(text, "|SEP", fields)] == (
        [paths or (None, None)]
    )


def test_a_row_that_comes_while_the_tasks_of_an_array_are_looked_up_does_no_harm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The queue's thread adds rows at any moment, here in the middle of the look-up."""
    paths, usual = OutputPaths(FakeIo()), job_outputs._is_part_of
    paths.learn([replace(JOB, job_id=job_id) for job_id in ("17", "17_2", "17_1")])

    def meanwhile(job_id: str, whole: str) -> bool:
        paths.learn([replace(JOB, job_id=f"{job_id}00")])
        return usual(job_id, whole)

    monkeypatch.setattr(job_outputs, "_is_part_of", meanwhile)
    assert {row.job_id for row in paths.parts("17")} == {"17_1", "17_2"}


def test_slurms_refusal_is_shown_in_its_words_and_retried_only_later() -> None:
    io = _Slurm()
    paths = OutputPaths(io)
    for _ in range(2):
        with pytest.raises(OSError, match="job 17 writes its log is not known: squeue: command not found"):
            paths.of("17")
    io.answer("job-files 17", lambda query: squeue(("17", "/o")))
    with pytest.raises(OSError, match="command not found"):
        paths.of("17")
    assert len(io.asked) == 2
    io.now_s += 31
    assert paths.of("17") == (Path("/o"),)


def test_the_answer_in_an_old_recording_gives_no_paths() -> None:
    io = FakeIo()
    old = Query("job-files 17", ("scontrol", "show", "job", "17"))
    io.answers["job-files 17"] = lambda query: CommandResult(old, 0, b"   StdOut=/o", "", 0.0, 0.1)
    with pytest.raises(OSError, match="is not known"):
        OutputPaths(io).of("17")


def test_another_users_active_job_is_queried_each_minute_and_an_own_one_never() -> None:
    io = _Slurm()
    io.answer("job-files 17", lambda query: squeue(("17", "/o/%j")))
    source = JobRowSource(io, "17", OutputPaths(io), "bob")
    own = JobRowSource(io, "17", OutputPaths(io), "ada")
    for _ in range(3):
        (reading,) = source.poll()
        assert isinstance(reading.payload, JobRow)
        assert reading.payload.job is not None
        assert (reading.payload.job.user, reading.payload.job.state) == ("ada", "RUNNING")
        io.now_s += ROW_INTERVAL_S
    assert len(io.asked) == 3
    for _ in range(3):
        list(own.poll())
        io.now_s += ROW_INTERVAL_S
    assert len(io.asked) == 4


def test_a_job_that_slurm_does_not_know_has_no_row() -> None:
    io = _Slurm()
    (reading,) = JobRowSource(io, "17", OutputPaths(io), "bob").poll()
    assert reading.payload == JobRow("17", None)


def test_all_components_of_a_heterogeneous_job_write_where_the_first_one_does() -> None:
    io = _Slurm()
    paths = OutputPaths(io)
    paths.learn([replace(JOB, job_id="20+0", stdout="/o/first"), replace(JOB, job_id="20+1", stdout="/o/no")])
    assert paths.of("20+1") == (Path("/o/first"),)
    assert io.asked == []
