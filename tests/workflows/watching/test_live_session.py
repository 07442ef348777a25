from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.config import Settings
from coach.model.judging.finding import Diagnosis
from coach.model.snapshot import Snapshot, Watch
from coach.sources.io import Io, SystemIo
from coach.workflows.watching import live_session
from coach.workflows.watching.live_session import UPDATE_INTERVAL_S, WatchSession
from coach.workflows.watching.world import World
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import squeue
from tests.waiting import wait_until

RUN = "20261121-142233-ddp-4f2a"
NOON_S = time.mktime((2026, 11, 21, 12, 0, 0, 0, 0, -1))


class Updates:
    """Stores what a session reported, and when."""

    def __init__(self) -> None:
        self.snapshots: list[Snapshot] = []
        self.times: list[float] = []
        self.threads: set[str] = set()

    def __call__(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.times.append(time.monotonic())
        self.threads.add(threading.current_thread().name)

    @property
    def last(self) -> Snapshot | None:
        return self.snapshots[-1] if self.snapshots else None


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path / "config")


@pytest.fixture
def run_dir(settings: Settings) -> Path:
    return make_run(settings, RUN)


def make_run(settings: Settings, run_id: str, **fields: object) -> Path:
    path = settings.runs_root / run_id
    (path / "metrics").mkdir(parents=True)
    value = {"run_id": run_id, "backend": "slurm", "job_id": "17", "created_time_s": NOON_S, **fields}
    (path / "run.json").write_text(json.dumps(value))
    return path


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[WatchSession]]:
    """The started sessions. Without news they report twice a second, not every 5 s: tests wait for it."""
    monkeypatch.setattr(live_session, "AGE_INTERVAL_S", 0.5)
    made: list[WatchSession] = []
    yield made
    for session in made:
        session.stop()
    leftover = [t.name for t in threading.enumerate() if t.name == "session" or t.name.startswith("source ")]
    assert leftover == []


class QueueAndDisk(SystemIo):
    """The real files; a queue that the test answers."""

    def __init__(self) -> None:
        super().__init__({})
        self.fake = FakeIo()
        self.run = self.fake.run  # type: ignore[method-assign]


def start(
    sessions: list[WatchSession], settings: Settings, io: Io, **options: bool
) -> tuple[WatchSession, Updates]:
    session, updates = WatchSession(settings, World("slurm", io, "me", **options)), Updates()
    sessions.append(session)
    session.start(updates)
    return session, updates


def write_steps(run_dir: Path, *numbers: int) -> None:
    with open(run_dir / "metrics" / "rank-0.jsonl", "a") as file:
        for number in numbers:
            file.write(json.dumps({"step": number, "loss": 2.0, "time_s": NOON_S + number}) + "\n")


def test_a_watched_run_is_seen_live_with_its_metrics_and_diagnosis(
    sessions: list[WatchSession], settings: Settings, run_dir: Path
) -> None:
    io = QueueAndDisk()
    io.fake.answer("jobs", squeue({"job_id": "17", "user": "me"}, {"job_id": "18", "user": "you"}))
    session, updates = start(sessions, settings, io)
    session.watch(Watch(targets=(RUN,)))
    write_steps(run_dir, 1, 2)
    wait_until(lambda: updates.last and RUN in updates.last.diagnoses, 20, "the run is judged")
    write_steps(run_dir, 3)
    wait_until(lambda: session.history(RUN).num_steps(0) == 3, 10, "the third step arrives")
    target = session.snapshot.targets[RUN]
    assert target.job is not None
    assert (target.job.job_id, target.state) == ("17", "RUNNING")
    assert [run.state for run in session.snapshot.runs] == ["RUNNING"]
    assert updates.threads == {"session"}


def test_updates_are_coalesced_and_go_on_when_nothing_happens(
    sessions: list[WatchSession], settings: Settings, run_dir: Path
) -> None:
    session, updates = start(sessions, settings, QueueAndDisk())
    session.watch(Watch(targets=(RUN,)))
    number = 0
    deadline = time.monotonic() + 30.0
    while len(updates.times) < 3 and time.monotonic() < deadline:
        number += 1
        write_steps(run_dir, number)
        session.refresh_soon()
    assert len(updates.times) >= 3
    pauses = [later - earlier for earlier, later in zip(updates.times, updates.times[1:], strict=False)]
    assert min(pauses) >= UPDATE_INTERVAL_S * 0.9
    num_before = len(updates.times)
    wait_until(lambda: len(updates.times) >= num_before + 2, 10, "ages go on")


def test_a_copy_of_the_history_does_not_change_under_its_reader(
    sessions: list[WatchSession], settings: Settings, run_dir: Path
) -> None:
    session, _ = start(sessions, settings, QueueAndDisk())
    session.watch(Watch(targets=(RUN,)))
    write_steps(run_dir, 1)
    wait_until(lambda: session.history(RUN).num_steps(0) == 1, 10, "the first step")
    kept = session.history(RUN)
    write_steps(run_dir, 2)
    wait_until(lambda: session.history(RUN).num_steps(0) == 2, 10, "the second step")
    assert (kept.num_steps(0), len(kept.steps(0))) == (1, 1)


def test_coming_back_to_a_run_does_not_count_its_steps_twice(
    sessions: list[WatchSession], settings: Settings, run_dir: Path
) -> None:
    session, updates = start(sessions, settings, QueueAndDisk())
    write_steps(run_dir, 1, 2, 3)
    session.watch(Watch(targets=(RUN,)))
    wait_until(lambda: session.history(RUN).num_steps(0) == 3, 10, "all steps")
    for targets in ((), (RUN,)):
        session.watch(Watch(targets=targets))
        num_told = len(updates.times)
        wait_until(lambda told=num_told: len(updates.times) > told + 1, 10, "the screen went on")
    assert session.history(RUN).num_steps(0) == 3


