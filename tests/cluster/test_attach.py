"""Measuring inside foreign jobs, on a real Slurm: after every kind of end no process or file of coach is
left."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import Daemon, with_environment
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.json_documents import assert_fits, strict
from tests.waiting import wait_until

pytestmark = pytest.mark.cluster

_TRAINING = "srun --ntasks-per-node=1 sleep 600"
_OPTIONS = ("-N2", "-p", "gpu", "--gpus-per-node=2", "--mem=1000")


class Attached:
    """`coach attach JOB --yes --format json`, as the user."""

    def __init__(self, coach: InstalledCoach, job_id: str) -> None:
        home = coach.user.home
        self.output, self.words = home / f"attach-{job_id}.out", home / f"attach-{job_id}.err"
        argv = coach.argv("attach", job_id, "--yes", "--format", "json")
        with self.output.open("wb") as output, self.words.open("wb") as words:
            self.process = subprocess.Popen(
                coach.user.argv(argv),
                env=coach.env(),
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=words,
            )

    def records(self) -> list[dict[str, Any]]:
        lines = self.output.read_text().splitlines(keepends=True)
        found = [strict(line) for line in lines if line[-1:] == "\n"]
        for record in found:
            assert_fits("attach", record)
        return found

    def wait_for(self, *nodes: str) -> None:
        wait_until(
            lambda: (
                {record["node"] for record in self.records() if record["kind"] == "HostSample"} >= set(nodes)
            ),
            20,
            f"{nodes} are measured; it says: {self.words.read_text()}",
        )

    def wait_end(self, timeout_s: float = 20.0) -> int:
        wait_until(lambda: self.process.poll() is not None, timeout_s, "coach ends")
        return int(self.process.returncode)


@pytest.fixture
def attached() -> Iterator[list[Attached]]:
    made: list[Attached] = []
    yield made
    for each in made:
        each.process.kill()
        each.process.wait()


def samplers(job_id: str) -> list[Daemon]:
    """The sampler's processes in a job, and the srun of its step."""
    found = []
    for process in with_environment(f"SLURM_JOB_ID={job_id}"):
        try:
            words = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"--stream" in words:
            found.append(process)
    return found


def steps(slurm: SlurmCluster, job_id: str) -> list[str]:
    return slurm.run(["squeue", "-h", "-s", "-j", job_id, "-o", "%j"]).stdout.split()


def running(slurm: SlurmCluster, script: str = _TRAINING, *options: str) -> str:
    job_id = slurm.submit(script, *_OPTIONS, *options)
    slurm.wait_state(job_id, "RUNNING")
    wait_until(lambda: len(steps(slurm, job_id)) > 1, 10, "its own step runs")
    return job_id


def wait_gone(slurm: SlurmCluster, job_id: str) -> None:
    wait_until(lambda: "coach-sampler" not in steps(slurm, job_id), 15, "the step is gone")
    wait_until(lambda: not samplers(job_id), 15, "its processes are gone")


def test_every_node_is_measured_beside_the_training_and_a_second_srun_of_the_job_starts(
    slurm: SlurmCluster, user_coach: InstalledCoach, attached: list[Attached]
) -> None:
    flag = slurm.user.home / "go"
    job_id = running(
        slurm,
        f"srun --ntasks-per-node=1 sh -c 'until test -e {flag}; do sleep 0.1; done'; "
        "srun --ntasks-per-node=1 sh -c 'echo second $CUDA_VISIBLE_DEVICES; sleep 600'",
    )
    attached.append(Attached(user_coach, job_id))
    attached[0].wait_for("node1", "node2")
    assert steps(slurm, job_id).count("coach-sampler") == 1
    assert {(record["schema"], record["source"]) for record in attached[0].records()} == {(1, "step")}
    assert all(0 <= record["age_s"] < 30 for record in attached[0].records() if record.get("age_s"))
    flag.touch()
    log = slurm.user.home / f"slurm-{job_id}.out"
    wait_until(
        lambda: log.exists() and log.read_text().count("second 0,1") == 2,
        15,
        "the second srun has both nodes",
    )
    assert steps(slurm, job_id).count("coach-sampler") == 1
    attached[0].process.send_signal(signal.SIGINT)
    assert attached[0].wait_end() == 130
    wait_gone(slurm, job_id)
    assert slurm.job_state(job_id) == "RUNNING"


def test_a_coach_that_is_killed_leaves_no_step_and_no_process_in_the_job(
    slurm: SlurmCluster, user_coach: InstalledCoach, attached: list[Attached]
) -> None:
    job_id = running(slurm)
    attached.append(Attached(user_coach, job_id))
    attached[0].wait_for("node1", "node2")
    # A program that a sampler starts looks like the sampler until it is another.
    wait_until(lambda: len(samplers(job_id)) == 2, 10, "one runs on each node")
    attached[0].process.kill()
    wait_gone(slurm, job_id)
    assert slurm.job_state(job_id) == "RUNNING"


def test_the_stream_ends_with_its_job_and_says_so(
    slurm: SlurmCluster, user_coach: InstalledCoach, attached: list[Attached]
) -> None:
    flag = slurm.user.home / "end"
    ending = running(slurm, f"srun -N1 -n1 sh -c 'until test -e {flag}; do sleep 0.1; done'")
    attached.append(Attached(user_coach, ending))
    attached[0].wait_for("node1", "node2")
    flag.touch()
    assert attached[0].wait_end() == 0
    assert "Slurm ended the step, as it does when the job ends" in attached[0].words.read_text()
    assert slurm.wait_state(ending, "COMPLETED")
    wait_gone(slurm, ending)
    cancelled = running(slurm)
    attached.append(Attached(user_coach, cancelled))
    attached[1].wait_for("node1", "node2")
    slurm.run(["scancel", cancelled])
    assert attached[1].wait_end() == 0
    wait_gone(slurm, cancelled)


@pytest.mark.long
def test_a_node_that_dies_takes_the_stream_along_with_its_job(
    slurm: SlurmCluster, user_coach: InstalledCoach, attached: list[Attached]
) -> None:
    job_id = running(slurm, _TRAINING, "--no-requeue")
    attached.append(Attached(user_coach, job_id))
    attached[0].wait_for("node1", "node2")
    slurm.kill_node("node2")
    assert attached[0].wait_end(60) == 0
    slurm.start_node("node2")
    slurm.wait_state(job_id, "NODE_FAIL", timeout_s=15)
    wait_gone(slurm, job_id)


def test_a_job_that_has_no_memory_to_spare_is_not_entered(
    slurm: SlurmCluster, user_coach: InstalledCoach
) -> None:
    job_id = slurm.submit("srun sleep 600", "-N1", "--mem=150")
    slurm.wait_state(job_id, "RUNNING")

    def answer() -> str:
        return user_coach("attach", job_id, "--dry-run").stderr

    wait_until(
        lambda: "200 MiB must be left" in answer(), 15, "sstat has measured the job's steps", every_s=0.5
    )
    assert steps(slurm, job_id).count("coach-sampler") == 0
    asked = user_coach("attach", "1", "--yes")
    assert (asked.returncode, asked.stdout) == (2, "")
