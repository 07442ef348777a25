"""List the rungs by which measurements can come from inside a job here, best first, and why the others
cannot.

Nothing is put into a job to find that out: whether a step is possible is judged by the version alone, because
trying it would enter somebody's job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec

from coach.model.judging.doctor_report import OK, UNKNOWN, WARNING, Check, CheckState
from coach.model.slurm.cluster import Job
from coach.sources.io import CommandResult, Io
from coach.sources.slurm.job_allocation import steps_query
from coach.sources.slurm.overlap_step import VERSION_QUERY, why_no_step
from coach.sources.slurm.text import failure_words

AREA = "telemetry"
_NO_JOB = "not tried: you have no running job"
_MAX_JOBS = 20


def look_at_telemetry(jobs: Sequence[Job], config: Mapping[str, str] | None, io: Io) -> list[Check]:
    """All rungs. `jobs` are the user's own."""
    running = [job for job in jobs if job.state == "RUNNING" and job.raw_job_id is not None]
    ids = [job.raw_job_id for job in running[:_MAX_JOBS] if job.raw_job_id is not None]
    return [
        judge_sampler(find_spec("pynvml") is not None),
        judge_step(io.run(VERSION_QUERY)),
        judge_sstat(config, io.run(steps_query(ids)) if ids else None),
    ]


def judge_sampler(has_nvml: bool) -> Check:
    """The sampler that measures beside the trainings that coach starts."""
    value = "beside every launch, and coach run -- COMMAND"
    if has_nvml:
        return _check("sampler", OK, value)
    because = "coach's Python has no pynvml, so GPUs are measured only where the training's has it"
    return _check("sampler", WARNING, value, because, "pip install nvidia-ml-py")


def judge_step(version: CommandResult) -> Check:
    """Whether a step can be added to a job that coach did not launch."""
    name = "step in a job"
    if version.returncode != 0:
        return _check(name, UNKNOWN, None, _said(version))
    version_text = version.text.strip()
    why = why_no_step(version_text)
    if why is not None:
        todo = "start the training with `srun … coach run -- COMMAND`"
        return _check(name, WARNING, "off", why, todo)
    because = "srun --overlap shares CPUs, memory and GPUs from 22.05 on; it asks before each"
    return _check(name, OK, "coach attach JOB", f"{version_text} (exit status 0); {because}")


def judge_sstat(config: Mapping[str, str] | None, result: CommandResult | None) -> Check:
    """Whether Slurm itself measures running steps: memory always, GPUs where the site accounts for them."""
    name = "sstat"
    gathers = (config or {}).get("JobAcctGatherType", "")
    if gathers.endswith("/none"):
        return _check(name, OK, "no", f"JobAcctGatherType={gathers}: the site measures no step")
    has_gpus = "gres/gpuutil" in (config or {}).get("AccountingStorageTRES", "")
    what = "memory and GPUs" if has_gpus else "memory; no GPUs: gres/gpuutil is not in AccountingStorageTRES"
    if result is None:
        return _check(name, OK, _NO_JOB, what)
    if result.returncode != 0:
        return _check(name, WARNING, "refused", _said(result))
    return _check(name, OK, "answers (exit status 0)", what)


def _said(result: CommandResult) -> str:
    if result.error is not None:
        return result.error
    words = failure_words(result.stderr)
    return f"{words or 'no word'} ({result.query.argv[0]}: exit status {result.returncode})"


def _check(
    what: str, state: CheckState, value: str | None, because: str | None = None, todo: str | None = None
) -> Check:
    return Check(AREA, what, state, value, because, todo, is_needed=False)
