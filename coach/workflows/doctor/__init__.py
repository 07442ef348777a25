"""Report what works here and what does not, before anybody waits in a queue to find out.

Screen, text and JSON show one report. All questions are asked at the same time, each once and with a limit,
so a dead controller or file server costs seconds and is reported as such.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace

from coach import runs
from coach.config import Settings
from coach.launch.recipe import data_dir
from coach.launch.resources import Site
from coach.model.errors import UserError
from coach.model.judging.doctor_report import OK, Check, Report
from coach.sources.io import Io
from coach.sources.machine.terminal import Terminal
from coach.sources.machine.user import user_name
from coach.sources.slurm.configuration import ACCOUNTING_QUERY, CONFIG_QUERY, PING_QUERY, parse_config
from coach.sources.slurm.queue import jobs_query, parse_jobs
from coach.sources.slurm.text import failure_of
from coach.workflows.backend import resolve_backend, why_no_local_backend
from coach.workflows.doctor import here, slurm
from coach.workflows.doctor.environments import environment_probes
from coach.workflows.doctor.launching import look_at_launch
from coach.workflows.doctor.places import place_probes
from coach.workflows.doctor.probes import HurriedIo, Probe, side_by_side
from coach.workflows.doctor.telemetry import look_at_telemetry

LIMIT_S = 3.0
"""Seconds for one client. A controller that needs longer is in trouble, and a launch would be slow."""
DEADLINE_S = 4.5
"""Seconds for the whole report."""
LEFT_TO_READ_S = 0.2
"""Seconds of DEADLINE_S that are reserved for reading and judging the last answer."""
AREAS = ("slurm", "gpus", "telemetry", "launch", "environments", "roots", "config", "python", "terminal")
"""In reading order."""


def examine(
    settings: Settings,
    env: Mapping[str, str],
    io: Io,
    terminal: Terminal,
    *,
    config_problem: UserError | None = None,
    limit_s: float = LIMIT_S,
    within_s: float = DEADLINE_S,
) -> Report:
    """Check everything. `settings.launch.backend` says for which backend; `config_problem` is the reason if
    these are not the user's own settings."""
    started_s = time.monotonic()
    deadline_s = started_s + within_s
    hurried = HurriedIo(io, limit_s, deadline_s - LEFT_TO_READ_S)
    backend = resolve_backend(settings.launch.backend, env)
    probes: dict[tuple[str, str], Probe] = {}
    if backend == "slurm":
        probes.update(_slurm_probes(settings, env, hurried))
    else:
        probes["launch", "plan"] = lambda: look_at_launch("local", settings, env, hurried, _judge_machine)
    probes.update(environment_probes(settings, env, hurried))
    probes.update(place_probes(settings, hurried, env if config_problem is None else None))
    checks = [
        here.judge_permission(settings, why_no_local_backend(settings) if backend == "local" else None),
        *side_by_side(probes, deadline_s),
        *here.judge_config(settings, config_problem),
        *here.judge_python(data_dir()),
        *here.judge_terminal(terminal),
    ]
    checks.sort(key=lambda check: AREAS.index(check.area))
    return Report(tuple(checks), time.monotonic() - started_s)


def _ask_config(io: Io) -> tuple[dict[str, str] | None, str | None]:
    """The controller's configuration, or why there is none."""
    result = io.run(CONFIG_QUERY)
    error = failure_of(result)
    return (None, error) if error is not None else (parse_config(result.text), None)


def _slurm_probes(settings: Settings, env: Mapping[str, str], io: Io) -> dict[tuple[str, str], Probe]:
    def look_at_controller() -> list[Check]:
        values, error = _ask_config(io)
        if values is None:
            ping = io.run(PING_QUERY, 1.0)
            words = " ".join(ping.text.split()) if ping.returncode is not None else ""
            return slurm.judge_controller_silence(error or "", words or None)
        pace = slurm.judge_pace(values)
        mail = slurm.judge_mail(values, lambda program: os.access(program, os.X_OK))
        privacy = slurm.judge_privacy(values, user_name() == "root")
        return [*slurm.judge_config(values), pace, mail, *privacy]

    def look_at_queue() -> list[Check]:
        result = io.run(jobs_query(user_name()))
        error = failure_of(result)
        text = result.text
        jobs, num_bad = (
            parse_jobs(text, result.query.separator, result.query.record_end) if not error else ((), 0)
        )
        queue = slurm.judge_queue(len(jobs), num_bad, error)
        return [queue, *look_at_telemetry(jobs, _ask_config(io)[0], io)]

    def look_at_accounting() -> list[Check]:
        error = failure_of(io.run(ACCOUNTING_QUERY))
        values, _ = _ask_config(io)
        return [slurm.judge_accounting(values, error)]

    def judge_site(site: Site) -> list[Check]:
        values, _ = _ask_config(io)
        return slurm.judge_gpus(site.partitions, values, site.hidden)

    return {
        ("slurm", "controller"): look_at_controller,
        ("slurm", "queue"): look_at_queue,
        ("slurm", "accounting"): look_at_accounting,
        ("launch", "plan"): lambda: look_at_launch("slurm", settings, env, io, judge_site),
    }


def _judge_machine(site: Site) -> list[Check]:
    """This machine, if there is no Slurm."""
    (machine,) = site.nodes
    no_slurm = Check("slurm", "Slurm", OK, "not on this machine", "coach trains here")
    gpus = ", ".join(f"{gpu.total} × {gpu.type or 'GPU'}" for gpu in machine.gpus)
    if gpus:
        return [no_slurm, Check("gpus", machine.name, OK, gpus, is_needed=False)]
    because = "no NVIDIA GPU with a working driver: training is on the CPUs"
    value = f"no GPUs, {machine.num_cpus} CPUs"
    return [no_slurm, Check("gpus", machine.name, OK, value, because, is_needed=False)]


def without_files(env: Mapping[str, str]) -> Settings:
    """coach's settings without any config file, to use while the file is broken."""
    return Settings(
        runs_root=runs.default_runs_root(env),
        cache_dir=runs.default_cache_dir(env),
        config_dir=runs.default_config_dir(env),
    )


def with_backend(settings: Settings, backend: str | None) -> Settings:
    """The settings with the requested backend in place of the configured one."""
    return (
        settings if backend is None else replace(settings, launch=replace(settings.launch, backend=backend))
    )
