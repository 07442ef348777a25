"""A live session while the cluster fails: it keeps the last good data, shows their age, and recovers by
itself."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.slurm.cluster import Job, Node
from coach.model.snapshot import Snapshot, Watch
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Io, Query, SystemIo, scrubbed_environment
from coach.sources.slurm.client import JobsSource, NodesSource
from coach.workflows.watching.live_session import WatchSession
from coach.workflows.watching.world import World
from tests.cluster.frail_slurm import FrailSlurm
from tests.cluster.processes import programs_with_environment
from tests.cluster.slurm import booted
from tests.waiting import wait_until

pytestmark = [pytest.mark.cluster]

INTERVAL_S = 0.5
RUN = "20261121-142233-ddp-4f2a"

_HALF = """\
#!/bin/sh
if [ -e {flag} ]; then squeue() {{ {squeue} "$@" | head -c 900; }}; else squeue() {{ {squeue} "$@"; }}; fi
squeue "$@"
"""


class SkewedIo(SystemIo):
    """A login node whose clock is wrong."""

    def __init__(self, env: Mapping[str, str], skew_s: float) -> None:
        super().__init__(env)
        self._skew_s = skew_s

    def now(self) -> float:
        return super().now() + self._skew_s

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        result = super().run(query, timeout_s)
        return replace(result, time_s=result.time_s + self._skew_s)


class Watched:
    """A session that looks twice a second, and how many clients it ever had at once."""

    def __init__(self, cluster: FrailSlurm, folder: Path, io: Io) -> None:
        self._cluster = cluster
        self.most_at_once: Counter[str] = Counter()
        self.settings = Settings(
            runs_root=folder / "runs", cache_dir=folder / "cache", config_dir=folder / "config"
        )
        self.session = WatchSession(
            self.settings,
            World(
                "slurm",
                io,
                "nobody",
                cluster_sources=lambda io, settings, user, watch: {
                    "jobs": lambda: JobsSource(io, user, INTERVAL_S),
                    "nodes": lambda: NodesSource(io, INTERVAL_S),
                },
            ),
        )

    @property
    def snapshot(self) -> Snapshot:
        return self.session.snapshot

    def wait(self, condition: Callable[[Snapshot], object], timeout_s: float, what: str) -> Snapshot:
        """Wait until a picture is so; counts the clients meanwhile."""

        def is_reached() -> bool:
            self.most_at_once |= Counter(self.clients())
            return bool(condition(self.snapshot))

        wait_until(is_reached, timeout_s, what, every_s=0.1)
        return self.snapshot

    def wait_error(self, words: str, timeout_s: float = 20.0) -> Snapshot:
        """Wait until the queue's source reports this error; the earlier data stay, and their age grows."""
        before = self.snapshot
        after = self.wait(
            lambda now: words in (now.sources["jobs"].error or ""), timeout_s, f"it says {words!r}"
        )
        assert _rows(after) == _rows(before)
        assert after.nodes
        assert after.sources["jobs"].data_time_s == before.sources["jobs"].data_time_s
        return after

    def wait_well(self, since: Snapshot, timeout_s: float = 30.0) -> Snapshot:
        """Wait, without a key, until both sources have newer data and no complaint."""

        def is_well(now: Snapshot) -> bool:
            return all(
                now.sources[name].error is None
                and (now.sources[name].data_time_s or 0) > (since.sources[name].error_time_s or since.now_s)
                for name in ("jobs", "nodes")
            )

        return self.wait(is_well, timeout_s, "all is well again")

    def clients(self) -> list[str]:
        """The clients of Slurm that run now: each is a question of the session."""
        return programs_with_environment(f"SLURM_CONF={self._cluster.conf}", "squeue", "scontrol")

    def job(self, job_id: str) -> Job | None:
        return next((job for job in self.snapshot.jobs if job.job_id == job_id), None)

    def node(self, name: str) -> Node | None:
        return next((node for node in self.snapshot.nodes if node.name == name), None)


def _rows(snapshot: Snapshot) -> set[tuple[str, str]]:
    return {(job.job_id, job.state) for job in snapshot.jobs}


