"""Act on own jobs: first show the exact commands, then, once confirmed, run exactly those.

Two steps, because nothing irreversible happens before its text is shown.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from coach import runs
from coach.analysis.jobs.eligible_jobs import (
    Part,
    in_batches,
    names_for,
    parts_of,
    rows_by_id,
    why_not,
    why_not_limit,
)
from coach.config import Settings, Switch
from coach.launch import job_control, local
from coach.launch.submit import job_environment
from coach.model.errors import UserError
from coach.model.slurm.cluster import is_final
from coach.model.slurm.job_action import JobAction, LeftOut, Outcome, QueuedJob, Step, Verb
from coach.node import share
from coach.sources.io import Io
from coach.sources.slurm.overlap_step import ask_why_no_step
from coach.workflows.jobs.lost_work import lost_of_job, lost_of_local
from coach.workflows.jobs.own_jobs import HasEnded, Named, look_up, run_dir_of, run_dirs_of
from coach.workflows.readonly import refuse_if_readonly

__all__ = ["HasEnded", "perform", "plan_action"]

_WITH_A_SCRIPT = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING"})
"""States in which the batch script runs, and will record how it ended."""

_PAGER = "less"
SWITCH_OF: Mapping[Verb, Switch] = {
    Verb.CANCEL: Switch.CANCEL,
    Verb.HOLD: Switch.HOLD,
    Verb.RELEASE: Switch.HOLD,
    Verb.REQUEUE: Switch.REQUEUE,
    Verb.TIMELIMIT: Switch.TIMELIMIT,
    Verb.RESUBMIT: Switch.RESUBMIT,
    Verb.SHELL: Switch.SHELL,
    Verb.ATTACH: Switch.ATTACH,
}
_REFUSED_WORDS = {Verb.CANCEL: "cancels nothing", Verb.SHELL: "opens no shell in a job"}
_NOTES = {
    Verb.REQUEUE: ("a job that is requeued starts again, from its first line",),
    Verb.SHELL: (
        "it costs a job step; the job's own steps continue beside it",
        "exit, or Ctrl+D, comes back",
    ),
}


def plan_action(
    verb: Verb,
    targets: Sequence[str],
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    time_limit_s: int | None = None,
) -> JobAction:
    """Plan an action on own runs and jobs. Raises UserError if it is possible for none of them."""
    refuse_if_readonly(settings, _REFUSED_WORDS.get(verb, "changes no job"), SWITCH_OF[verb])
    found, wrong = look_up(targets, settings, env, io)
    left_out = list(wrong)
    steps: list[Step] = []
    touched: list[tuple[Named, tuple[str, ...]]] = []
    jobs: list[QueuedJob] = []
    for each in found:
        if isinstance(each, Step):
            if verb is Verb.CANCEL:
                steps.append(each)
                jobs += filter(None, (each.row,))
            else:
                run_id = each.job_ids[0]
                left_out.append((run_id, UserError(f"{run_id}: it runs on this machine, outside of Slurm")))
            continue
        named, rows, why = _names(verb, each, time_limit_s)
        left_out += why
        if named:
            touched.append((each, named))
            jobs += rows
    names = list(dict.fromkeys(name for _, named in touched for name in named))
    chosen = [each for each, _ in touched]
    if not steps and not names:
        raise _nothing_left(left_out)
    if verb is Verb.SHELL:
        steps = [_shell_step(chosen, env, io)]
    else:
        for batch in in_batches(names):
            steps.append(Step(job_control.action_command(verb, batch, time_limit_s), batch))
    return JobAction(
        verb,
        tuple(steps),
        tuple(LeftOut(target, _reason(target, error)) for target, error in left_out),
        tuple(dict.fromkeys(jobs)),
        (*_NOTES.get(verb, ()), *_lost(verb, chosen, steps, settings, io)),
        _waiting(touched, settings) if verb is Verb.CANCEL else (),
        settings.slurm_timeout_s,
    )


def perform(action: JobAction, env: Mapping[str, str], now_s: float) -> Outcome:
    """Run the commands one after the other. Raises UserError in Slurm's words if none succeeded."""
    done: list[str] = []
    refused: list[LeftOut] = []
    for step in action.steps:
        try:
            no = _take(step, env, action.timeout_s)
        except UserError as error:
            if not done:
                raise
            no = tuple(LeftOut(job_id, error.message) for job_id in step.job_ids)
        refused += no
        done += [job_id for job_id in step.job_ids if job_id not in {each.job_id for each in no}]
    if not done:
        raise UserError(f"{action.steps[0].argv[0]}: " + "; ".join(each.words for each in refused))
    waiting = [run_dir for job_id, run_dir in action.waiting_run_dirs if job_id in done]
    problems = (_record_end(runs.RunPaths(run_dir), now_s) for run_dir in waiting)
    return Outcome(action.verb, tuple(done), tuple(refused), tuple(filter(None, problems)))