def test_only_a_few_targets_linger(sessions: list[WatchSession], settings: Settings) -> None:
    names = [f"20261121-1422{number:02}-ddp-4f2a" for number in range(8)]
    for name in names:
        make_run(settings, name)
    session, updates = start(sessions, settings, QueueAndDisk())
    for name in names:
        session.watch(Watch(targets=(name,)))
        wait_until(lambda name=name: updates.last and name in updates.last.targets, 10, f"{name} is shown")
    wait_until(lambda: updates.last and len(updates.last.targets) == 4, 10, "the newest and three more")
    assert set(session.snapshot.targets) == set(names[-4:])


def test_how_an_own_job_ended_is_written_into_its_run_once(
    sessions: list[WatchSession], settings: Settings, run_dir: Path
) -> None:
    io = QueueAndDisk()
    ended = {"job_id": "17", "user": "me", "state": "TIMEOUT"}
    io.fake.answer("jobs", squeue(ended))
    start(sessions, settings, io)
    said = wait_until(
        lambda: (value := json.loads((run_dir / "run.json").read_text())).get("state") and value,
        15,
        "the state is kept",
    )
    assert (said["state"], said["ended_time_s"]) == ("TIMEOUT", NOON_S + 601)
    assert said["created_time_s"] == NOON_S


@pytest.mark.parametrize("how", ["replay", "readonly", "foreign"])
def test_run_directories_are_left_alone_where_nothing_may_be_changed(
    sessions: list[WatchSession], settings: Settings, run_dir: Path, how: str
) -> None:
    io = QueueAndDisk()
    io.fake.answer(
        "jobs", squeue({"job_id": "17", "user": "you" if how == "foreign" else "me", "state": "TIMEOUT"})
    )
    before = (run_dir / "run.json").read_bytes()
    settings = replace(settings, is_readonly=how == "readonly")
    _, updates = start(sessions, settings, io, is_recorded=how == "replay")
    wait_until(
        lambda: updates.last and updates.last.runs and len(updates.times) > 2, 15, "the run was listed"
    )
    assert (run_dir / "run.json").read_bytes() == before


def test_a_dead_controller_is_named_and_the_last_snapshot_stays(
    sessions: list[WatchSession], settings: Settings
) -> None:
    io = QueueAndDisk()
    io.fake.answer("jobs", squeue({"job_id": "17", "user": "me"}))
    session, updates = start(sessions, settings, io)
    wait_until(lambda: updates.last and updates.last.jobs, 10, "the queue")
    del io.fake.answers["jobs"]
    session.refresh_soon()
    wait_until(lambda: updates.last and updates.last.sources["jobs"].error, 10, "the failure is told")
    assert [job.job_id for job in session.snapshot.jobs] == ["17"]
    assert session.snapshot.sources["jobs"].data_time_s is not None


@pytest.mark.parametrize(
    ("before", "last_lines", "expected"),
    [
        ("start\n", "slurmstepd: error: Job 17 exceeded memory limit (2 > 1), being killed\n", "MEM007"),
        ("", "slurmstepd: error: *** JOB 17 ON node1 CANCELLED DUE TO TIME LIMIT ***", "JOB002"),
        (
            "",
            'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import einops\n'
            "ModuleNotFoundError: No module named 'einops'\n",
            "ENV007",
        ),
    ],
    ids=["after others", "unfinished", "all at once"],
)
def test_a_job_that_ends_is_judged_with_the_last_lines_of_its_log(
    sessions: list[WatchSession], settings: Settings, before: str, last_lines: str, expected: str
) -> None:
    """Its log was read before its end, and would else be said to hold no cause, or nothing."""
    run_dir = make_run(settings, RUN, state="RUNNING", launch={"recipe": "ddp"})
    io, log = QueueAndDisk(), runs.scheduler_logs(run_dir.parent, RUN)[0]
    runs.link_scheduler_logs(runs.RunPaths(run_dir))
    log.write_text(before)
    io.fake.answer("jobs", squeue({"job_id": "17", "user": "me"}))
    session, updates = start(sessions, settings, io)
    session.watch(Watch(targets=(RUN,)))
    wait_until(lambda: RUN in session.snapshot.diagnoses, 20, "the running job is judged")

    def read_s() -> float | None:
        return session.snapshot.sources[f"log:{RUN}"].data_time_s

    last_s = read_s()
    wait_until(lambda: read_s() != last_s, 20, "the log was read a moment ago")
    log.write_text(before + last_lines)
    io.fake.answer("jobs", squeue({"job_id": "17", "user": "me", "state": "FAILED", "exit_code": "256"}))
    session.refresh_soon(is_cluster_only=True)

    def verdicts() -> list[Diagnosis]:
        found = [each.diagnoses[RUN] for each in updates.snapshots if RUN in each.diagnoses]
        return [each for each in found if each.state == "FAILED"]

    wait_until(verdicts, 20, "the ended job is judged")
    assert {each.findings[0].rule for each in verdicts()} == {expected}


def test_a_wrong_threshold_in_the_config_is_reported_and_the_rules_use_their_defaults(
    sessions: list[WatchSession], settings: Settings, run_dir: Path
) -> None:
    settings = replace(settings, thresholds={"XYZ999": {"x": 1.0}})
    session, updates = start(sessions, settings, QueueAndDisk())
    session.watch(Watch(targets=(RUN,)))
    wait_until(lambda: updates.last and RUN in updates.last.diagnoses, 20, "the run is judged all the same")
    wait_until(lambda: "rules" in session.snapshot.sources, 10, "the mistake is told")
    assert "XYZ999" in (session.snapshot.sources["rules"].error or "")
