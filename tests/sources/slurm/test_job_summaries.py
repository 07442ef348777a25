"""jobstats' summaries of ended jobs: requested from the accounting for all jobs at once, and again only while
one may still appear."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.model.reading import JobRow
from coach.model.slurm.accounting import GpuMeans, JobSummary
from coach.model.slurm.cluster import Job
from coach.sources.io import CommandResult, Query
from coach.sources.logs.job_outputs import JobRowSource, OutputPaths
from coach.sources.slurm.job_summaries import AGAIN_S, KIND, LATE_S, JobSummaries, parse_summaries
from coach.sources.slurm.jobstats import packed, parse_summary
from tests.sources.fake_io import FakeIo
from tests.sources.scripted_io import captured

COMMENTS = dict(line.split(" ", 1) for line in captured("public/admin-comments.txt").decode().splitlines())
END_S = 900.0
JOB = Job(
    *("17", "train", "ada", "COMPLETED", None, "gpu", "node1"), *(None,) * 9, work_dir="/w", stdout="/o/%j"
)


def ended(job_id: str, **more: object) -> Job:
    return replace(JOB, job_id=job_id, end_time_s=END_S, **more)  # type: ignore[arg-type]


class _Accounting(FakeIo):
    """An accounting database that records the jobs of each call."""

    def __init__(self) -> None:
        super().__init__()
        self.comments: dict[str, str] = {}
        self.asked: list[str] = []
        self.answers[KIND] = self._answer

    def _answer(self, query: Query) -> CommandResult:
        which = query.argv[query.argv.index("-j") + 1]
        self.asked.append(which)
        rows = (
            f"{job_id}{query.separator}{self.comments.get(job_id, '')}{query.separator}\n"
            for job_id in which.split(",")
        )
        return CommandResult(query, 0, "".join(rows).encode(), "", self.now_s, 0.1)


def summaries(io: FakeIo, *jobs: Job) -> JobSummaries:
    return JobSummaries(io, {job.job_id: job for job in jobs}.get)


def test_a_summary_has_values_for_each_gpu_and_node() -> None:
    told = parse_summary(COMMENTS["four-idle"])
    assert told is not None
    (node,) = told.nodes
    assert (told.time_s, told.gap, node.node, node.num_cpus, node.cpu_time_s) == (
        68687.0, "", "tiger-i19g9", 28, 201481.2,
    )  # fmt: skip
    assert [gpu.utilization_pct for gpu in node.gpus] == [3.5, 3.5, 3.2, 3.8]
    assert (node.memory_used_mib, node.memory_allotted_mib) == (30866018304 / 2**20, 112000.0)
    four = parse_summary(COMMENTS["four-nodes"])
    assert four is not None
    assert [node.gpus for node in four.nodes] == [()] * 4


def test_missing_values_are_unknown_and_a_missing_summary_has_a_reason() -> None:
    without = parse_summary(COMMENTS["no-utilization"])
    assert without is not None
    assert without.nodes[0].gpus == (GpuMeans(3, None, 875364352 / 2**20, 81920.0),)
    short, none = parse_summary(COMMENTS["short"]), parse_summary(COMMENTS["none"])
    assert short == JobSummary(None, (), "jobstats measured nothing: the job was too short")
    assert none == JobSummary(None, (), "jobstats measured nothing of the job")
    torn = parse_summary(COMMENTS["busy"][:-20])
    assert torn == JobSummary(None, (), "the summary of jobstats cannot be read")
    assert parse_summary("watched by the help desk") is None


@pytest.mark.parametrize(
    "gpus",
    [
        '{"gpu_utilization": {"0": 400, "x": 1, "\\u0663": 2, "99999999999999": 3}}',
        '{"gpu_utilization": [1], "cpus": -1, "total_time": "1"}',
        '{"gpu_utilization": {"0": null}, "cpus": 1e400}',
    ],
)
def test_impossible_numbers_of_a_summary_are_unknown(gpus: str) -> None:
    told = parse_summary(packed(f'{{"nodes": {{"n": {gpus}}}, "total_time": 100}}'))
    assert told is not None
    assert (told.nodes[0].num_cpus, told.nodes[0].cpu_time_s) == (None, None)
    assert all(gpu.utilization_pct is None for gpu in told.nodes[0].gpus)


def test_one_call_requests_the_summaries_of_all_ended_jobs() -> None:
    io = _Accounting()
    io.comments = {"17": COMMENTS["busy"], "18_3": COMMENTS["four-idle"]}
    running = replace(ended("20"), state="RUNNING")
    told = summaries(io, ended("17"), ended("18_3"), ended("19"), running)
    told.want(["17", "18_3", "19", "20", "21"])
    first, second = told.of("17"), told.of("18_3")
    assert first is not None
    assert second is not None
    assert first.nodes[0].gpus[0].utilization_pct == 98.6
    assert len(second.nodes[0].gpus) == 4
    assert (told.of("19"), told.of("20"), told.of("21")) == (None, None, None)
    assert io.asked == ["17,18_3,19"]


def test_a_missing_summary_is_requested_again_only_soon_after_the_end() -> None:
    io = _Accounting()
    io.now_s = END_S + 1
    told = summaries(io, ended("17"), ended("18"))
    assert told.of("17") is None
    assert told.of("17") is None
    io.now_s += AGAIN_S
    io.comments["17"] = COMMENTS["busy"]
    assert told.of("17") is not None
    told.of("18")
    io.now_s += LATE_S
    assert told.of("18") is None
    assert told.of("17") is not None
    assert io.asked == ["17", "17", "18"]


def test_accounting_that_failed_is_not_asked_again_soon() -> None:
    io = FakeIo()
    asked: list[str] = []

    def refuse(query: Query) -> CommandResult:
        asked.append(query.kind)
        return CommandResult(query, 1, b"", "Slurm accounting storage is disabled", io.now_s, 0.1)

    io.answers[KIND] = refuse
    told = summaries(io, ended("17"), ended("18"))
    assert [told.of("17"), told.of("18"), told.of("17")] == [None, None, None]
    assert len(asked) == 1


def test_a_call_that_failed_is_made_again_also_long_after_the_end() -> None:
    io = _Accounting()
    io.comments["17"] = COMMENTS["busy"]
    io.now_s = END_S + 100
    told = summaries(io, ended("17"))
    works = io.answers[KIND]
    io.answers[KIND] = lambda query: CommandResult(query, None, b"", "", io.now_s, 5.0, "sacct: no answer")
    assert told.of("17") is None
    io.answers[KIND] = works
    io.now_s += LATE_S - 1
    assert told.of("17") is None
    assert io.asked == []
    io.now_s += 1
    assert told.of("17") is not None
    assert io.asked == ["17"]


def test_the_summary_of_a_left_out_job_is_not_requested() -> None:
    io = _Accounting()
    told = summaries(io, ended("17"), ended("18"))
    told.want(["17"])
    told.leave("18")
    assert (told.of("18"), io.asked) == (None, [])
    told.of("17")
    assert io.asked == ["17"]


def test_the_row_of_a_followed_job_has_its_summary_if_accounting_may_be_asked() -> None:
    io = _Accounting()
    io.comments["17"] = COMMENTS["busy"]
    for asks, has_one in ((True, True), (False, False)):
        paths = OutputPaths(io, asks_summaries=asks)
        paths.learn([ended("17")])
        (reading,) = JobRowSource(io, "17", paths, "ada").poll()
        assert isinstance(reading.payload, JobRow)
        assert (reading.payload.summary is not None) is has_one
    assert io.asked == ["17"]


def test_complete_records_of_a_torn_answer_are_used() -> None:
    text = f"17|S{COMMENTS['short']}|S\n18|S{COMMENTS['busy']}|S\n19|SJS"
    assert set(parse_summaries(text, "|S")) == {"17", "18"}
    assert parse_summaries(text, "") == {}
