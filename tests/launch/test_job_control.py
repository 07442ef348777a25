"""The words of Slurm's clients about single jobs, as 22.05 printed them, and what may become a word of a
command."""

from __future__ import annotations

import pytest

from coach.launch.job_control import action_command, refusals, shell_command
from coach.model.errors import UserError
from coach.model.slurm.job_action import Verb


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("Invalid job id specified for job 999999", ("999999", "Invalid job id specified")),
        ("Access/permission denied for job 1726", ("1726", "Access/permission denied")),
        ("1731_2-3: Job is pending execution", ("1731_2-3", "Job is pending execution")),
        (
            "scancel: error: Kill job error on job id 1755: Access/permission denied",
            ("1755", "Access/permission denied"),
        ),
        (
            (
                "scancel: error: Kill job error on job id 1743+1: Operation not permitted on individual "
                "component"
            ),
            ("1743+1", "Operation not permitted on individual component"),
        ),
    ],
)
def test_a_refusal_names_its_job(line: str, told: tuple[str, str]) -> None:
    assert refusals([line]) == (told,)


@pytest.mark.parametrize("line", ["slurm_suspend error: No error", "1731_0-1: No error", ""])
def test_what_is_no_error_refuses_nothing(line: str) -> None:
    assert refusals([line]) == ()


@pytest.mark.parametrize("job_id", ["-f", "17; reboot", "17 18", "$(id)", "17\n", "jobid=1", ""])
@pytest.mark.parametrize(
    "verb", [verb for verb in Verb if verb not in (Verb.SHELL, Verb.ATTACH, Verb.RESUBMIT)]
)
def test_only_a_job_id_becomes_a_word_of_a_command(verb: Verb, job_id: str) -> None:
    with pytest.raises(UserError, match="not a job id"):
        action_command(verb, [job_id], 600)
    with pytest.raises(UserError, match="not the number"):
        shell_command(job_id, "/bin/sh")
