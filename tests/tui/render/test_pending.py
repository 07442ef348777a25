"""The reason why a job waits, on the screens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from coach.analysis.queueing.arrays import FoldedJob, fold
from coach.model.judging.finding import Finding, Severity, Subject
from coach.model.slurm.accounting import FairShare, Limits, Part, PriorityFactors
from coach.model.slurm.cluster import Reservation
from coach.render.text import plain
from coach.tui.render.pending import (
    failed_alike_lines,
    place_lines,
    short_reason,
    start_words,
    task_lines,
    why_lines,
)
from coach.tui.render.queue import JOB_COLUMNS, Queue, QueueRow, arranged, job_rows, queue_of, row_key
from coach.tui.render.table import Cell, Row, Rows
from tests.tui.fake_session import NOW_S, make_job, make_place
from tests.tui.labels import shipped

WAITING = {"state": "PENDING", "nodes": None, "start_time_s": None}


LEFT = [column.name for column in JOB_COLUMNS].index("left")


def cell(row: Row, name: str) -> str:
    return row.cells[[column.name for column in JOB_COLUMNS].index(name)].text


def rows_of(*rows: QueueRow) -> Rows:
    return job_rows(Queue(rows, [row_key(row) for row in rows]), "ada", NOW_S)


def text(lines: list[tuple[object, ...]]) -> str:
    return "\n".join(plain(row) for row in lines)  # type: ignore[arg-type]  # lines of spans


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ("Priority", "· in line"),
        ("QOSMaxGRESPerUser", "▲ limit: GPUs or other GRES"),
        ("PartitionTimeLimit", "✖ too long"),
        ("JobHeldUser", "■ held: user"),
        ("SomethingNew", "? SomethingNew"),
        ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "· node blocked"),
        (None, "· just queued"),
    ],
)  # fmt: skip
def test_each_kind_of_reason_has_its_sign_and_few_words(reason: str | None, shown: str) -> None:
    assert short_reason(make_job(**WAITING, reason=reason))[0] == shown


def test_a_narrow_column_leaves_out_the_sign_of_a_reason_that_then_fits() -> None:
    job = make_job(**WAITING, reason="Resources")
    row = job_rows(queue_of([job], "ada", list), "ada").row(0)
    (cell,) = {id(each): each for each in row.cells if each.text == "· next in line"}.values()
    assert cell.fill is not None
    assert [cell.fill(width) for width in (14, 13, 9)] == ["· next in line", "next in line", "· next…"]
    never = make_job(**WAITING, reason="DependencyNeverSatisfied")
    cells = job_rows(queue_of([never], "ada", list), "ada").row(0).cells
    (fill,) = {each.fill for each in cells if each.text == "✖ after fail" and each.fill is not None}
    assert [fill(width) for width in (12, 11)] == ["✖ after fail", "✖ after…"]


def test_a_running_job_of_unknown_progress_shows_how_long_it_has_run() -> None:
    def doing(*jobs: QueueRow) -> Cell:
        return rows_of(*jobs).row(0).cells[[column.name for column in JOB_COLUMNS].index("doing")]

    found = doing(make_job(time_used_s=2720.0))
    assert (found.text, found.tone) == ("for 45 min", "muted")
    assert found.fill is not None
    assert [found.fill(width) for width in (12, 9)] == ["for 45 min", "45 min"]
    assert doing(make_job(time_used_s=None)).text == "–"
    assert doing(make_job(state="COMPLETED", time_used_s=2720.0)).text == "–"
    (tasks,) = arranged([make_job(f"17_{task}", time_used_s=2720.0) for task in (1, 2)])
    assert doing(tasks).text == "–", "each task has a time of its own"


def test_a_job_that_runs_waits_for_nothing() -> None:
    assert short_reason(make_job(reason="Priority")) == ("", "")
    assert why_lines(make_job(), NOW_S, 80) == []


def test_a_dependency_names_the_job_and_the_state_it_has_to_reach() -> None:
    job = make_job(**WAITING, reason="Dependency", dependency="afterok:15(unfulfilled),singleton")
    assert short_reason(job)[0] == "· after 15"
    shown = text(why_lines(job, NOW_S, 100))
    assert "for job 15 to end well (unfulfilled)" in shown
    assert "for every other job of this name and user to end" in shown


def test_a_job_behind_one_that_never_starts_is_told_the_job_to_cancel() -> None:
    stuck = make_job("15", **WAITING, reason="DependencyNeverSatisfied", dependency="afterok:14(failed)")
    between = make_job("16", **WAITING, reason="Dependency", dependency="afterok:15(unfulfilled)")
    last = make_job("17", **WAITING, reason="Dependency", dependency="afterok:16(unfulfilled)")
    shown = text(why_lines(last, NOW_S, 100, (), {job.job_id: job for job in (stuck, between, last)}))
    assert "it does not start by itself" in shown
    assert "coach cancel 15" in shown
    assert "nothing: it starts by itself" in text(why_lines(last, NOW_S, 100))


def test_the_start_is_an_estimate_and_says_so() -> None:
    job = make_job(
        **{**WAITING, "start_time_s": NOW_S + 3 * 3600 - 60}, reason="Priority", scheduled_nodes="node3"
    )
    assert start_words(job, NOW_S) == "~in 3 h"
    assert cell(rows_of(job).row(0), "left") == "~in 3 h"
    later = make_job(**{**WAITING, "start_time_s": NOW_S + 112 * 60}, reason="Priority")
    fill = rows_of(later).row(0).cells[LEFT].fill
    assert fill is not None
    assert fill(10) == "~112 min"
    soon = rows_of(job).row(0).cells[LEFT].fill
    assert soon is not None
    assert (soon(10), fill(11), soon(11)) == ("~3 h", "~in 112 min", "~in 3 h")
    assert "~in 3 h on node3: an estimate" in text(why_lines(job, NOW_S, 100))
    unknown = make_job(**WAITING, reason="Priority")
    assert cell(rows_of(unknown).row(0), "left") == "–"
    assert "– Slurm has not estimated it" in " ".join(text(why_lines(unknown, NOW_S, 100)).split())


def test_an_array_is_one_row_that_keeps_its_key_and_unfolds_into_its_tasks() -> None:
    jobs = [
        make_job("17_[3-8%2]", **WAITING, reason="JobArrayTaskLimit"),
        make_job("17_1"),
        make_job("18", user="bob"),
    ]
    folded = rows_of(*arranged(jobs))
    assert list(folded.keys) == ["17", "18"]
    assert cell(folded.row(0), "job_id") == "17_[1,3-8%2]"
    assert cell(folded.row(0), "reason") == "6 PD 1 R · array limit"
    unfolded = rows_of(*arranged(jobs[:2], {"17"}))
    assert list(unfolded.keys) == ["17", "17_1", *(f"17_{task}" for task in range(3, 9))]
    assert cell(unfolded.row(0), "job_id").startswith("▾")
    assert cell(unfolded.row(2), "job_id") == "└ 17_3"


def test_the_parts_of_a_heterogeneous_job_are_one_row_and_are_listed() -> None:
    parts = [make_job("20+0"), make_job("20+1", num_nodes=1)]
    assert cell(rows_of(*arranged(parts)).row(0), "job_id") == "20+[0-1]"
    shown = text(task_lines(fold(parts)[0], parts, NOW_S, 80))
    assert "2 parts  2 RUNNING" in shown
    assert "20+1" in shown


def test_a_place_in_the_queue_shows_the_jobs_ahead_and_the_facts_that_the_site_hides() -> None:
    factors = PriorityFactors("17_[3-8]", "ada", "gpu", 310, 10, 300, None, 0, 0, None, 0, None)
    other = PriorityFactors("18", "ada", "gpu", 999, 999, None, None, None, None, None, None, None)
    place = make_place(
        priorities=Part((other, factors)),
        fair_share=Part((FairShare("ml", "ada", "10", 0.1, 5, 0.4, 0.25), FairShare("hep", "ada", "1", 0.1, 5, 0.4, 0.7))),
        associations=Part((Limits("association", "ml", "ada", None, ("normal",), {"GrpTRES": (
            "gres/gpu=8"
        )}),)),
        reservations=Part((
            Reservation("window", "inactive", NOW_S + 7200, NOW_S + 14400, "node[1-2]", 2, ("MAINT",), (), (), None),
        )),
    )  # fmt: skip
    job = make_job("17_[3-8%2]", **WAITING, account="ml")
    shown = text(place_lines(place, job, NOW_S, 110))
    assert "310 = age 10 + fair share 300 + partition 0 + QOS 0" in shown
    assert "999" not in shown
    assert "ml: 0.25 (1 is first in line, 0 last)" in shown
    assert "hep" not in shown
    assert "account ml: GrpTRES=gres/gpu=8" in shown
    assert "window for maintenance: begins in 2 h, ends in 4 h; nodes node[1-2]" in shown
    assert "limits of QOS: Slurm accounting storage is disabled" in shown


def array_of(*states: str) -> FoldedJob:
    """An array with a task in each of these states."""
    return fold([make_job(f"17_{index}", state=state) for index, state in enumerate(states)])[0]


def named(rule: str, words: str = "ValueError: 11 classes") -> Finding:
    subject = Subject()
    return Finding(rule, "name", "cause", Severity.CRITICAL, 1.0, True, None, subject, words, (), (), None)


ALIKE = {"17_0": named("COD001"), "17_1": named("COD001")}


def test_a_sweep_that_its_brake_has_stopped_says_so_and_offers_no_cancel() -> None:
    why = "stopped by the sweep's brake: the first 2 runs failed alike (COD001: ValueError: 11 classes)"
    stopped = replace(named("JOB020"), cause="sweep_brake", summary=why)
    found = {**ALIKE, "17_2": stopped, "17_3": stopped}
    folded = array_of("FAILED", "FAILED", "FAILED", "FAILED", "PENDING")
    shown = text(failed_alike_lines(folded, found, 120, shipped))
    assert f"■ 2 tasks {why}" in shown
    assert "cancels" not in shown


def test_tasks_that_failed_stand_first_with_their_cause() -> None:
    folded = array_of("COMPLETED", "FAILED", "COMPLETED")
    shown = text(task_lines(folded, folded.parts, NOW_S, 80, {"17_1": named("COD001")})).splitlines()
    assert [row.split()[0] for row in shown[1:5]] == ["17_1", "COD001", "17_0", "17_2"]
    assert "COD001 ValueError: 11 classes" in shown[2]


def test_first_tasks_that_failed_alike_offer_to_cancel_the_rest() -> None:
    shown = text(failed_alike_lines(array_of("FAILED", "FAILED", "RUNNING", "PENDING"), ALIKE, 80, shipped))
    assert "✖ all 2 tasks that ended failed alike (COD001): x cancels the 2 that are left" in shown


def test_failed_tasks_without_a_finding_are_not_said_to_have_failed_alike() -> None:
    folded = array_of("FAILED", "FAILED", "FAILED", "RUNNING")
    shown = text(failed_alike_lines(folded, ALIKE, 120, shipped))
    assert "✖ 2 of 3 failed tasks were judged, and failed alike (COD001): x cancels the one that is" in shown
    assert failed_alike_lines(folded, {"17_0": named("COD001")}, 120, shipped) == []


@pytest.mark.parametrize(
    ("states", "rules"),
    [
        (("FAILED", "RUNNING"), ALIKE),
        (("FAILED", "FAILED"), ALIKE),
        (("FAILED", "FAILED", "COMPLETED", "RUNNING"), ALIKE),
        (("FAILED", "FAILED", "RUNNING"), {"17_0": named("COD001"), "17_1": named("MEM001")}),
        (
            ("FAILED", "FAILED", "RUNNING"),
            {"17_0": named("COD001", "IndexError: Target 10"), "17_1": named("COD001", "KeyError: 'lr'")},
        ),
        (("FAILED", "FAILED", "RUNNING"), {}),
        (("CANCELLED", "CANCELLED", "RUNNING"), ALIKE),
    ],
)
def test_no_cancel_is_offered_unless_several_tasks_failed_alike_and_some_still_wait(
    states: tuple[str, ...], rules: dict[str, Finding]
) -> None:
    assert failed_alike_lines(array_of(*states), rules, 80, shipped) == []


@pytest.mark.parametrize(
    ("numbers", "is_told"), [("17_2 17_3 17_[4-9]", False), ("17_0 17_4 17_[5-9]", False),
                             ("17_1 17_2 17_[3-9%2]", True), ("17_0 17_2 17_[4-8:2]", True)],
)  # fmt: skip
def test_no_cancel_is_offered_if_tasks_that_may_have_ended_well_have_left_the_queue(
    numbers: str, is_told: bool
) -> None:
    """Slurm lists an ended task for MinJobAge, five minutes."""
    first, second, rest = numbers.split()
    jobs = [
        make_job(first, state="FAILED"),
        make_job(second, state="FAILED"),
        make_job(rest, state="PENDING"),
    ]
    found = {first: named("COD001"), second: named("COD001")}
    assert bool(failed_alike_lines(fold(jobs)[0], found, 80, shipped)) is is_told


def test_a_long_state_or_number_of_a_task_does_not_run_into_the_next_word() -> None:
    folded = fold(
        [
            make_job("1234567_[10-99%4]", state="PENDING"),
            make_job("1234567_1", state="OUT_OF_MEMORY", nodes="node1"),
        ]
    )[0]
    words = text(task_lines(folded, folded.parts, NOW_S, 80)).split()
    assert {"1234567_[10-99%4]", "PENDING", "OUT_OF_MEMORY", "node1"} <= set(words)


def test_a_failed_task_shows_in_the_row_of_its_array() -> None:
    row = rows_of(array_of("FAILED", "RUNNING", "RUNNING")).row(0)
    reason = row.cells[[column.name for column in JOB_COLUMNS].index("reason")]
    assert (reason.text, reason.tone) == ("✖ 2 R 1 F", "critical")


def test_tasks_that_ran_out_of_memory_are_counted_by_squeue_s_short_name() -> None:
    row = rows_of(array_of("OUT_OF_MEMORY", "NODE_FAIL", "RUNNING", "RUNNING", "RUNNING")).row(0)
    reason = row.cells[[column.name for column in JOB_COLUMNS].index("reason")]
    assert reason.text == "✖ 3 R 1 OOM 1 NF"
