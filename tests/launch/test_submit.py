"""The call of sbatch and the meaning of its answer: only one module calls it, so no job is lost or submitted
twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from coach.launch.refusal import Refused
from coach.launch.submit import (
    Accepted,
    NoAnswer,
    check_command,
    client_environment,
    sbatch_command,
    submit,
    submit_command,
)
from coach.model.errors import UserError

SCRIPT = Path("/runs/x/job.sh")


def sbatch(prints: str, says: str = "", status: int = 0) -> tuple[str, ...]:
    """A command that answers as sbatch would."""
    return (
        *("/bin/sh", "-c", 'printf "%s\\n" "$1"; printf "%s\\n" "$2" >&2; exit "$3"'),
        *("sh", prints, says, str(status)),
    )


def test_a_launch_from_inside_a_job_does_not_inherit_that_job_s_resources() -> None:
    outer = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "8", "SBATCH_PARTITION": "x", "SQUEUE_FORMAT": "%i"}
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_CONF_SERVER": "ctl", "SLURM_JWT": "t", "PATH": "/bin"}
    assert client_environment({**outer, **kept, "LC_ALL": "de_DE"}) == {**kept, "LC_ALL": "C"}


def test_a_job_keeps_the_language_of_the_user_and_a_file_as_it_is_keeps_all() -> None:
    said = {"LC_ALL": "de_DE.UTF-8", "SBATCH_ACCOUNT": "lab", "SLURM_NTASKS": "8"}
    show = ("/bin/sh", "-c", 'echo "$LC_ALL,$SBATCH_ACCOUNT,$SLURM_NTASKS" >&2; echo 17')
    assert submit_command(show, said, 10).lines == ("de_DE.UTF-8,,",)
    assert submit_command(show, {}, 10).lines == (",,",)
    assert submit_command(show, said, 10, as_is=True).lines == ("de_DE.UTF-8,lab,8",)


def test_the_words_of_a_submission_are_the_script_and_the_job_that_it_waits_for() -> None:
    assert sbatch_command(SCRIPT) == ("sbatch", "--parsable", "/runs/x/job.sh")
    assert sbatch_command(SCRIPT, "17_3")[1:3] == ("--parsable", "--dependency=afterany:17_3")
    assert check_command("job.sh") == ("sbatch", "--test-only", "job.sh")
    with pytest.raises(UserError, match="'17 --wrap=id' is not a job id"):
        submit(SCRIPT, {}, 10, "17 --wrap=id")


@pytest.mark.parametrize(
    ("prints", "job_id"),
    [
        *(("17", "17"), ("17;cluster", "17"), ("20+1", "20+1"), (" 17 ", "17")),
        ("Welcome to lab. 80 % of your hours are used.\n\n17;lab\n", "17"),
        ("2026\n17", "17"),
    ],
)
def test_the_number_that_sbatch_prints_is_the_job_s(prints: str, job_id: str) -> None:
    assert submit_command(sbatch(prints, "sbatch: info: 3 nodes"), {}, 10).job_id == job_id


@pytest.mark.parametrize("prints", ["", "Submitted batch job 17", "17 18", "-1"])
def test_an_answer_without_a_job_id_leaves_it_unknown_if_slurm_took_the_job(prints: str) -> None:
    with pytest.raises(NoAnswer, match="no job id"):
        submit_command(sbatch(prints), {}, 10)


def test_a_submission_starts_where_the_job_is_to_start(tmp_path: Path) -> None:
    (tmp_path / "17").mkdir()
    assert submit_command(("/bin/ls",), {}, 10, str(tmp_path)) == Accepted("17", ())


def test_a_refusal_differs_from_a_controller_that_did_not_answer() -> None:
    with pytest.raises(Refused) as refused:
        submit_command(sbatch("", "sbatch: error: Invalid qos specification", 1), {}, 10)
    assert not isinstance(refused.value, NoAnswer)
    assert refused.value.lines == ("Invalid qos specification",)
    with pytest.raises(Refused) as refused:
        submit_command(sbatch("", "", 3), {}, 10)
    assert refused.value.lines == ("exit status 3",)
    lost = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
    with pytest.raises(NoAnswer, match="Socket timed out"):
        submit_command(sbatch("", lost, 1), {}, 10)
    assert submit_command(sbatch("17", lost), {}, 10).job_id == "17"
    with pytest.raises(NoAnswer, match="no answer within") as late:
        submit_command(("/bin/sleep", "30"), {}, 0.05)
    assert late.value.hint is not None
    assert "check the queue" in late.value.hint


def test_a_missing_or_broken_client_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="sbatch-gone: command not found"):
        submit_command(("sbatch-gone",), {"PATH": "/nowhere"}, 10)
    broken = tmp_path / "sbatch"
    broken.touch()
    with pytest.raises(UserError, match="Permission denied"):
        submit_command((str(broken),), {}, 10)
