"""JOB017: a job failed and left no log or an empty one, no metrics and no other data to diagnose."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote

from coach import runs
from coach.lookback.history import History
from coach.model.judging.finding import Evidence, Fix, Hit, Severity, Subject
from coach.model.snapshot import TargetSnapshot
from coach.model.training.log import LogTail
from coach.rules.advice.remedies import ask_slurm, leave_out
from coach.rules.base import Need, Rule
from coach.rules.from_logs.outcome import exit_status, state_evidence, time_evidence, was_never_started

_STATES = frozenset({"FAILED", "NODE_FAIL", "BOOT_FAIL", "TIMEOUT", "LAUNCH_FAILED"})
"""Failure states that should leave a log. Cancelled and preempted jobs need no explanation, and OUT_OF_MEMORY
is one itself."""

_NOT_STARTED = 128 + 53
"""The exit status as which coach reads Slurm's ExitCode 0:53."""


_MISSING = (
    "causes of a missing log: its folder does not exist or is not writable on the node, the node failed, its "
    "prolog failed"
)
_EMPTY = (
    "causes of an empty log: the program printed nothing, it was ended before it wrote its buffered output, "
    "or the node failed"
)


class NoLog(Rule):
    """The job failed and left no log, or an empty one.

    What it sees
        A failure state (FAILED, NODE_FAIL, TIMEOUT …) of a job that was started, with no log or an empty one,
        no metrics, and no explanation in exit.json.
    Why it matters
        The job ended before the program's first line of output. Without a log, Slurm could not open the file
        on the node (exit code 0:53), the node went down, or the site's prolog failed. With an empty log, the
        program printed nothing, or was ended before it wrote its buffered output.
    When it stays silent
        On jobs that completed, were cancelled, preempted or killed for their memory, or never started (see
        JOB011), and if there are metrics or messages of the job, or a log that may not be read and may hold
        output. On a job that coach did not launch also if the place of its log is unknown or is /dev/null.
    What to do
        No log: check that its folder exists on the node and is writable there: `srun -w NODE ls -ld FOLDER`.
        Keep logs and runs on a file system that all nodes see. `sacct -j JOB -o
        State,ExitCode,NodeList,Reason` shows Slurm's record of the job. Report a node that fails again to the
        site's administrators, and leave it out meanwhile. An empty log: `python -u` prints each line at once.
    Sources
        slurmstepd's handling of --output (exit by signal 53); Slurm's job state codes; slurm.conf(5), Prolog.
    """

    code = "JOB017"
    name = "no-log"
    cause = "no_log"
    severity = Severity.WARNING
    needs = (Need.JOB_STATE,)

    def check(self, snapshot: TargetSnapshot, history: History) -> Iterable[Hit]:
        is_launched = snapshot.run is not None and bool(snapshot.run.launch)
        if not _has_failed(snapshot) or _has_left_data(snapshot, history):
            return
        if not _is_log_known(snapshot, is_launched=is_launched):
            return
        status = snapshot.exit.exit_code if snapshot.exit is not None else None
        places = _places(snapshot)
        missing = [place for place, no_file in places if no_file]
        is_missing = bool(missing) or not places
        ended = f"with status {status}" if status is not None else f"as {snapshot.state}"
        left = "left no log" if is_missing else "printed nothing"
        node = snapshot.job.nodes if snapshot.job is not None and snapshot.job.num_nodes == 1 else None
        yield Hit(
            summary=f"The job ended {ended} and {left}",
            evidence=tuple(_evidence(snapshot, places, is_missing=is_missing)),
            confidence=0.9 if is_launched else 0.85,
            subject=Subject(node=node),
            fixes=tuple(_fixes(snapshot, missing, node, is_missing=is_missing)),
        )


def _has_failed(snapshot: TargetSnapshot) -> bool:
    return snapshot.state in _STATES and not was_never_started(snapshot)


