"""coach looks for the output of foreign jobs where a real Slurm writes it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coach.model.reading import JobList
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query, SystemIo, scrubbed_environment
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.slurm.client import JobsSource
from tests.cluster.slurm import SlurmCluster
from tests.installed import InstalledCoach
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster]

SCRIPT = "echo this is $SLURM_JOB_ID; echo wrong in $SLURM_JOB_ID >&2"
OPTIONS = {
    "default": (),
    "array": ("--array=13-14", "-J", "a b", "-o", "%x=%A=%3a=%7j=%J=%s=%N=%u=%%=%q.out"),
    "two streams": ("-o", "two-%j.out", "-e", "two-%j.err"),
    "errors apart": ("-e", "%x-%j.err", "-J", "[@click=app.quit]x\x1b[31m"),
    "no patterns": ("-o", "plain\\%j-%x.out"),
    "nothing": ("-o", "/dev/null"),
}


class _CountingIo(SystemIo):
    def __init__(self, env: dict[str, str]) -> None:
        super().__init__(scrubbed_environment({**os.environ, **env}))
        self.asked: list[str] = []

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        self.asked.append(query.argv[0])
        return super().run(query, timeout_s)


def test_the_logs_of_foreign_jobs_are_where_coach_looks_and_no_job_is_asked_about_by_itself(
    slurm: SlurmCluster,
) -> None:
    names = {slurm.submit(SCRIPT, *options): name for name, options in OPTIONS.items()}
    for job_id in names:
        slurm.wait_state(job_id, "COMPLETED", timeout_s=5)
    io = _CountingIo(slurm.env)
    paths = OutputPaths(io)
    (reading,) = JobsSource(io, "nobody", 0.0, is_all=False).poll()
    assert isinstance(reading.payload, JobList)
    jobs = [job for job in reading.payload.jobs if job.job_id.partition("_")[0] in names]
    assert len(jobs) == len(OPTIONS) + 1
    paths.learn(jobs)
    for job in jobs:
        name, found = names[job.job_id.partition("_")[0]], paths.of(job.job_id)
        expected = {"nothing": 0, "two streams": 2, "errors apart": 2}.get(name, 1)
        assert len(found) == expected, name
        said = "".join(
            wait_until(lambda path=path: read(path), 10, f"{path} of {name}") or "" for path in found
        )  # type: ignore[misc]
        if found:
            assert f"this is {job.raw_job_id}\n" in said, name
            assert f"wrong in {job.raw_job_id}\n" in said, name
    assert io.asked == ["squeue"]
    (somebody_elses,) = OutputPaths(io).of(next(iter(names)))
    assert somebody_elses.exists()
    assert io.asked == ["squeue", "squeue"]


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


CURVE = 'for step in $(seq 60); do echo "step $step loss 0.$((999 - step * 10))"; done'
TABLE = "{ echo step,loss; for step in $(seq 60); do echo $step,0.$((999 - step * 10)); done; }"


def test_a_file_of_another_job_is_never_read_for_a_job_that_its_name_or_folder_fits(
    slurm: SlurmCluster, bare_coach: InstalledCoach
) -> None:
    home = bare_coach.user.home
    (home / "logs").mkdir(mode=0o777)
    (home / "below").mkdir(mode=0o777)
    for folder in ("logs", "below"):
        (home / folder).chmod(0o777)
    here, below = ("-D", str(home)), ("-D", str(home / "below"))
    dead = slurm.submit(
        "until [ -e go ]; do sleep 0.1; done; python3 -c 'import nothing_here'", *here, "-o", "logs/%x-%j.out"
    )
    others = {
        "its name has the number": slurm.submit(CURVE, *here, "-J", f"well{dead}", "-o", "logs/%x-%j.out"),
        "its output has the number": slurm.submit(CURVE, *below, "-o", f"../logs/notes-{dead}.out"),
        "a task of an array": slurm.submit(
            CURVE, *below, "-a", "1", "-J", f"job{dead}", "-o", "../logs/%x-%A_%a.log"
        ),
        "its folder has its own": slurm.submit(
            f"mkdir -p ../runs/$SLURM_JOB_ID; {TABLE} > ../runs/$SLURM_JOB_ID/metrics.csv", *below
        ),
    }
    for job_id in others.values():
        slurm.wait_state(job_id, "COMPLETED")
    (home / "go").touch()
    slurm.wait_state(dead, "FAILED")
    told = bare_coach("check", dead).stdout
    own = next((home / "logs").glob(f"wrap-{dead}.out"))
    assert told.partition("  read:\n")[2].partition("  looked for:")[0].split() == [str(own)], told
    assert "nothing_here" in told
    read = bare_coach("check", others["its name has the number"]).stdout
    assert f"well{dead}-{others['its name has the number']}.out" in read
