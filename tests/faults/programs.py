"""The programs to kill, and for each the facts that must hold after the next start of coach.

For all programs: every order that Slurm took belongs to exactly one run; every run has its job or is known as
never submitted; each run.json can be read; no process of the killed program is left; and the next start goes
on.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coach import runs
from coach.launch import local
from coach.node import sample, share
from coach.node.__main__ import main as node_main
from coach.sources.machine.user import user_name
from tests.faults.world import World
from tests.waiting import wait_until

SLEEP = ("launch", "--gpus", "0", "--time", "10:00", "--backend", "slurm", "--", "sleep", "300")
LAUNCH = ("launch", "--gpus", "0", "--time", "10:00")
SWEEP = (
    "launch",
    "baseline",
    "--gpus",
    "0",
    "--time",
    "10:00",
    "--sweep",
    "lr=0.01,0.02,0.03",
    "--backend",
    "slurm",
)
OLD = "20260101-000000-baseline-0000"
STEP = {"epoch": 0, "num_samples": 8, "num_samples_global": 8, "step_time_s": 0.1, "data_time_s": 0.01}


@dataclass(frozen=True)
class Victim:
    """A program, and the checks after its end."""

    name: str
    prepare: Callable[[World], object]
    body: Callable[[World], Callable[[], int]]
    check: Callable[[World], str]
    """Fails where something was lost; returns in a few words what the next start said."""
    has_code: bool = True
    is_whole: bool = False
    """True: its threads are traced as well."""


def nothing(world: World) -> None:
    """There is nothing to prepare."""


# Launches under Slurm


def check_orders(world: World, words: Sequence[str] = SLEEP) -> str:
    """Every order has one run, every run has one order, and the next launch reports the rest."""
    listed = check_queue(world)
    num_orders, left = len(world.clients.jobs), [path for path in world.folders() if path.name != OLD]
    has_all = all((path / "run.json").exists() for path in left) and all(
        run["job_id"] is not None for run in listed
    )
    again = world.coach(*words)
    assert len(world.clients.jobs) == num_orders + 1, "the next launch is taken"
    said = [line for line in again.stderr.decode().splitlines() if "interrupted" in line]
    if said:
        return _spoken(said)
    assert not left or has_all, (again.stderr.decode(), world.output)
    return "its record was whole: `coach runs` has its job" if left else "nothing was left"


def check_queue(world: World) -> list[dict[str, Any]]:
    """The launched runs: each order belongs to one run, and a run without an order is known as never
    submitted."""
    scripts = [job["script"] for job in world.clients.jobs]
    assert len(scripts) == len(set(scripts)), "an order was given twice"
    listed = [run for run in world.listed() if run["run_id"] != OLD]
    ids = {job_id for job in world.clients.jobs for job_id in _ids_of(job)}
    told = {run["job_id"] for run in listed if run["job_id"] is not None and run["backend"] == "slurm"}
    assert told == ids, (told, ids)
    for run in listed:
        if run["backend"] == "slurm" and run["job_id"] is None:
            assert run["submission"] == "never_submitted", run
    world.wait_for_silence("a launch that was killed")
    return listed


def _ids_of(job: dict[str, Any]) -> list[str]:
    if not job["array"]:
        return [job["id"]]
    first, last = job["array"].partition("%")[0].split("-")
    return [f"{job['id']}_{task}" for task in range(int(first), int(last) + 1)]


def _spoken(lines: list[str]) -> str:
    """The first line, without the name of the run and of coach."""
    words = (lines or [""])[0].removeprefix("coach: ").removeprefix("warning: ").split()
    return " ".join("RUN" if word.startswith("20") and "-" in word else word for word in words)


# Launches on this machine


def check_local(world: World) -> str:
    """The run goes on without its coach, or it is known that it never began."""
    said = []

    def has_settled() -> bool:
        said[:] = [f"{run['state']}" for run in world.listed()]
        return not world.processes() and all(state in ("COMPLETED", "FAILED", "NODE_FAIL") for state in said)

    wait_until(has_settled, 30, "the run has ended, or is known as never started", every_s=0.2)
    for run in world.listed():
        begun, done = (Path(run["run_dir"]) / name for name in ("begun", "done"))
        if run["state"] == "COMPLETED":
            assert done.exists()
        else:
            is_done = done.exists()
            assert not is_done or run["state"] == "NODE_FAIL", "what was not recorded is not called FAILED"
            told = json.loads(world.coach("check", run["run_id"], "--format", "json", status=1).stdout)
            (primary,) = [each for each in told["findings"] if each["primary"]]
            assert primary["rule"] == "JOB003", told["findings"]
            said = [primary["summary"] + (", after its command's end" if is_done else "")]
            if "never" in primary["summary"] or "nothing ran" in primary["summary"]:
                assert not begun.exists()
    return said[0] if said else "nothing was left"


# A fix


def prepare_finding(world: World) -> None:
    """A run with a finding whose fix can be applied."""
    paths = runs.create_run_dir(world.runs_root, OLD)
    value = {
        "run_id": OLD,
        "recipe": "baseline",
        "backend": "slurm",
        "job_id": "7",
        "state": "COMPLETED",
        "ended_time_s": 2000.0,
        "parameters": {"lr": 1000.0},
        "launch": {"recipe": "baseline", "gpus_per_node": 0, "num_nodes": 1, "time_limit_s": 600},
        "parameter_info": {"lr": {"default": 0.05, "usual": [0.001, 0.3]}},
        "resources": {"num_nodes": 1, "gpus_per_node": 0, "nproc_per_node": 1, "time_limit_s": 600},
        "created_time_s": 1000.0,
    }
    paths.run_json.write_text(json.dumps(value))
    paths.metrics_dir.mkdir()
    lines = [{"step": n, "time_s": 1000.0 + n, "loss": 2.3 if n < 3 else "NaN", **STEP} for n in range(40)]
    paths.metrics_of(0).write_text("".join(json.dumps(line) + "\n" for line in lines))


FIX = ("fix", OLD, "--number", "1", "--yes", "--change-learning")


def check_fix(world: World) -> str:
    """A fix that was not submitted is tried again, and a submitted one is refused: there is one order in
    all."""
    check_queue(world)
    num_orders = len(world.clients.jobs)
    again = world.coach(*FIX, status=2 if num_orders else 0)
    assert len(world.clients.jobs) == 1, again
    if num_orders:
        assert b"was launched exactly so and is PENDING" in again.stderr, again
        return "no second fix: the first one is queued"
    return "the fix was launched"


# coach run


def check_command(world: World) -> str:
    """A command that has begun comes to its end, even if `coach run` is killed."""
    begun, done = world.home / "begun", world.home / "done"
    world.wait_for_silence("coach run that was killed")
    assert begun.exists() == done.exists(), "a command that had begun came to its end"
    listed = world.listed()
    states = {run["state"] for run in listed}
    if begun.exists():
        assert states <= {"COMPLETED", "NODE_FAIL"}, "a command that came to its end has not failed"
    world.coach("run", "--", "true")
    assert len(world.listed()) == len(listed) + 1
    if not begun.exists():
        return f"the command had not begun; {len(listed)} run listed" if listed else "nothing was left"
    return f"the command came to its end; its run is {', '.join(sorted(states)) or 'not listed'}"


def command_body(world: World) -> Callable[[], int]:
    script = f"echo $$ > {world.home}/begun; echo hello; sleep 0.15; echo end; echo $$ > {world.home}/done"
    return world.body(("run", "--interval", "0.1", "--", "sh", "-c", script))


# The local supervisor


def prepare_supervised(world: World) -> None:
    """A written local run that was not started."""
    kept = local.start

    def start_nothing(*_: object) -> None:
        return

    local.start = start_nothing
    try:
        script = "echo $$ > begun; sleep 0.15; echo $$ > done"
        world.coach(*LAUNCH, "--backend", "local", "--", "sh", "-c", f"cd $COACH_RUN_DIR; {script}")
    finally:
        local.start = kept


def supervisor_body(world: World) -> Callable[[], int]:
    def run() -> int:
        world.enter()
        return local.main([str(world.folders()[0])])

    return run


# The sampler


def prepare_sampled(world: World) -> None:
    paths = runs.create_run_dir(world.runs_root, OLD)
    runs.write_json(paths.run_json, {"run_id": OLD, "recipe": "baseline", "backend": "slurm", "job_id": "1"})
    paths.telemetry_dir.mkdir()
    paths.metrics_dir.mkdir()


def sampler_body(world: World) -> Callable[[], int]:
    def run() -> int:
        world.enter()
        sample.share.INTERVAL_S = 0.05
        pid = os.fork()
        if pid == 0:
            time.sleep(0.3)
            os._exit(0)
        started = str(time.time() - 1.0)
        words = ("--run-dir", str(world.runs_root / OLD), "--pid", str(pid), "--node", "node1")
        return node_main(["sample", *words, "--interval", "0.1", "--started-time", started])

    return run


def check_telemetry(world: World) -> str:
    """At most the last written line is torn, and the next sampler continues the file."""
    path = runs.RunPaths(world.runs_root / OLD).telemetry_of("node1")
    before = path.read_bytes() if path.exists() else b""
    world.wait_for_silence("a sampler that was killed")
    with subprocess.Popen(["sleep", "0.25"]) as followed:
        words = ("--run-dir", str(world.runs_root / OLD), "--node", "node1", "--interval", "0.1")
        node_main(["sample", *words, "--pid", str(followed.pid)])
    after = path.read_bytes()
    assert after.startswith(before)
    _, num_bad, _ = runs.decode_records(after)
    assert num_bad == 0, "a record is one write"
    assert world.listed()[0]["run_id"] == OLD
    return f"{before.count(b'kind')} records were kept, {after.count(b'kind') - before.count(b'kind')} came"


# The verdict in a job, and the cohort


def prepare_ended(world: World) -> None:
    paths = runs.create_run_dir(world.runs_root, OLD)
    said = {"run_id": OLD, "recipe": "baseline", "backend": "slurm", "job_id": "1", "user": user_name()}
    cohort = world.home / "cohort"
    cohort.mkdir(mode=0o1777)
    cohort.chmod(0o1777)
    runs.write_json(paths.run_json, {**said, "state": "RUNNING", "launch": {"share": str(cohort)}})
    paths.metrics_dir.mkdir()
    paths.stdout_log.write_text(
        "Traceback (most recent call last):\n"
        '  File "train.py", line 9, in <module>\n'
        "    loss.backward()\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
        "capacity of 15.77 GiB of which 1.10 GiB is free.\n"
    )
    runs.write_json(
        paths.exit_json, {"schema": 1, "state": "FAILED", "exit_code": 1, "ended_time_s": time.time()}
    )


def verdict_body(world: World) -> Callable[[], int]:
    return world.body(("why", "--write-verdict", str(world.runs_root / OLD)))


def check_verdict(world: World) -> str:
    """There is no verdict or a complete one, and the next look shows the cause."""
    path = runs.RunPaths(world.runs_root / OLD).verdict_json
    is_there = path.exists()
    if is_there:
        assert runs.read_json(path)["findings"][0]["rule"] == "MEM001"
    told = world.coach("why", OLD, status=None)
    assert b"MEM001" in told.stdout, told
    world.wait_for_silence("a verdict that was killed")
    return f"{'the verdict was whole' if is_there else 'no verdict was written'}; `coach why` told the cause"


def cohort_body(world: World) -> Callable[[], int]:
    def run() -> int:
        world.enter()
        paths = runs.RunPaths(world.runs_root / OLD)
        first = share.share(paths)
        return (
            0
            if first is None and share.share(paths, {"code": "MEM001", "severity": "critical"}) is None
            else 1
        )

    return run


def check_cohort(world: World) -> str:
    """The summary is not there, or whole; and the next writer writes it."""

    def told() -> list[dict[str, Any]]:
        words = ("cohort", str(world.home / "cohort"), "--format", "json")
        done = json.loads(world.coach(*words, status=None).stdout)
        assert done["bad_files"] == [], done
        people: list[dict[str, Any]] = done["people"]
        return people

    before = told()
    assert share.share(runs.RunPaths(world.runs_root / OLD)) is None
    assert len(told()) == 1
    return f"the summary was {'whole' if before else 'not there'}; the next one was written"


VICTIMS = {
    victim.name: victim
    for victim in (
        Victim(
            "launch",
            nothing,
            lambda world: world.body(SLEEP),
            check_orders,
        ),
        Victim(
            "first launch",
            nothing,
            lambda world: world.body(SLEEP),
            check_orders,
            has_code=False,
        ),
        Victim(
            "local launch",
            nothing,
            lambda world: world.body(
                (*LAUNCH, "--backend", "local", "--", "sh", "-c", "cd $COACH_RUN_DIR; >begun; >done")
            ),
            check_local,
        ),
        Victim("sweep", nothing, lambda world: world.body(SWEEP), lambda world: check_orders(world, SWEEP)),
        Victim("fix", prepare_finding, lambda world: world.body(FIX), check_fix),
        Victim("coach run", nothing, command_body, check_command),
        Victim("local supervisor", prepare_supervised, supervisor_body, check_local),
        Victim("sampler", prepare_sampled, sampler_body, check_telemetry),
        Victim("verdict in the job", prepare_ended, verdict_body, check_verdict),
        Victim("cohort writer", prepare_ended, cohort_body, check_cohort),
    )
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row of the table."""

    program: str
    number: int
    boundary: str
    is_killed: bool
    """False: the call came less often this time, and the program ended by itself."""
    said: str
