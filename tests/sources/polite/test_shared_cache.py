from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.reading import JobList
from coach.runs import lock_owner
from coach.sources.io import COMMAND_TIMEOUT_S, CommandResult, Query
from coach.sources.polite import shared_cache
from coach.sources.polite.shared_cache import FAILURE_AGE_S, FIRST_AGES_S, SharedIo, shared_folder
from coach.sources.slurm.client import JobsSource
from coach.sources.slurm.nodes import NODES_QUERY
from coach.sources.slurm.queue import jobs_query, parse_jobs
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import squeue
from tests.waiting import wait_until


class Controller(FakeIo):
    """Counts its requests."""

    def __init__(self) -> None:
        super().__init__(now_s=time.time())
        self.asked: list[str] = []
        self.gate: threading.Event | None = None
        self.answer("jobs", squeue({"job_id": "17", "user": "me"}))
        self.answer("nodes", lambda query: b"NodeName=node1 State=IDLE\n")

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        self.asked.append(query.kind)
        if self.gate is not None:
            self.gate.wait(10)
        return super().run(query, timeout_s)


@pytest.fixture
def controller() -> Controller:
    return Controller()


def coaches(controller: Controller, folder: Path, count: int = 2) -> list[SharedIo]:
    return [SharedIo(controller, folder, "tiger") for _ in range(count)]


def test_several_coaches_of_a_user_cost_one(controller: Controller, tmp_path: Path) -> None:
    first, second = coaches(controller, tmp_path)
    for round_ in range(5):
        told = [io.run(NODES_QUERY).stdout for io in (first, second)]
        assert told == [b"NodeName=node1 State=IDLE\n"] * 2
        assert len(controller.asked) == round_ + 1
        controller.now_s += FIRST_AGES_S["nodes"]


def test_a_shared_queue_is_read_with_the_separators_it_was_asked_with(
    controller: Controller, tmp_path: Path
) -> None:
    first, second = coaches(controller, tmp_path)
    first.run(jobs_query("me"))
    answer = second.run(jobs_query("me"))
    jobs, num_bad = parse_jobs(answer.stdout.decode(), answer.query.separator, answer.query.record_end)
    assert ([job.job_id for job in jobs], num_bad) == (["17"], 0)
    assert controller.asked == ["jobs"]
    second.run(jobs_query(None))
    assert controller.asked == ["jobs", "jobs"], "everybody's jobs are another question"


def test_a_coach_that_polls_again_gets_a_newer_answer_than_its_own(
    controller: Controller, tmp_path: Path
) -> None:
    (io,) = coaches(controller, tmp_path, 1)
    for _ in range(3):
        io.run(NODES_QUERY)
        controller.now_s += 5.0
    assert len(controller.asked) == 3


def test_after_a_launch_older_answers_are_ignored(controller: Controller, tmp_path: Path) -> None:
    first, second = coaches(controller, tmp_path)
    first.run(NODES_QUERY)
    controller.now_s += 0.5
    second.refuse_older()
    second.run(NODES_QUERY)
    assert len(controller.asked) == 2


