"""The messages of Slurm's clients about single jobs, as 22.05 printed them, and the texts that may become a
word of a command."""

from __future__ import annotations

import pytest

from coach.launch.job_control import act, action_command, refusals, shell_command
from coach.model.errors import UserError
from coach.model.slurm.job_action import LeftOut, Verb


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
def test_a_line_without_an_error_refuses_no_job(line: str) -> None:
    assert refusals([line]) == ()


@pytest.mark.parametrize("job_id", ["-f", "17; reboot", "17 18", "$(id)", "17\n", "jobid=1", ""])
@pytest.mark.parametrize(
    "verb", [verb for verb in Verb if verb not in (Verb.SHELL, Verb.ATTACH, Verb.RESUBMIT, Verb.RESUME)]
)
def test_only_a_job_id_becomes_a_word_of_a_command(verb: Verb, job_id: str) -> None:
    with pytest.raises(UserError, match="not a job id"):
        action_command(verb, [job_id], 600)
    with pytest.raises(UserError, match="not the number"):
        shell_command(job_id, "/bin/sh")


@pytest.mark.parametrize(
    ("verb", "command"),
    [
        (Verb.CANCEL, "scancel 17 18_3"),
        (Verb.HOLD, "scontrol hold 17,18_3"),
        (Verb.RELEASE, "scontrol release 17,18_3"),
        (Verb.REQUEUE, "scontrol requeue 17,18_3"),
        (Verb.TIMELIMIT, "scontrol update jobid=17,18_3 timelimit=02:00:00"),
    ],
)
def test_each_action_names_all_jobs_in_the_words_of_its_client(verb: Verb, command: str) -> None:
    assert " ".join(action_command(verb, ["17", "18_3"], 7200)) == command


def test_a_shell_opens_beside_the_job_s_own_steps() -> None:
    assert shell_command("17", "/bin/zsh") == ("srun", "--jobid=17", "--overlap", "--pty", "/bin/zsh")


def client(says: str, status: int) -> tuple[str, ...]:
    """A command that prints the message of Slurm's client on its standard error."""
    return ("/bin/sh", "-c", 'echo "$1" >&2; exit "$2"', "sh", says, str(status))


def test_a_job_that_slurm_left_out_has_the_name_that_the_user_gave_it() -> None:
    left_out = act(client("1731_2-3: Job is pending execution", 1), ["17", "1731_2"], {}, 10)
    assert left_out == (LeftOut("1731_2", "Job is pending execution"),)
    assert act(client("999: Invalid job id", 1), ["17"], {}, 10) == (LeftOut("999", "Invalid job id"),)
    assert act(client("", 0), ["17"], {}, 10) == ()


def test_an_action_that_failed_without_naming_a_job_is_no_success() -> None:
    with pytest.raises(UserError, match="Invalid user"):
        act(client("scancel: error: Invalid user", 1), ["17"], {}, 10)
    with pytest.raises(UserError, match="exit status 1"):
        act(client("", 1), ["17"], {}, 10)
