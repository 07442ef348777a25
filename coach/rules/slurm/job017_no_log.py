"""JOB017: a job failed and left no log, no metrics and no other data to diagnose."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shlex import quote

from coach import runs
from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.run import Run
from coach.rules.advice.placement import leave_out
from coach.rules.base import Need, Rule
from coach.rules.from_logs.outcome import was_never_started

_STATES = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "LAUNCH_FAILED"})
"""Failure states that should leave a log. Cancelled and preempted jobs need no explanation, and OUT_OF_MEMORY
is one itself."""

_NOT_STARTED = 128 + 53
"""The exit status as which coach reads Slurm's ExitCode 0:53."""


class NoLog(Rule):
    """The job failed and left no log.

    What it sees
        A failure state (FAILED, NODE_FAIL, TIMEOUT …) of a job that was started, with no log or an empty one,
        no metrics, and no explanation in exit.json.
    Why it matters
        The job ended before the program's first line of output: Slurm could not open the log file on the node
        (exit code 0:53), the node went down, or the site's prolog failed.
    When it stays silent
        On jobs that completed, were cancelled, preempted or killed for their memory, or never started (see
        JOB011), and if there are metrics or messages of the job. On a job that coach did not launch also if
        the place of its log is unknown, is /dev/null, or may not be read.
    What to do
        Check that the log's folder exists on the node and is writable there: `srun -w NODE ls -ld FOLDER`.
        Keep logs and runs on a file system that all nodes see. `sacct -j JOB -o
        State,ExitCode,NodeList,Reason` shows Slurm's record of the job. Report a node that fails again to the
        site's administrators, and leave it out meanwhile.
    Sources
        slurmstepd's handling of --output (exit by signal 53); Slurm's job state codes; slurm.conf(5), Prolog.
    """

    code = "JOB017"
    name = "no-log"
    cause = "no_log"
    severity = Severity.WARNING
    needs = (frozenset({Need.JOB_STATE}),)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        is_launched = snapshot.run is not None and bool(snapshot.run.launch)
        if not _has_failed(snapshot) or not (is_launched or (snapshot.run is None and snapshot.job)):
            return  # `coach run` does not redirect a command's output, so its run directory has no log
        if snapshot.log_tails or snapshot.log_hits or history.ranks or snapshot.events:
            return
        if not is_launched and not _is_log_missing(snapshot):
            return
        if snapshot.exit is not None and (
            snapshot.exit.refused or any(r.message for r in snapshot.exit.ranks)
        ):
            return
        status = snapshot.exit.exit_code if snapshot.exit is not None else None
        if status is not None:
            summary = f"The job ended with status {status} and printed nothing"
        else:
            summary = f"The job ended as {snapshot.state} and left no log"
        node = snapshot.job.nodes if snapshot.job is not None and snapshot.job.num_nodes == 1 else None
        yield Hit(
            summary=summary,
            evidence=tuple(_evidence(snapshot)),
            confidence=0.9 if is_launched else 0.85,
            subject=Subject(node=node),
            fixes=tuple(_fixes(snapshot, node)),
        )


def _has_failed(snapshot: TargetSnapshot) -> bool:
    return snapshot.state in _STATES and not was_never_started(snapshot)


def _evidence(snapshot: TargetSnapshot) -> Iterable[Evidence]:
    job, run = snapshot.job, snapshot.run
    reason = f", reason {job.reason}" if job is not None and job.reason not in (None, "", "None") else ""
    yield Evidence(f"state {snapshot.state}{reason}")
    status = job.exit_code if job is not None else None
    if snapshot.exit is not None and snapshot.exit.exit_code is not None:
        status = snapshot.exit.exit_code
    if status == _NOT_STARTED:
        yield Evidence("ExitCode 0:53: Slurm could not start the batch script")
    elif status is not None:
        yield Evidence("exit status", value=float(status))
    if job is not None and job.time_used_s is not None:
        yield Evidence("ran for", value=float(job.time_used_s), unit="s")
    for file in snapshot.log_files if run is None else ():
        yield Evidence(
            "it is empty" if file.is_found else "looked for here: there is no such file", file.path
        )
    if run is not None:
        output, errors = _logs(run)
        yield Evidence("here the log would be", str(output))
        yield Evidence("and its standard error would be here", str(errors))
    yield Evidence(
        "causes of a missing log: its folder does not exist or is not writable on the node, the node "
        "failed, its prolog failed"
    )


def _is_log_missing(snapshot: TargetSnapshot) -> bool:
    """True if the logs were searched for and none of them can hold output."""
    return bool(snapshot.log_files) and not any(
        file.is_found and file.problem is not None for file in snapshot.log_files
    )


def _logs(run: Run) -> tuple[Path, Path]:
    """The scheduler's output files. Slurm's are outside of the run directory, which only links to them."""
    if run.backend == "slurm":
        return runs.scheduler_logs(Path(run.run_dir).parent, Path(run.run_dir).name)
    paths = runs.RunPaths(run.run_dir)
    return paths.stdout_log, paths.stderr_log


def _fixes(snapshot: TargetSnapshot, node: str | None) -> Iterable[Fix]:
    path = _logs(snapshot.run)[0] if snapshot.run is not None else Path(snapshot.log_files[0].path)
    folder = quote(str(path.parent))
    on = f" -w {node}" if node else ""
    yield Fix(
        "See whether the node has the folder of the log, and may write there",
        command=f"srun{on} ls -ld {folder}",
    )
    job_id = (
        snapshot.job.job_id if snapshot.job is not None else snapshot.run.job_id if snapshot.run else None
    )
    if job_id is not None:
        yield Fix(
            "Ask Slurm what it knows",
            command=f"scontrol show job {job_id}"
            f" || sacct -j {job_id} -o JobID,State,ExitCode,Elapsed,NodeList,Reason",
        )
    yield from leave_out(snapshot.run, node, "if another node does it")