def environment(cluster: FrailSlurm, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    return scrubbed_environment(kept | cluster.env | more)


@pytest.fixture(scope="module")
def frail_cluster() -> Iterator[FrailSlurm]:
    with booted("coach-frail", FrailSlurm) as cluster:
        yield cluster


@pytest.fixture
def frail(frail_cluster: FrailSlurm) -> Iterator[FrailSlurm]:
    """A cluster with short timeouts, whole and idle again after each test."""
    yield frail_cluster
    frail_cluster.restore()


@pytest.fixture
def throwaway() -> Iterator[FrailSlurm]:
    """A cluster that no later test uses."""
    with booted("coach-frail", FrailSlurm) as cluster:
        yield cluster


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Callable[..., Watched]]:
    """`watch(cluster, io=…)`: a session with its first snapshot; it is stopped at the end and leaves no
    client behind."""
    started: list[Watched] = []

    def start(cluster: FrailSlurm, io: Io | None = None) -> Watched:
        watched = Watched(cluster, tmp_path, io or SystemIo(environment(cluster)))
        watched.session.start(lambda snapshot: None)
        started.append(watched)
        watched.wait(lambda now: now.nodes and "jobs" in now.sources, 20, "the first picture")
        return watched

    yield start
    for watched in started:
        watched.session.stop()
    for watched in started:
        wait_until(partial(_asks_nothing, watched), 20, "its clients have ended")
        assert watched.most_at_once["squeue"] <= 1, "never two questions about the queue at once"


def _asks_nothing(watched: Watched) -> bool:
    return not watched.clients()


WatchCluster = Callable[..., Watched]


def test_a_controller_that_is_killed_leaves_the_last_picture_and_its_return_is_seen(
    frail: FrailSlurm, watch: WatchCluster
) -> None:
    job = frail.submit("sleep 300")
    frail.wait_state(job, "RUNNING")
    watched = watch(frail)
    watched.wait(lambda now: watched.job(job), 10, "the job is seen")
    frail.kill_controller()
    broken = watched.wait_error("connect failure")
    frail.start_controller()
    watched.wait_well(broken)


def test_a_controller_that_hangs_gets_no_second_question_and_goes_on_where_it_was(
    frail: FrailSlurm, watch: WatchCluster
) -> None:
    job = frail.submit("sleep 300")
    frail.wait_state(job, "RUNNING")
    watched = watch(frail)
    watched.wait(lambda now: watched.job(job), 10, "the job is seen")
    frail.freeze("slurmctld")
    broken = watched.wait_error("Socket timed out")
    assert watched.most_at_once["squeue"] == 1, "the one that hung was seen"
    frail.thaw("slurmctld")
    watched.wait_well(broken)
    assert watched.job(job) is not None


def test_a_dead_slurmd_shows_in_its_node_and_in_the_state_of_its_jobs(
    frail: FrailSlurm, watch: WatchCluster
) -> None:
    lost = frail.submit("sleep 300", "--nodelist=node2", "--no-requeue")
    again = frail.submit("sleep 300", "--nodelist=node2", "--requeue")
    for job in (lost, again):
        frail.wait_state(job, "RUNNING")
    watched = watch(frail)
    frail.kill_node("node2")

    def has_failed(now: Snapshot) -> bool:
        states = {job.job_id: (job.state, job.reason) for job in now.jobs}
        return states.get(lost) == ("NODE_FAIL", "NodeDown") and states.get(again) == ("PENDING", "BeginTime")

    watched.wait(has_failed, 60, "one job has failed, the other waits again")
    node = watched.wait(
        lambda now: "down" in getattr(watched.node("node2"), "state", ""), 10, "node2 is down"
    )
    assert [each.name for each in node.nodes] == ["node1", "node2", "node3"]
    frail.start_node("node2")
    watched.wait(lambda now: "idle" in getattr(watched.node("node2"), "state", ""), 30, "node2 is back")


def test_without_munge_the_reason_is_munge_and_with_it_all_is_well(
    frail: FrailSlurm, watch: WatchCluster
) -> None:
    job = frail.submit("true", "--hold")
    watched = watch(frail)
    watched.wait(lambda now: watched.job(job), 10, "the job is seen")
    frail.end_munge()
    broken = watched.wait_error("munge")
    frail.start_munge()
    watched.wait_well(broken)


@pytest.mark.long
def test_a_munge_that_hangs_is_given_up_after_twelve_seconds_and_leaves_no_client(
    frail: FrailSlurm, watch: WatchCluster
) -> None:
    job = frail.submit("true", "--hold")
    watched = watch(frail)
    watched.wait(lambda now: watched.job(job), 10, "the job is seen")
    frail.freeze("munged")
    broken = watched.wait_error("squeue: no answer within 12 s", 30)
    frail.thaw("munged")
    watched.wait_well(broken, 60)