def _is_log_known(snapshot: TargetSnapshot, *, is_launched: bool) -> bool:
    """True if it is known where the log would be, and that no file there may hold output."""
    is_unread = any(file.is_found and file.problem is not None for file in snapshot.log_files)
    if is_launched:
        return not is_unread or exit_status(snapshot) == _NOT_STARTED
    if snapshot.run is not None:
        return False  # `coach run` does not redirect a command's output, so its run directory has no log
    return snapshot.job is not None and bool(snapshot.log_files) and not is_unread


def _has_left_data(snapshot: TargetSnapshot, history: History) -> bool:
    """True if a log, the metrics or exit.json hold something to diagnose."""
    ended = snapshot.exit
    if ended is not None and (ended.refused is not None or any(rank.message for rank in ended.ranks)):
        return True
    if snapshot.log_hits or history.ranks or snapshot.events:
        return True
    return any(map(_has_output, snapshot.log_tails))


def _evidence(
    snapshot: TargetSnapshot, places: Sequence[tuple[Path, bool]], *, is_missing: bool
) -> Iterable[Evidence]:
    yield state_evidence(snapshot)
    status = exit_status(snapshot)
    if status == _NOT_STARTED:
        yield Evidence("ExitCode 0:53: Slurm could not start the batch script")
    elif status is not None:
        yield Evidence("exit status", value=float(status))
    yield from time_evidence(snapshot)
    for place, no_file in places:
        yield Evidence("looked for here: there is no such file" if no_file else "it is empty", str(place))
    if not places:
        yield Evidence("the batch file names the place of its log (--output); Slurm no longer tells it")
    yield Evidence(_MISSING if is_missing else _EMPTY)


def _has_output(tail: LogTail) -> bool:
    """True if a log holds more than coach's own verdict, whose lines are read as empty ones."""
    is_seen_in_part = tail.first_line > 1 or tail.unread_bytes > 0 or tail.is_binary
    return is_seen_in_part or any(map(str.strip, tail.lines))


def _places(snapshot: TargetSnapshot) -> list[tuple[Path, bool]]:
    """Each place of the job's output, and whether no file could be read there. A launched job's are those to
    which its run directory links; empty if only a batch file names them."""
    files = [(Path(file.path), not file.is_found or bool(file.problem)) for file in snapshot.log_files]
    run = snapshot.run
    if run is None:
        return files
    paths = runs.RunPaths(run.run_dir)
    links = (paths.stdout_log, paths.stderr_log)
    files = files or [(link, True) for link in links]
    if run.backend != "slurm":
        return files
    targets = dict(zip(links, runs.scheduler_logs(paths.run_dir.parent, paths.run_dir.name), strict=True))
    own = run.launch.get("own")
    is_batch = isinstance(own, Mapping) and own.get("kind") == "batch"
    return [
        (targets.get(place, place) if no_file else place, no_file)
        for place, no_file in files
        if not (is_batch and no_file and place in targets)
    ]


def _fixes(
    snapshot: TargetSnapshot, missing: Sequence[Path], node: str | None, *, is_missing: bool
) -> Iterable[Fix]:
    job, run = snapshot.job, snapshot.run
    is_slurm = run is None or run.backend == "slurm"
    if missing:
        folder_path = missing[0].parent
        on = f"srun{f' -w {quote(node)}' if node else ''} " if is_slurm else ""
        is_work_dir = job is not None and job.work_dir == str(folder_path)
        folder = (
            "job's working directory (--chdir), where its log would be"
            if is_work_dir
            else "folder of the log"
        )
        yield Fix(
            f"See whether the node has the {folder}, and may write there",
            command=f"{on}ls -ld {quote(str(folder_path))}",
        )
    elif not is_missing:
        yield Fix("Let Python print each line at once (`python -u`): lines in its buffer may be lost")
    if is_slurm and snapshot.job_id is not None:
        yield ask_slurm(snapshot.job_id)
    yield from leave_out(run, node, "if another node does it")