def _take(step: Step, env: Mapping[str, str], timeout_s: float) -> tuple[LeftOut, ...]:
    """Run one command; returns the jobs that Slurm refused. Raises UserError if it did nothing."""
    if step.run_dir is None:
        return job_control.act(step.argv, step.job_ids, env, timeout_s)
    try:
        local.cancel(Path(step.run_dir))
    except runs.RunFileError as error:
        raise UserError(str(error)) from None
    return ()


def _record_end(paths: runs.RunPaths, now_s: float) -> str | None:
    """Write the end of a cancelled run into run.json. Returns the problem, if any: its job is cancelled all
    the same."""
    try:
        runs.update_json(paths.run_json, {"state": "CANCELLED", "ended_time_s": now_s})
    except OSError as error:
        return f"its end could not be recorded: {paths.run_json}: {error.strerror or error}"
    except runs.RunFileError as error:
        return f"its end could not be recorded: {error}"
    share.share_in_time(paths)
    return None


def open_shell(action: JobAction, env: Mapping[str, str]) -> int:
    """Give the terminal to a shell until the user leaves it; returns its exit status."""
    return job_control.attach(action.steps[0].argv, job_environment(env))


def open_pager(file: str, env: Mapping[str, str]) -> int:
    """Give the terminal to `$PAGER`, or to less, until the user leaves it; returns its exit status.

    The file is an argument of its own: no shell reads its name. Raises UserError if there is no pager.
    """
    said = env.get("PAGER", "").strip() or _PAGER
    try:
        argv = shlex.split(said)
    except ValueError as problem:
        raise UserError(f"PAGER: {said!r}: {problem}", f"for example PAGER={_PAGER}") from None
    if shutil.which(argv[0], path=env.get("PATH")) is None:
        raise UserError(f"PAGER: there is no program {argv[0]!r}", f"for example PAGER={_PAGER}")
    return job_control.attach([*argv, file], env)


def _names(
    verb: Verb, named: Named, time_limit_s: int | None
) -> tuple[tuple[str, ...], list[QueuedJob], list[tuple[str, UserError]]]:
    """The names for the command, the rows that it changes, and the targets left out, with the reason."""
    parts = parts_of(named.job_id, named.rows)
    if not parts:
        return (
            (),
            [],
            [(named.job_id, UserError(f"{named.subject}: Slurm does not know it, or has forgotten it"))],
        )
    accepted: list[Part] = []
    left_out: list[tuple[str, UserError]] = []
    for part in parts:
        why = why_not(verb, part.row.state, part.row.reason, part.row.can_requeue)
        if why is None and time_limit_s is not None:
            why = why_not_limit(part.row, time_limit_s)
        if why is None:
            accepted.append(part)
        elif len(parts) == 1 or not is_final(part.row.state):  # ended tasks need no note
            kind = HasEnded if is_final(part.row.state) else UserError
            left_out.append((part.name, kind(f"job {part.name}: {why}")))
    if not accepted:
        if not left_out:
            left_out.append((named.job_id, HasEnded(f"{named.subject}: it has ended already")))
        return (), [], left_out
    if verb is Verb.SHELL:
        return tuple(part.row.raw_job_id for part in accepted), _rows(accepted), left_out
    names, unnamed = names_for(verb, named.job_id, accepted, named.rows)
    left_out += [(each.job_id, UserError(f"job {each.words}")) for each in unnamed]
    return names, _rows(accepted, unnamed), left_out


