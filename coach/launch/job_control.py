"""The only place that changes a Slurm job: scancel, and scontrol's hold, release, requeue and update.

An import contract protects it, like `launch.submit`. Slurm reports a refusal per job and goes on with the
other jobs.
"""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Mapping, Sequence

from coach.analysis.queueing.arrays import is_job_id
from coach.analysis.spelling.slurm import format_time
from coach.launch.submit import client_environment, run_client
from coach.model.errors import UserError
from coach.model.slurm.job_action import LeftOut, Verb

_ABOUT_JOB = re.compile(
    r"^(?:\w+: )?(?:error: )?(?:"
    r"(?P<words>.+?) (?:for job|on job id) (?P<id>[\d_+\[\],%-]+)(?:: (?P<more>.+))?"
    r"|(?P<first>\d[\d_+,-]*): (?P<rest>.+))$"
)
_UNSPECIFIED = "Unspecified error"
"""scontrol prints only this when the site's job_submit plugin refuses. Only sbatch prints the plugin's own
message."""
_NO_WORDS = re.compile(r"^(?:\w+ error: )?No error$")


def action_command(verb: Verb, job_ids: Sequence[str], time_limit_s: int | None = None) -> tuple[str, ...]:
    """The exact command. Raises UserError for text that is not a job id: no other text may become a word of
    the command."""
    for job_id in job_ids:
        if not is_job_id(job_id):
            raise UserError(f"{job_id!r} is not a job id", "expected for example 17 or 17_3")
    if verb is Verb.CANCEL:
        return ("scancel", *job_ids)
    if verb is Verb.TIMELIMIT and time_limit_s is not None:
        limit = f"timelimit={format_time(time_limit_s)}"
        return ("scontrol", "update", f"jobid={','.join(job_ids)}", limit)
    return ("scontrol", str(verb), ",".join(job_ids))


def shell_command(job_id: str, shell: str) -> tuple[str, ...]:
    """The exact command that opens a shell beside a job's own steps. `job_id` must be a plain number: srun
    takes no other form."""
    if not job_id.isdecimal():
        raise UserError(f"{job_id!r} is not the number of a job")
    return ("srun", f"--jobid={job_id}", "--overlap", "--pty", shell)


def act(
    argv: Sequence[str], job_ids: Sequence[str], env: Mapping[str, str], timeout_s: float
) -> tuple[LeftOut, ...]:
    """Run the command. Returns the refused jobs with Slurm's words. Raises UserError if Slurm refused every
    job or did not answer."""
    returncode, _, lines = run_client(argv, client_environment(env), timeout_s)
    refused = refusals(lines)
    if returncode != 0 and not refused:
        raise UserError(f"{argv[0]}: {' '.join(lines) or f'exit status {returncode}'}")
    return tuple(LeftOut(_named(said, job_ids), words) for said, words in refused)


def refusals(lines: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """(job id, words) of each line that names a job. Lines without an error are left out."""
    found = []
    for text in lines:
        match = _ABOUT_JOB.match(text)
        if match is None:
            continue
        words = match["rest"] or match["more"] or match["words"]
        if words == _UNSPECIFIED:
            words += ": Slurm gives no reason; a site's own rules (job_submit) refuse in this way"
        if not _NO_WORDS.match(words):
            found.append((match["id"] or match["first"], words))
    return tuple(found)


def _named(said: str, job_ids: Sequence[str]) -> str:
    """The id that the command used for the job that Slurm names: Slurm spells array tasks in its own way."""
    if said in job_ids:
        return said
    base = re.split(r"[_+]", said, maxsplit=1)[0]
    return next((job_id for job_id in job_ids if re.split(r"[_+]", job_id, maxsplit=1)[0] == base), said)


def attach(argv: Sequence[str], env: Mapping[str, str]) -> int:
    """Run a command that takes over the terminal, wait for its end, and return its exit status."""
    before = {number: signal.signal(number, _wait_on) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        return subprocess.call(argv, env=dict(env))
    except FileNotFoundError:
        raise UserError(f"{argv[0]}: command not found", "is Slurm's client on the PATH?") from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _wait_on(number: int, frame: object) -> None:
    """Ignore Ctrl+C in coach, and leave it to the command. SIG_IGN would be inherited by the command; a
    handler is not."""
