"""Each rung for measurements from inside a job reports if it works here, and why not."""

from __future__ import annotations

import pytest

from coach.model.judging.doctor_report import Check, CheckState
from coach.sources.io import CommandResult, Query
from coach.workflows.doctor.telemetry import judge_sstat, judge_step


def answer(status: int, stdout: str = "", stderr: str = "", error: str | None = None) -> CommandResult:
    query = Query("x", ("sstat", "-j", "17"))
    return CommandResult(query, status if error is None else None, stdout.encode(), stderr, 0.0, 0.0, error)


def words(check: Check) -> tuple[CheckState, str | None, str | None]:
    return check.state, check.value, check.because


@pytest.mark.parametrize(
    ("said", "is_open"), [("slurm-wlm 22.05.8", True), ("slurm 26.05.3", True), ("slurm 21.08.5", False)]
)
def test_a_step_beside_a_jobs_own_is_off_before_22_05_and_says_why(said: str, is_open: bool) -> None:
    check = judge_step(answer(0, said))
    assert (check.state is CheckState.OK) == is_open
    assert check.value == ("coach attach JOB" if is_open else "off")
    assert is_open or "21.08.5: before 22.05" in (check.because or "")


def test_a_site_whose_accounting_measures_no_gpu_says_so() -> None:
    config = {"JobAcctGatherType": "jobacct_gather/linux", "AccountingStorageTRES": "cpu,mem,gres/gpu"}
    assert words(judge_sstat(config, answer(0)))[1:] == (
        "answers (exit status 0)",
        "memory; no GPUs: gres/gpuutil is not in AccountingStorageTRES",
    )
    with_gpus = config | {"AccountingStorageTRES": "cpu,gres/gpumem,gres/gpuutil"}
    assert judge_sstat(with_gpus, answer(0)).because == "memory and GPUs"
    assert judge_sstat({"JobAcctGatherType": "jobacct_gather/none"}, None).value == "no"
    refused = judge_sstat(config, answer(1, stderr="sstat: error: no steps running for job 17\n"))
    assert words(refused) == (
        CheckState.WARNING,
        "refused",
        "no steps running for job 17 (sstat: exit status 1)",
    )