def _rows(parts: Iterable[Part], left_out: Sequence[LeftOut] = ()) -> list[QueuedJob]:
    """A row for each part that is not left out."""
    unnamed = {each.job_id for each in left_out}
    return [replace(part.row, job_id=part.name) for part in parts if part.name not in unnamed]


def _shell_step(touched: Sequence[Named], env: Mapping[str, str], io: Io) -> Step:
    rows = [
        part.row
        for each in touched
        for part in parts_of(each.job_id, each.rows)
        if part.row.state == "RUNNING"
    ]
    if len(rows) != 1:
        running = ", ".join(row.job_id for row in rows)
        raise UserError(f"a shell is opened in one job: {running} are running", "name one of them")
    too_old = ask_why_no_step(io)
    if too_old is not None:
        raise UserError(too_old)
    row = rows[0]
    return Step(job_control.shell_command(row.raw_job_id, env.get("SHELL") or "/bin/sh"), (row.job_id,))


def _lost(
    verb: Verb, touched: Sequence[Named], steps: Sequence[Step], settings: Settings, io: Io
) -> tuple[str, ...]:
    """The work that the action loses, for a single running job: for several at once the list would be
    unreadable."""
    if verb is Verb.CANCEL and not touched and len(steps) == 1 and steps[0].run_dir is not None:
        return lost_of_local(io, Path(steps[0].run_dir))
    if verb not in (Verb.CANCEL, Verb.REQUEUE) or len(touched) != 1:
        return ()
    running = [
        part.row for part in parts_of(touched[0].job_id, touched[0].rows) if part.row.state == "RUNNING"
    ]
    if len(running) != 1:
        return ()
    job_id = running[0].job_id
    return lost_of_job(io, job_id, run_dir_of(touched[0], job_id, settings), settings)


def _waiting(
    touched: Sequence[tuple[Named, tuple[str, ...]]], settings: Settings
) -> tuple[tuple[str, str], ...]:
    """The name in the command and the directory of each run that will not record its end itself. The name may
    be that of the run's whole array."""
    found = run_dirs_of([each for each, _ in touched], settings)
    waiting = []
    for each, names in touched:
        for job_id, rows in rows_by_id(each.job_id, each.rows).items():
            run_dir = found.get(job_id)
            if run_dir is None or all(is_final(row.state) for row in rows):
                continue
            has_script = any(row.state in _WITH_A_SCRIPT for row in rows)
            if not has_script or _started(run_dir) is None:
                waiting += [(name, str(run_dir)) for name in names]
    return tuple(waiting)


def _started(run_dir: Path) -> object:
    try:
        return runs.read_own_record(run_dir).get("started_time_s")
    except runs.RunFileError as error:
        raise UserError(str(error)) from None


def _nothing_left(left_out: Sequence[tuple[str, UserError]]) -> UserError:
    if len(left_out) == 1:
        return left_out[0][1]
    kind = HasEnded if all(isinstance(error, HasEnded) for _, error in left_out) else UserError
    return kind("nothing can be done: " + "; ".join(error.message for _, error in left_out))


def _reason(target: str, error: UserError) -> str:
    """The error's message without the target's name in front, which is shown beside it."""
    for prefix in (f"job {target}: ", f"{target}: "):
        if error.message.startswith(prefix):
            return error.message.removeprefix(prefix)
    return error.message