def test_half_an_answer_takes_no_job_off_the_screen(
    frail: FrailSlurm, watch: WatchCluster, tmp_path: Path
) -> None:
    jobs = {frail.submit("true", "--hold", f"--job-name={name}") for name in ("one", "two", "three", "four")}
    flag, wrapper = tmp_path / "half", tmp_path / "bin" / "squeue"
    wrapper.parent.mkdir()
    wrapper.write_text(_HALF.format(flag=flag, squeue=shutil.which("squeue")))
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{os.environ['PATH']}"
    watched = watch(frail, SystemIo(environment(frail, PATH=path)))
    watched.wait(lambda now: jobs <= {job.job_id for job in now.jobs}, 10, "the jobs are seen")
    flag.touch()
    broken = watched.wait_error("squeue: its answer is incomplete")
    assert jobs <= {job.job_id for job in broken.jobs}
    flag.unlink()
    watched.wait_well(broken)


@pytest.mark.parametrize(
    "skew_s",
    [pytest.param(-240.0, marks=pytest.mark.long, id="behind"), pytest.param(240.0, id="ahead")],
)
def test_a_login_node_whose_clock_is_four_minutes_off_knows_its_run_and_no_age_is_negative(
    frail: FrailSlurm, watch: WatchCluster, skew_s: float
) -> None:
    """The clock can be at most five minutes off: beyond that, munge rejects the user."""
    io = SkewedIo(environment(frail), skew_s)
    watched = watch(frail, io)
    job_id = frail.submit("sleep 300")
    run_dir = make_run(watched, job_id, made_s=io.now())
    watched.session.watch(Watch(targets=(RUN,)))
    now = watched.wait(lambda now: state_of_run(now) == "RUNNING", 20, "the run has its job's state")
    assert now.targets[RUN].job is not None
    ages = [now.now_s - (status.data_time_s or 0) for status in now.sources.values() if not status.error]
    assert all(-1.0 < age < 60.0 for age in ages)
    job = watched.job(job_id)
    assert job is not None
    assert job.time_used_s is not None
    assert job.time_used_s < 60, "what it has used is the controller's word"
    frail.cancel_all()
    watched.wait(lambda now: state_of_run(now) == "CANCELLED", 20, "its end is known")
    assert json.loads((run_dir / "run.json").read_text())["state"] == "CANCELLED"


def test_a_renamed_node_takes_the_place_of_the_old_one(throwaway: FrailSlurm, watch: WatchCluster) -> None:
    watched = watch(throwaway)
    throwaway.rename_node("node3", "gpu-17")
    now = watched.wait(lambda now: watched.node("gpu-17"), 40, "the new name is seen")
    assert [node.name for node in now.nodes] == ["gpu-17", "node1", "node2"]
    watched.wait(lambda now: "idle" in getattr(watched.node("gpu-17"), "state", ""), 30, "it is idle")


def test_a_reused_job_number_is_not_the_old_run(throwaway: FrailSlurm, watch: WatchCluster) -> None:
    job = throwaway.submit("sleep 300")
    throwaway.wait_state(job, "RUNNING")
    watched = watch(throwaway)
    make_run(watched, job, made_s=time.time())
    watched.session.watch(Watch(targets=(RUN,)))
    watched.wait(lambda now: state_of_run(now) == "RUNNING", 20, "the run has its job's state")
    throwaway.lose_memory(int(job))
    somebody_s = throwaway.submit("sleep 300", "--job-name=theirs", as_root=True)
    assert somebody_s == job
    now = watched.wait(
        lambda now: getattr(watched.job(job), "user", None) == "root" and now.targets[RUN].job is None,
        40,
        "the number is somebody else's, and the run has no job",
    )
    assert state_of_run(now) is None


def test_the_users_own_next_job_of_that_number_is_not_the_run_of_an_hour_ago(
    frail: FrailSlurm, watch: WatchCluster
) -> None:
    watched = watch(frail)
    job = frail.submit("sleep 300")
    run_dir = make_run(watched, job, made_s=time.time() - 3600)
    watched.session.watch(Watch(targets=(RUN,)))
    now = watched.wait(lambda now: watched.job(job) and RUN in now.targets and now.runs, 20, "both are seen")
    assert now.targets[RUN].job is None
    frail.cancel_all()
    watched.wait(lambda now: getattr(watched.job(job), "state", "") == "CANCELLED", 20, "its end is seen")
    assert "CANCELLED" not in (run_dir / "run.json").read_text(), "the run is not said to have ended so"


def make_run(watched: Watched, job_id: str, made_s: float) -> Path:
    """The result of a launch: a run directory whose run.json names the job."""
    run_dir = watched.settings.runs_root / RUN
    run_dir.mkdir(parents=True)
    value = {"run_id": RUN, "backend": "slurm", "job_id": job_id, "user": "nobody", "created_time_s": made_s}
    (run_dir / "run.json").write_text(json.dumps({**value, "submitted_time_s": made_s}))
    return run_dir


def state_of_run(snapshot: Snapshot) -> str | None:
    return next((run.state for run in snapshot.runs if run.run_id == RUN), None)
