"""The only place that calls sbatch; `job_control` changes existing jobs.

An import contract protects it, so that all code that can change a cluster is found in one short file.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from coach.analysis.queueing.arrays import is_job_id
from coach.launch.refusal import Refused, is_unanswered, slurms_words
from coach.model.errors import UserError
from coach.sources.commands import run_command
from coach.sources.io import scrubbed_environment

_LOOK_FIRST = "check the queue before you try again: the controller may have accepted the job"
_KEPT_SLURM_VARIABLES = ("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT")


class NoAnswer(UserError):
    """It is unknown if the controller accepted the order: it did not answer in time, or the answer cannot be
    read."""


def sbatch_command(script: Path, after_job: str | None = None) -> tuple[str, ...]:
    """The exact command of a submission. With `after_job` it waits for the end of that job."""
    dependency = (f"--dependency=afterany:{after_job}",) if after_job else ()
    return ("sbatch", "--parsable", *dependency, str(script))


def check_command(script: str) -> tuple[str, ...]:
    """The exact command that asks if Slurm would accept a script, and submits nothing."""
    return ("sbatch", "--test-only", script)


@dataclass(frozen=True, slots=True)
class Accepted:
    """A job in the queue, and the site's messages about it."""

    job_id: str
    lines: tuple[str, ...]


def submit(
    script: Path,
    env: Mapping[str, str],
    timeout_s: float,
    after_job: str | None = None,
    directory: str | None = None,
) -> Accepted:
    """Submit a script, from `directory` if the job shall start there.

    Raises Refused with Slurm's own words, and NoAnswer if it is unknown whether Slurm took the job.
    """
    if after_job is not None and not is_job_id(after_job):
        raise UserError(f"{after_job!r} is not a job id")
    return submit_command(sbatch_command(script, after_job), env, timeout_s, directory)


def submit_command(
    argv: Sequence[str],
    env: Mapping[str, str],
    timeout_s: float,
    directory: str | None = None,
    *,
    as_is: bool = False,
) -> Accepted:
    """Run a whole `sbatch --parsable …`. With `as_is` sbatch obeys the user's SBATCH_* variables and passes
    the whole environment on to the job. Raises as `submit` does."""
    returncode, output, lines = run_client(argv, env if as_is else job_environment(env), timeout_s, directory)
    if returncode != 0:
        raise Refused(lines or (f"exit status {returncode}",))
    # A site's wrapper may print lines of its own before the id. With several clusters it is JOB;CLUSTER.
    ids = [line.split(";")[0].strip() for line in output.splitlines()]
    job_id = next((each for each in reversed(ids) if is_job_id(each)), None)
    if job_id is None:
        raise NoAnswer(f"{argv[0]} reported success, but no job id: {output.strip()!r}", _LOOK_FIRST)
    return Accepted(job_id, lines)


def client_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for a client, in the C locale. Inside an allocation it would include the outer job's
    SLURM_* variables, which srun obeys and passes on, so they are left out."""
    return {
        key: value
        for key, value in scrubbed_environment(env).items()
        if not key.startswith("SLURM_") or key in _KEPT_SLURM_VARIABLES
    }


def job_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment for a client that passes it on to the user's programs: they keep the user's language.
    Slurm translates no message."""
    return {key: env[key] for key in client_environment(env) if key in env}


def run_client(
    argv: Sequence[str], env: Mapping[str, str], timeout_s: float, directory: str | None = None
) -> tuple[int, str, tuple[str, ...]]:
    """Exit status, standard output, and the lines of standard error of a client that has exactly this
    environment. Raises NoAnswer, or UserError if the client is missing."""
    try:
        done = run_command(argv, env, timeout_s, directory)
    except FileNotFoundError:
        raise UserError(f"{argv[0]}: command not found", "is Slurm's client on the PATH?") from None
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"{argv[0]}: no answer within {timeout_s:.0f} s", _LOOK_FIRST) from None
    except OSError as error:
        raise UserError(f"{argv[0]}: {error.strerror or error}") from None
    lines = slurms_words(done.stderr.decode("utf-8", "replace"))
    if done.returncode != 0 and is_unanswered(lines):
        raise NoAnswer(f"{argv[0]}: {' '.join(lines)}", _LOOK_FIRST)
    return done.returncode, done.stdout.decode("utf-8", "replace"), lines