def test_another_cluster_is_another_answer(controller: Controller, tmp_path: Path) -> None:
    SharedIo(controller, tmp_path, "tiger").run(NODES_QUERY)
    SharedIo(controller, tmp_path, "lion").run(NODES_QUERY)
    assert len(controller.asked) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-3],
        lambda data: data + b"x",
        lambda data: data.replace(b"IDLE", b"DOWN"),
        lambda data: data.replace(b'"schema": 1', b'"schema": 2'),
        lambda data: b"[" * 100_000,
        lambda data: b'{"schema": 1}\n',
    ],
)
def test_a_torn_or_malformed_answer_is_ignored(
    controller: Controller, tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    first, second = coaches(controller, tmp_path)
    first.run(NODES_QUERY)
    (file,) = tmp_path.glob("nodes-*")
    file.write_bytes(damage(file.read_bytes()))
    assert second.run(NODES_QUERY).stdout == b"NodeName=node1 State=IDLE\n"
    assert len(controller.asked) == 2


@pytest.mark.parametrize("late_s", [FIRST_AGES_S["nodes"] + 1, -3600.0])
def test_an_answer_that_is_old_or_from_the_future_is_ignored(
    controller: Controller, tmp_path: Path, late_s: float
) -> None:
    first, second = coaches(controller, tmp_path)
    first.run(NODES_QUERY)
    controller.now_s += late_s
    second.run(NODES_QUERY)
    assert len(controller.asked) == 2


def test_a_failure_answers_for_all_but_not_for_long(controller: Controller, tmp_path: Path) -> None:
    first, second = coaches(controller, tmp_path)
    controller.answers["nodes"] = lambda query: CommandResult(
        query, 1, b"", "connect failure", controller.now_s, 0.25
    )
    first.run(NODES_QUERY)
    assert second.run(NODES_QUERY).stderr == "connect failure"
    assert len(controller.asked) == 1
    controller.now_s += FAILURE_AGE_S + 0.1
    SharedIo(controller, tmp_path, "tiger").run(NODES_QUERY)
    assert len(controller.asked) == 2


def test_one_coach_sends_the_request_and_the_others_use_its_answer(
    controller: Controller, tmp_path: Path
) -> None:
    controller.gate = threading.Event()
    told: list[bytes] = []
    threads = [
        threading.Thread(target=lambda io=io: told.append(io.run(NODES_QUERY).stdout))
        for io in coaches(controller, tmp_path, 4)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: controller.asked, 5, "one asks")
    controller.gate.set()
    for thread in threads:
        thread.join(10)
    assert (len(controller.asked), told) == (1, [b"NodeName=node1 State=IDLE\n"] * 4)
    assert list(tmp_path.glob(".*")) == [], "no lock and nothing half written is left"


def test_the_lock_of_a_killed_coach_expires(
    controller: Controller, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_cache, "LOCK_SLACK_S", 0.3 - COMMAND_TIMEOUT_S)
    first, second = coaches(controller, tmp_path)
    first.run(NODES_QUERY)
    (file,) = tmp_path.glob("nodes-*")
    (tmp_path / f".{file.name}.lock").write_text("")
    controller.now_s += 1000.0
    assert second.run(NODES_QUERY).returncode == 0
    assert list(tmp_path.glob(".*")) == []


def test_a_full_or_removed_folder_prevents_sharing_but_not_the_answer(
    controller: Controller, tmp_path: Path
) -> None:
    (io,) = coaches(controller, tmp_path / "gone", 1)
    assert io.run(NODES_QUERY).returncode == 0


def test_requests_that_are_not_shared_pass_through(controller: Controller, tmp_path: Path) -> None:
    (io,) = coaches(controller, tmp_path, 1)
    for _ in range(2):
        io.run(Query("priority", ("sprio", "-h")))
    assert controller.asked == ["priority", "priority"]
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_for_its_user_alone(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    folder = shared_folder({"XDG_RUNTIME_DIR": str(runtime)}, tmp_path / "cache")
    assert folder == runtime / "coach"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    in_cache = tmp_path / "cache" / "answers"
    assert shared_folder({"XDG_RUNTIME_DIR": str(runtime)}, tmp_path / "cache") == in_cache


def test_a_link_to_a_folder_that_others_may_write_is_not_used_for_sharing(tmp_path: Path) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere").chmod(0o777)
    (runtime / "coach").symlink_to(tmp_path / "elsewhere")
    assert (
        shared_folder({"XDG_RUNTIME_DIR": str(runtime)}, tmp_path / "cache") == tmp_path / "cache" / "answers"
    )


class Printing(Controller):
    """Emits its answers in pieces, as real clients do."""

    def run(self, query: Query, timeout_s: float = COMMAND_TIMEOUT_S) -> CommandResult:
        result = super().run(query, timeout_s)
        if result.query.reader is None:
            return result
        for start in range(0, len(result.stdout), 10):
            result.query.reader.feed(result.stdout[start : start + 10])
        return replace(result, stdout=b"", is_read=True)


def poll(io: SharedIo) -> list[str]:
    (reading,) = JobsSource(io, "me", 10.0, is_all=False).poll()
    assert isinstance(reading.payload, JobList), reading.error
    return [job.job_id for job in reading.payload.jobs]


def test_a_queue_parsed_in_pieces_is_shared_too(tmp_path: Path) -> None:
    controller = Printing()
    first, second = coaches(controller, tmp_path)
    assert [poll(io) for io in (first, second)] == [["17"], ["17"]]
    assert controller.asked == ["jobs"]


def test_a_queue_that_is_too_long_to_be_shared_is_read_by_each_coach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_cache, "MAX_BYTES", 20)
    controller = Printing()
    assert [poll(io) for io in coaches(controller, tmp_path)] == [["17"], ["17"]]
    assert controller.asked == ["jobs", "jobs"]
    assert not list(tmp_path.glob("jobs-*"))


def test_a_lock_of_a_coach_killed_on_this_machine_delays_no_other(
    controller: Controller, tmp_path: Path
) -> None:
    pid = os.fork()
    if not pid:
        try:
            (tmp_path / "owner").write_text(lock_owner())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    io = SharedIo(controller, tmp_path, "tiger", timeout_s=100_000.0)
    lock = io._file_of(NODES_QUERY)
    (tmp_path / "owner").rename(lock.with_name(f".{lock.name}.lock"))
    assert io.run(NODES_QUERY).returncode == 0
    assert controller.asked == ["nodes"]
