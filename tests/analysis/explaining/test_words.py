from __future__ import annotations

import pytest

from coach.analysis.explaining.texts import COLUMNS, JOB_STATES
from coach.analysis.explaining.words import explain_column, explain_word
from coach.analysis.queueing import pending_reasons
from coach.model.slurm.cluster import FINAL_STATES
from coach.tui.render import cluster, cohort, drills, findings, history, new_launch, queue, recipes, runs

TABLES = {
    "queue": queue.JOB_COLUMNS,
    "nodes": cluster.NODE_COLUMNS,
    "runs": runs.RUN_COLUMNS,
    "findings": findings.FINDING_COLUMNS,
    "past": history.HISTORY_COLUMNS,
    "launchables": new_launch.LAUNCH_COLUMNS,
    "ladder": recipes.RECIPE_COLUMNS,
    "drills": drills.DRILL_COLUMNS,
    "cohort": cohort.COHORT_COLUMNS,
}
OF_THE_MANUAL = [
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "CONFIGURING",
    "COMPLETING",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PENDING",
    "PREEMPTED",
    "RUNNING",
    "RESV_DEL_HOLD",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "REQUEUED",
    "RESIZING",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "SUSPENDED",
    "TIMEOUT",
]
"""Job state codes in the manual of squeue."""


@pytest.mark.parametrize("table", TABLES)
def test_every_column_has_a_meaning_and_a_source(table: str) -> None:
    for column in TABLES[table]:
        what, origin, _ = COLUMNS[f"{table}.{column.name}"]
        assert what
        assert origin


def test_every_state_of_slurm_is_explained_with_a_remedy() -> None:
    assert {*OF_THE_MANUAL, *FINAL_STATES} <= JOB_STATES.keys()
    told = explain_column("queue", "state", "STATE", "OUT_OF_MEMORY", "jobs")
    assert told is not None
    assert "more --mem" in told.to_do
    assert told.source == "jobs"


def test_a_stopped_job_continues_by_a_signal_and_not_by_scontrol_resume() -> None:
    told = explain_column("queue", "state", "STATE", "STOPPED", "jobs")
    assert told is not None
    assert told.to_do == "scancel --signal=CONT continues it"  # `scontrol resume` takes SUSPENDED jobs only


def test_a_state_with_a_sign_or_a_count_is_known() -> None:
    for shown in ("✖ TIMEOUT", "3 TIMEOUT", "TIMEOUT"):
        told = explain_column("past", "state", "STATE", shown, None)
        assert told is not None
        assert "time limit" in told.what


@pytest.mark.parametrize("reason", sorted(pending_reasons._REASONS))
def test_a_command_explains_every_reason(reason: str) -> None:
    told = explain_word(reason)
    assert told is not None
    assert told.what
    assert told.to_do


def test_an_unknown_word_has_no_explanation() -> None:
    assert explain_word("squirrel") is None
    drained = explain_word("idle+drain")
    assert drained is not None
    assert "takes no new jobs" in drained.what


def test_a_value_from_the_sampler_does_not_get_the_age_of_the_queue() -> None:
    by_squeue = explain_column("queue", "left", "LEFT", "5:00", "jobs")
    measured = explain_column("queue", "use", "USE", "97 %", "jobs")
    assert by_squeue is not None
    assert measured is not None
    assert (by_squeue.source, measured.source) == ("jobs", None)
