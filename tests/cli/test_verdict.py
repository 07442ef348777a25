"""The list of all own jobs: one small screen, the verdict first, the worst job before the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.judging.several_jobs import Judged, worst_first
from coach.analysis.spelling.printable import display_width
from coach.cli.diagnosis_text import checked_lines
from coach.cli.verdict import MAX_LINES, WIDTH, verdict_lines
from coach.model.judging.finding import Diagnosis, Finding, Fix, NotMeasured, Severity, Subject, Verdict
from coach.model.slurm.cluster import Job
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogFile, LogTail
from coach.workflows.judging.check import Checked

NOW_S = 100_000.0


def judged(
    job_id: str,
    severity: Severity | None = None,
    *,
    num_gpus: int = 8,
    state: str = "RUNNING",
    since_s: float = NOW_S - 3600,
    summary: str = "It is broken",
    is_read: bool = True,
) -> Judged:
    job = Job(
        *(job_id, "train", "ada", state, None, "gpu", "node1", 1, 8, num_gpus, 7200, 60, 9000),
        *(NOW_S - 8000, NOW_S - 7200, NOW_S),
    )
    tails = (LogTail("/x", 1, ("a",), 1, 1),) if is_read else ()
    snapshot = TargetSnapshot(job_id, NOW_S, job=job, log_tails=tails)
    findings: tuple[Finding, ...] = ()
    if severity is not None:
        fix = Fix("Mend it")
        findings = (
            Finding(
                *("MEM001", "cuda-out-of-memory", "cuda_oom", severity, 0.9, True, None, Subject()),
                *(summary, (), (fix,), since_s),
            ),
        )
    is_well = is_read and state in ("RUNNING", "COMPLETED")
    health = Verdict.HEALTHY if is_well else Verdict.UNKNOWN
    return Judged(Diagnosis(job_id, state, findings, (), health=health), snapshot)


def test_the_first_line_is_the_verdict() -> None:
    assert verdict_lines([], NOW_S)[0].startswith("You have no job")
    well = [judged("1"), judged("2", state="PENDING", is_read=False), judged("3", state="COMPLETED")]
    assert (
        verdict_lines(well, NOW_S)[0]
        == "✓ No problem found in the measurements (1 running, 1 waiting, 1 ended)"
    )
    bad = [*well, judged("4", Severity.WARNING), judged("5", Severity.CRITICAL)]
    assert verdict_lines(bad, NOW_S)[0].startswith("✖ 1 of 5 jobs went wrong, 1 warned (")
    assert verdict_lines(bad[:4], NOW_S)[0].startswith("▲ 1 of 4 jobs warned (")
    failed = judged("6", Severity.WARNING, state="FAILED")
    assert verdict_lines([*bad, failed], NOW_S)[0].startswith("✖ 2 of 6 jobs went wrong, 1 warned (")
    assert verdict_lines([judged("4", Severity.WARNING)], NOW_S)[0].startswith("▲ The job warned (")


def test_jobs_that_all_wait_are_not_called_well() -> None:
    waiting = [judged(job_id, state="PENDING", is_read=False) for job_id in ("1", "2")]
    first, blank, _ = verdict_lines(waiting, NOW_S)
    assert (first, blank) == ("– Nothing to check yet: no job has started (2 waiting)", "")


def test_a_file_gets_every_job_whole_and_another_user_is_named() -> None:
    many = [judged(str(number), Severity.WARNING, summary="long " * 40) for number in range(30)]
    whole = verdict_lines(many, NOW_S, width=None, user="bob")
    assert sum("long " * 40 in text + " " for text in whole) == len(many)
    assert not any("more:" in text for text in whole)
    assert verdict_lines([], NOW_S, user="bob")[0].startswith("bob has no job")


def test_jobs_that_never_start_are_counted_beside_those_that_went_wrong() -> None:
    stuck = judged("7", state="PENDING", is_read=False)
    job = stuck.snapshot.job
    assert job is not None
    stuck = replace(
        stuck, snapshot=replace(stuck.snapshot, job=replace(job, reason="DependencyNeverSatisfied"))
    )
    lines = verdict_lines([stuck, judged("8", Severity.CRITICAL)], NOW_S)
    assert lines[0].startswith("✖ 1 of 2 jobs went wrong, 1 will never start (")
    assert sum(text.startswith(("✖", "▲")) for text in lines[1:]) == 2


def test_a_job_without_a_finding_is_healthy_only_where_it_was_measured() -> None:
    jobs = [judged("1"), judged("2", state="CANCELLED"), judged("3", state="PENDING", is_read=False)]
    lines = verdict_lines(jobs, NOW_S)
    assert lines[0].startswith("? Nothing found, but nothing is known about 1 of 3")
    said = {line[:3]: line.rpartition("  ")[2] for line in lines[2:4]}
    assert said == {"✓ 1": "healthy", "? 2": "unknown"}


def test_a_job_without_readable_data_is_not_called_well() -> None:
    lines = verdict_lines([judged("1"), judged("2", is_read=False)], NOW_S)
    assert lines[0].startswith("? Nothing found, but 1 of 2 could not be read")
    assert lines[2].startswith("? 2")


def test_a_completed_task_with_an_empty_log_printed_nothing() -> None:
    empty = (LogFile("/logs/17_1.out", is_found=True),)
    tasks = [judged(f"17_{number}", state="COMPLETED", is_read=False) for number in (1, 2)]
    tasks = [replace(task, snapshot=replace(task.snapshot, log_files=empty)) for task in tasks]
    lines = verdict_lines(tasks, NOW_S)
    assert lines[0].startswith("? Nothing found, but nothing is known about 2 of 2")
    assert {line.rpartition("  ")[2] for line in lines[2:4]} == {"printed nothing"}
    checked = Checked(tasks[0].diagnosis, tasks[0].snapshot, parts=tuple(tasks))
    assert "  printed nothing: 17_1, 17_2" in list(checked_lines(checked, NOW_S))
    assert not any("could not be read" in line for line in checked_lines(checked, NOW_S))
    gone = LogFile("/logs/17_1.out", is_found=True, problem="Permission denied")
    unread = replace(tasks[0], snapshot=replace(tasks[0].snapshot, log_files=(gone,)))
    assert verdict_lines([unread], NOW_S)[0].startswith("? Nothing found, but 1 of 1 could not be read")


def test_only_ended_jobs_are_called_ended_and_a_job_being_set_up_is_waiting() -> None:
    setting_up = judged("1", state="CONFIGURING", is_read=False)
    assert verdict_lines([setting_up], NOW_S)[0].endswith("no job has started (1 waiting)")
    stopped = [judged("1", state="SUSPENDED"), judged("2", state="COMPLETING"), judged("3", state="FAILED")]
    assert verdict_lines(stopped, NOW_S)[0].endswith("(1 ended, 2 in another state)")


def test_a_job_whose_files_cannot_be_read_says_why() -> None:
    why = NotMeasured("job", "12: /x/log: permission denied", "name its log file")
    lines = verdict_lines([Judged(Diagnosis("12", None, (), (why,)), TargetSnapshot("12", None))], NOW_S)
    assert "could not be read (1 in another state)" in lines[0]
    assert "permission denied" in lines[2]


def test_a_remark_is_nothing_to_get_up_for() -> None:
    assert verdict_lines([judged("1", Severity.INFO)], NOW_S)[0].startswith("✓")


def test_the_worst_verdict_is_first_and_equal_ones_are_ordered_by_gpu_hours() -> None:
    jobs = [
        judged("1"),
        judged("2", Severity.WARNING, num_gpus=64),
        judged("3", Severity.CRITICAL, num_gpus=1),
        judged("4", Severity.CRITICAL, num_gpus=8),
    ]
    assert [each.diagnosis.target for each in worst_first(jobs)] == ["4", "3", "2", "1"]
    lines = verdict_lines(jobs, NOW_S)
    assert "8.0 GPU-h lost" in next(line for line in lines if line.startswith("✖ 4"))
    assert lines[4] == "    → Mend it"


@pytest.mark.parametrize("num_jobs", [1, 6, 40])
def test_the_list_fits_a_small_terminal_with_any_number_and_names_of_jobs(num_jobs: int) -> None:
    hostile = "\x1b[31m長い" * 60
    jobs = [judged(f"{number}_{'7' * 90}", Severity.CRITICAL, summary=hostile) for number in range(num_jobs)]
    lines = verdict_lines([*jobs, judged("99")], NOW_S)
    assert len(lines) <= MAX_LINES
    assert max(map(display_width, lines)) <= WIDTH
    assert not any("\x1b" in line for line in lines)
    assert any("more: --format json lists them all" in line for line in lines) is (num_jobs > 6)


def test_a_job_that_can_never_start_is_not_counted_as_well() -> None:
    stuck = judged("1", state="PENDING", is_read=False)
    assert stuck.snapshot.job is not None
    job = replace(stuck.snapshot.job, reason="PartitionTimeLimit")
    lines = verdict_lines([replace(stuck, snapshot=replace(stuck.snapshot, job=job)), judged("2")], NOW_S)
    assert lines[0] == "▲ 1 of 2 will never start with what it asks for (1 running, 1 waiting)"
    assert lines[2].startswith("▲ 1  train  PENDING")
    assert "TimeLimit" in lines[4]
