"""Measure inside a job that coach did not launch: first show the command and its cost, then start one step
that streams.

Only here does coach enter a running job of somebody's, so everything that could harm the job is checked
first: the version, the memory that is left, and whether a sampler is there already.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from coach import runs
from coach.analysis.jobs.eligible_jobs import parts_of, why_not
from coach.config import Settings, Switch
from coach.launch.snapshot import code_dir, make_snapshot, snapshot_files
from coach.launch.submit import client_environment
from coach.model.errors import UserError
from coach.model.slurm.job_action import JobAction, QueuedJob, Step, Verb
from coach.sources.follow import describe
from coach.sources.io import Io
from coach.sources.slurm.job_allocation import (
    Allocation,
    allocation_query,
    memory_peak_mib,
    parse_allocation,
    parse_steps,
    steps_query,
)
from coach.sources.slurm.overlap_step import StreamSource, ask_why_no_step, step_command
from coach.sources.slurm.text import failure_of
from coach.workflows.jobs.own_jobs import Named, look_up, run_dir_of
from coach.workflows.readonly import refuse_if_readonly

LEAST_MEMORY_MIB = 200.0
"""A sampler needs a fifth of this; a job with less memory left may be killed for what coach adds."""
_SILENT_S = 60.0
"""A sampler that has written nothing for this long has stopped."""

_COST = (
    "it costs one job step and one row in the accounting; the job's own steps start and continue beside "
    "it, and it ends with the job"
)


def plan_attach(
    target: str, settings: Settings, env: Mapping[str, str], io: Io, python: str = sys.executable
) -> JobAction:
    """The exact command for one own running job. Raises UserError if it is not allowed or not possible."""
    refuse_if_readonly(settings, "starts no step in a job", Switch.ATTACH)
    named, row = _one_running(target, settings, env, io)
    _refuse_if_sampled(named, row, settings, io)
    allocation = _ask_allocation(row, io)
    code = code_dir(settings.runs_root, snapshot_files())
    sampler = (python, str(code / "coach" / "node"), "sample", "--stream")
    why_not_step = ask_why_no_step(io)
    if why_not_step is not None:
        raise UserError(
            f"job {row.job_id}: {why_not_step}", "start the training with `srun … coach run -- COMMAND`"
        )
    argv = step_command(row.raw_job_id, allocation.num_nodes, allocation.num_gpus_untold, sampler)
    return JobAction(
        Verb.ATTACH, (Step(argv, (row.job_id,)),), notes=(_COST, _memory_note(row, allocation, io))
    )


def begin_attach(settings: Settings) -> None:
    """Copy the sampler's code to a place that the nodes see. Raises UserError."""
    files = snapshot_files()
    try:
        make_snapshot(code_dir(settings.runs_root, files), files)
    except OSError as error:
        raise UserError(describe(error), "the runs root must be writable, and seen by the nodes") from None


def streams(action: JobAction, target: str, env: Mapping[str, str]) -> tuple[StreamSource, ...]:
    """One source for each command of the confirmed action."""
    return tuple(StreamSource(target, step.argv, client_environment(env)) for step in action.steps)


def _one_running(target: str, settings: Settings, env: Mapping[str, str], io: Io) -> tuple[Named, QueuedJob]:
    found, wrong = look_up((target,), settings, env, io)
    for _, error in wrong:
        raise error
    (named,) = found
    if isinstance(named, Step):
        raise UserError(f"{target}: it runs on this machine, where its own sampler measures it")
    rows = [part.row for part in parts_of(named.job_id, named.rows)]
    running = [row for row in rows if row.state == "RUNNING"]
    if len(running) == 1:
        return named, running[0]
    if running:
        names = ", ".join(row.job_id for row in running)
        raise UserError(f"a step is put into one job: {names} are running", "name one of them")
    why = why_not(Verb.ATTACH, rows[0].state) if rows else "Slurm does not know it, or has forgotten it"
    raise UserError(f"{named.subject}: {why}")


def _refuse_if_sampled(named: Named, row: QueuedJob, settings: Settings, io: Io) -> None:
    run_dir = run_dir_of(named, row.job_id, settings)
    if run_dir is None:
        return
    folder = runs.RunPaths(run_dir).telemetry_dir
    try:
        ages = [io.now() - io.modified_s(folder / name) for name in io.list_dir(folder)]
    except OSError:
        return
    if ages and min(ages) < _SILENT_S:
        raise UserError(
            f"{named.subject}: a sampler runs beside the training already",
            f"its numbers are in {folder}, and on the screen of the run",
        )


def _ask_allocation(row: QueuedJob, io: Io) -> Allocation:
    result = io.run(allocation_query(row.raw_job_id))
    if (why := failure_of(result)) is not None:
        raise UserError(f"job {row.job_id}: {why}")
    allocation = parse_allocation(result.text)
    if allocation is None:
        raise UserError(f"job {row.job_id}: Slurm does not report its resources on its nodes")
    return allocation


def _memory_note(row: QueuedJob, allocation: Allocation, io: Io) -> str:
    """A note on the job's unused memory. Raises UserError if it is too little."""
    if allocation.memory_mib is None:
        return "the job has no memory limit of its own; the sampler takes about 40 MiB on each node"
    result = io.run(steps_query((row.raw_job_id,)))
    peak = None
    if result.returncode == 0:
        peak = memory_peak_mib(parse_steps(result.text), allocation.num_nodes)
    if peak is None:
        why = failure_of(result) or "its steps are not measured yet"
        return (
            f"how much is left of the job's {allocation.memory_mib} MiB on each node is not known (sstat: "
            f"{why}); "
            "the sampler takes about 40"
        )
    left = allocation.memory_mib - peak
    if left < LEAST_MEMORY_MIB:
        raise UserError(
            f"job {row.job_id}: its steps have used up to {peak:.0f} of the {allocation.memory_mib} MiB "
            "that it has on a node: a sampler beside them could get the job killed",
            f"{LEAST_MEMORY_MIB:.0f} MiB must be left; give the next one more with --mem",
        )
    return (
        f"{left:.0f} MiB of the job's {allocation.memory_mib} are left at least (sstat: the peaks of all "
        "steps); "
        "the sampler takes about 40 on each node"
    )
