"""Take the stacks of every rank of a running training: one short step beside it on all its nodes.

Two steps, as for every action inside a job: first show the exact command, then, once confirmed, run it.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path, PurePath
from shutil import which
from typing import Any

from coach import installed, runs
from coach.analysis.measured.stack_groups import merge, report
from coach.config import Settings, Switch
from coach.launch.snapshot import code_dir, make_snapshot, snapshot_files
from coach.launch.submit import client_environment
from coach.model.errors import UserError
from coach.model.launching.environment import EnvironmentKind
from coach.model.slurm.job_action import Step
from coach.model.training.stacks import Stacks, StacksPlan
from coach.sources.io import Io, Query, SystemIo
from coach.sources.metrics.stack_dumps import read_stacks
from coach.sources.slurm.overlap_step import ask_why_no_step
from coach.workflows.jobs.own_jobs import Named, NotYours, look_up, run_dir_of
from coach.workflows.readonly import refuse_if_readonly

NODE_TIMEOUT_S = 10.0
"""Seconds that a node has for all its ranks."""
STEP_TIMEOUT_S = 15.0
"""Seconds that the step has, from its command to its last node."""
_ARRIVAL_S = 2.0
"""Seconds until a file that a node has written is visible here."""
_OWN_ENVIRONMENTS = frozenset({EnvironmentKind.VENV, EnvironmentKind.CONDA})
"""Environments whose interpreter starts by its path alone, outside of any container."""


def plan_stacks(
    target: str, settings: Settings, env: Mapping[str, str], io: Io, python: str | None = None
) -> StacksPlan:
    """Plan it for an own run or job that is running. `python` is an interpreter that its nodes see. Raises
    UserError."""
    refuse_if_readonly(settings, "starts nothing beside a job", Switch.STACKS)
    found, wrong = look_up((target,), settings, env, io)
    if not found:
        error = wrong[0][1]
        if isinstance(error, NotYours) and os.geteuid() == 0:
            hint = f"Slurm starts a step only for its owner: runuser -u OWNER -- coach stacks {target}"
            raise UserError(error.message, hint)
        raise error
    if isinstance(found[0], Step):
        return _plan_local(found[0], settings)
    return _plan_job(found[0], settings, io, python)


def take_stacks(plan: StacksPlan, settings: Settings, env: Mapping[str, str]) -> Stacks:
    """Take the stacks, and keep them with a summary. Raises UserError if no node answered."""
    try:
        runs.private_folder(plan.folder)
        if plan.argv[0] == "srun" or installed.one_file() is not None:
            files = snapshot_files()
            make_snapshot(code_dir(settings.runs_root, files), files)
    except OSError as error:
        raise UserError(f"{error.filename}: {error.strerror}", "the stacks are kept there") from None
    done = SystemIo(client_environment(env)).run(Query("stacks", plan.argv), STEP_TIMEOUT_S)
    deadline_s = time.monotonic() + _ARRIVAL_S
    found = read_stacks(plan.folder)
    while done.returncode == 0 and len(found) < plan.num_nodes and time.monotonic() < deadline_s:
        time.sleep(0.1)
        found = read_stacks(plan.folder)
    because = done.error or " ".join(done.stderr.split()) or None
    if not found:
        raise UserError(
            f"{plan.subject}: no stacks: {because or f'exit status {done.returncode}'}", _hint(because)
        )
    ranks = tuple(rank for of_node in found.values() for rank in of_node)
    silent = max(0, plan.num_nodes - len(found))
    stacks = Stacks(ranks, str(plan.folder), plan.num_nodes, silent, because if silent else None)
    rows = report(stacks, merge(stacks))
    text = "".join(f"{' ' * row.indent}{row.text}\n" for row in rows)
    runs.write_atomic(plan.folder / "summary.txt", text)
    return stacks


def _plan_local(step: Step, settings: Settings) -> StacksPlan:
    run_id, supervisor = step.job_ids[0], step.argv[-1]
    folder = runs.RunPaths(str(step.run_dir)).stacks_dir / _stamp()
    is_one_file = installed.one_file() is not None
    code = code_dir(settings.runs_root, snapshot_files()) / "coach" if is_one_file else installed.package()
    argv = (sys.executable, *_words(code / "node", folder), "--pid", supervisor)
    return StacksPlan(run_id, argv, folder, 1, must_ask=False)


def _plan_job(named: Named, settings: Settings, io: Io, python: str | None) -> StacksPlan:
    rows = [row for row in named.rows if row.job_id == named.job_id] or list(named.rows)
    running = [row for row in rows if row.state == "RUNNING"]
    if len(running) != 1:
        states = ", ".join(sorted({row.state for row in rows}))
        hint = "name one of its tasks, for example 17_3" if running else "only a running job has stacks"
        raise UserError(f"{named.subject}: stacks are taken of one running job; it is {states}", hint)
    row = running[0]
    if row.num_nodes is None:
        raise UserError(f"{named.subject}: Slurm does not say on how many nodes it runs")
    too_old = ask_why_no_step(io)
    if too_old is not None:
        raise UserError(too_old)
    run_dir = run_dir_of(named, row.job_id, settings)
    run_json = _read(run_dir)
    folder = runs.RunPaths(run_dir).stacks_dir if run_dir else settings.cache_dir / "stacks" / named.job_id
    folder /= _stamp()
    words = _words(code_dir(settings.runs_root, snapshot_files()) / "coach" / "node", folder)
    # Without these counts the step would run on the first node only.
    size = (f"--nodes={row.num_nodes}", f"--ntasks={row.num_nodes}", "--ntasks-per-node=1")
    options = (f"--jobid={row.raw_job_id}", "--overlap", *size, "--job-name=coach-stacks")
    argv = ("srun", *options, python or _interpreter(run_json), *words)
    is_foreign = run_json.get("submitted_time_s") is None
    return StacksPlan(named.subject, argv, folder, row.num_nodes, must_ask=is_foreign)


def _words(code: Path, folder: Path) -> tuple[str, ...]:
    beside = which("py-spy", path=str(Path(sys.executable).parent)) or which("py-spy")
    own = ("--py-spy", beside) if beside else ()
    return ("-E", str(code), "stacks", "--out", str(folder), "--timeout", f"{NODE_TIMEOUT_S:g}", *own)


def _interpreter(run_json: Mapping[str, Any]) -> str:
    """An interpreter that starts on a node by its path alone: the training's own, else coach's, which lies in
    a home directory or on a shared disk."""
    environment = run_json.get("environment")
    if isinstance(environment, Mapping):
        python, kind = environment.get("python"), environment.get("kind")
        is_alone = kind is None or kind in _OWN_ENVIRONMENTS
        if is_alone and isinstance(python, str) and PurePath(python).is_absolute():
            return python
    return sys.executable


def _read(run_dir: Path | None) -> dict[str, Any]:
    try:
        return runs.read_own_record(run_dir) if run_dir else {}
    except runs.RunFileError as error:
        raise UserError(str(error)) from None


def _stamp() -> str:
    return time.strftime("%Y%m%d-%H%M%S")


def _hint(because: str | None) -> str | None:
    if because is not None and "execve" in because:
        return "--python names an interpreter that the nodes of the job see (3.9 or newer)"
    return None
