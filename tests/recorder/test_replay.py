from __future__ import annotations

import errno
import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from coach.model.errors import UserError
from coach.model.reading import JobList, LogChunk, MetricsChunk, RunFacts
from coach.recorder import Header, RecordingIo, ReplayIo, open_recording, recording
from coach.sources.io import Query
from coach.sources.logs.log_source import LogSource
from coach.sources.metrics.run_metrics import MetricsSource
from coach.sources.runs.run_files import RunFilesSource
from coach.sources.slurm.client import JobsSource
from coach.sources.slurm.queue import jobs_by_id_query, jobs_query
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import squeue

HEADER = Header(1000.0, "slurm", "me", "/runs")


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


class Session:
    """A recording that is made, and then played."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "recording.gz"
        self.world = FakeIo()
        self.io = RecordingIo(self.world, self.file, HEADER)
        self.clock = Clock()

    def play(self, speed: float = 1.0) -> ReplayIo:
        self.io.close()
        return ReplayIo(open_recording(self.file), self.clock, speed)

    def entries(self) -> list[dict[str, object]]:
        self.io.close()
        return [dict(entry) for entry in open_recording(self.file).entries]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(tmp_path)


def jobs_of(io: RecordingIo | ReplayIo, *, is_all: bool = True) -> list[tuple[str, str]]:
    (reading,) = JobsSource(io, "me", 10, is_all=is_all).poll()
    assert isinstance(reading.payload, JobList), reading.error
    return [(job.job_id, job.state) for job in reading.payload.jobs]


def test_a_queue_is_played_as_it_changed_with_its_own_separators(session: Session) -> None:
    session.world.answer("jobs", squeue({"job_id": "17", "user": "me", "state": "PENDING"}))
    recorded = [jobs_of(session.io)]
    session.world.now_s = 1010.0
    session.world.answer("jobs", squeue({"job_id": "17", "user": "me", "state": "RUNNING"}))
    recorded.append(jobs_of(session.io))
    replay = session.play()
    assert jobs_of(replay) == recorded[0]
    session.clock.now_s += 9.9
    assert jobs_of(replay) == recorded[0]
    session.clock.now_s += 0.2
    assert jobs_of(replay) == recorded[1]


def test_an_unchanged_answer_is_stored_once_although_its_separators_differ(session: Session) -> None:
    # With another user's job in it, coach does not ask if the site hides jobs.
    session.world.answer("jobs", squeue({"job_id": "17", "user": "me"}, {"job_id": "18", "user": "other"}))
    for _ in range(50):
        jobs_of(session.io)
        session.world.now_s += 10
    kinds = [entry["k"] for entry in session.entries()]
    assert kinds == ["run"] + ["again"] * 49
    replay = session.play()
    session.clock.now_s += 300
    assert jobs_of(replay) == [("17", "RUNNING"), ("18", "RUNNING")]


def test_a_newer_coach_that_asks_in_other_words_gets_the_old_answer_of_that_kind(session: Session) -> None:
    session.world.answer("jobs", squeue({"job_id": "17", "user": "me"}))
    jobs_of(session.io, is_all=True)
    assert jobs_of(session.play(), is_all=False) == [("17", "RUNNING")]


def test_a_newer_coach_s_question_about_own_jobs_gets_the_older_answer_about_own_jobs(
    session: Session,
) -> None:
    session.world.answer("jobs", squeue({"job_id": "17", "user": "me"}))
    for user in (None, "me"):
        query = jobs_query(user)
        session.io.run(replace(query, argv=(*query.argv, "--older-words")))
    replay = session.play()
    for user in (None, "me"):
        answered = replay.run(jobs_query(user)).query.argv
        assert ("-u" in answered, answered[-1]) == (user is not None, "--older-words")


def test_one_jobs_files_are_not_taken_for_anothers(session: Session) -> None:
    session.world.answer("job-files 17", lambda query: b"   StdOut=/o\n")
    session.io.run(jobs_by_id_query(["17"]))
    replay = session.play()
    assert replay.run(jobs_by_id_query(["17"])).stdout == b"   StdOut=/o\n"
    refused = replay.run(jobs_by_id_query(["18"]))
    assert (refused.returncode, refused.error) == (None, "squeue: not in the recording")


def test_a_query_before_its_recorded_time_is_not_known_yet(session: Session) -> None:
    session.world.now_s = 1300.0
    session.world.answer("jobs", squeue({"job_id": "17", "user": "me"}))
    jobs_of(session.io)
    replay = session.play()
    (reading,) = JobsSource(replay, "me", 10).poll()
    assert reading.error == "squeue: not in the recording yet"
    session.clock.now_s += 300
    assert jobs_of(replay) == [("17", "RUNNING")]


def test_a_failed_command_is_played_as_it_failed(session: Session) -> None:
    live = session.io.run(Query("jobs", ("squeue",)))
    assert session.play().run(Query("jobs", ("squeue",))) == live


def test_files_are_as_long_as_they_had_grown_by_then(session: Session) -> None:
    path, folder = "/runs/r/metrics/rank-0.jsonl", Path("/runs/r")
    source = MetricsSource(session.io, "r", folder)
    for number in range(5):
        session.world.now_s = 1000.0 + 10 * number
        session.world.append(path, json.dumps({"step": number}).encode() + b"\n")
        list(source.poll())
    replay = session.play()
    played = MetricsSource(replay, "r", folder)
    for number in range(5):
        (reading,) = played.poll()
        assert isinstance(reading.payload, MetricsChunk)
        assert [step.step for step in reading.payload.steps] == [number]
        session.clock.now_s += 10


def test_a_rewritten_file_is_replayed_as_it_changed(session: Session) -> None:
    path = "/runs/r/run.json"
    states = ["PENDING", "RUNNING", "FAILED"]
    for number, state in enumerate(states):
        session.world.now_s = 1000.0 + 10 * number
        session.world.write(path, json.dumps({"state": state}).encode())
        list(RunFilesSource(session.io, "r", Path("/runs/r")).poll())
    replay = session.play()
    for state in states:
        (reading,) = RunFilesSource(replay, "r", Path("/runs/r")).poll()
        assert isinstance(reading.payload, RunFacts)
        assert reading.payload.run.state == state
        session.clock.now_s += 10


def test_a_log_that_was_cut_is_played_as_cut(session: Session) -> None:
    recorded, played = [], []
    source = LogSource(session.io, "r", lambda: (Path("/log"),), lambda: ())
    for number, data in enumerate([b"long line\n" * 100, b"short\n", b"short\nmore\n"]):
        session.world.now_s = 1000.0 + 10 * number
        session.world.write("/log", data)
        recorded += [
            reading.payload.tail.lines for reading in source.poll() if isinstance(reading.payload, LogChunk)
        ]
    replay = session.play()
    source = LogSource(replay, "r", lambda: (Path("/log"),), lambda: ())
    for _ in range(3):
        played += [
            reading.payload.tail.lines for reading in source.poll() if isinstance(reading.payload, LogChunk)
        ]
        session.clock.now_s += 10
    assert played == recorded
    assert played[-1] == ("short", "more")


def test_bytes_that_are_not_utf_8_come_back_as_they_were(session: Session) -> None:
    data = bytes(range(256)) * 3
    session.world.write("/log", data)
    session.io.read(Path("/log"), 0, 10_000)
    session.world.answer("jobs", lambda query: data)
    session.io.run(Query("jobs", ("squeue",)))
    replay = session.play()
    assert replay.read(Path("/log"), 0, 10_000) == data
    assert replay.run(Query("jobs", ("squeue",))).stdout == data


def test_each_byte_of_a_file_is_kept_once_however_often_it_is_read(session: Session) -> None:
    session.world.write("/log", b"0123456789" * 1000)
    for _ in range(20):
        session.io.read(Path("/log"), 0, 1 << 20)
        session.io.read(Path("/log"), 5000, 100)
    kept = [entry for entry in session.entries() if entry["k"] == "bytes"]
    assert [len(str(entry["data"])) for entry in kept] == [10_000]


def test_a_replay_repeats_missing_and_forbidden_files_and_a_file_appears_in_its_time(
    session: Session,
) -> None:
    path = Path("/runs/r/exit.json")
    session.world.failing["/secret"] = errno.EACCES
    with pytest.raises(FileNotFoundError):
        session.io.read(path, 0, 100)
    with pytest.raises(PermissionError):
        session.io.list_dir(Path("/secret"))
    session.world.now_s = 1010.0
    session.world.write(str(path), b"{}")
    session.io.read(path, 0, 100)
    assert session.io.list_dir(Path("/runs/r")) == ["exit.json"]
    assert session.io.modified_s(path) == 1010.0
    replay = session.play()
    for look in (
        lambda: replay.read(path, 0, 100),
        lambda: replay.size(path),
        lambda: replay.modified_s(path),
    ):
        with pytest.raises(FileNotFoundError):
            look()
    with pytest.raises(PermissionError):
        replay.list_dir(Path("/secret"))
    session.clock.now_s += 10
    assert (replay.read(path, 0, 100), replay.size(path), replay.modified_s(path)) == (b"{}", 2, 1010.0)
    assert replay.list_dir(Path("/runs/r")) == ["exit.json"]


def test_the_clock_runs_at_its_speed_and_stands_still_at_the_end(session: Session) -> None:
    session.world.now_s = 1100.0
    session.io.run(Query("jobs", ("squeue",)))
    replay = session.play(speed=10.0)
    assert replay.now() == 1000.0
    session.clock.now_s += 5
    assert (replay.now(), replay.is_at_end) == (1050.0, False)
    session.clock.now_s += 1000
    assert (replay.now(), replay.is_at_end) == (1100.0, True)


def test_nothing_is_kept_after_the_end(session: Session) -> None:
    session.io.close()
    session.world.write("/log", b"x")
    assert session.io.read(Path("/log"), 0, 10) == b"x"
    assert session.entries() == []


def test_a_recording_whose_writer_was_killed_is_read_up_to_its_end(session: Session) -> None:
    for number in range(2000):
        session.world.append("/log", f"{number} {hash(str(number))}\n".encode())
        session.io.read(Path("/log"), 0, 1 << 20)
    session.io.close()
    whole = session.file.read_bytes()
    session.file.write_bytes(whole[: len(whole) // 2])
    entries = open_recording(session.file).entries
    assert 0 < len(entries) < 2000


def test_a_recording_is_private(session: Session) -> None:
    assert session.file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "no such file"),
        (b"not gzip at all", "not a recording"),
        (gzip.compress(b"", mtime=0), "not a recording"),
        (gzip.compress(b"[1, 2]\n", mtime=0), "not a recording"),
        (gzip.compress(b'{"kind": "coach-recording", "schema": 99}\n', mtime=0), "schema 99"),
        (gzip.compress(b'{"kind": "coach-recording", "schema": 1}\n', mtime=0), "header is damaged"),
    ],
)
def test_a_file_that_is_no_recording_is_refused_in_one_line(
    tmp_path: Path, content: bytes | None, words: str
) -> None:
    file = tmp_path / "x.gz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        open_recording(file)
    assert words in caught.value.message
    assert str(file) in caught.value.message
    assert "\n" not in caught.value.message


def test_a_damaged_line_is_named(session: Session) -> None:
    session.io.run(Query("jobs", ("squeue",)))
    session.io.close()
    lines = gzip.decompress(session.file.read_bytes())
    session.file.write_bytes(gzip.compress(lines + b'{"k": "run"}\n'))
    with pytest.raises(UserError, match="line 3 of the recording is damaged"):
        open_recording(session.file)


def entry_of(**fields: object) -> bytes:
    whole = {
        "id": 1,
        "kind": "jobs",
        "argv": [],
        "sep": "",
        "end": "",
        "rc": 0,
        "out": "",
        "err": "",
        "error": None,
    }
    return json.dumps({"t": 1.0, "k": "run", "dur": 0.1, **whole, **fields}).encode()


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"[" * 100_000, "recursion"),
        (b"[]", "expected an object"),
        (entry_of(t="soon"), "t: expected a number of seconds"),
        (entry_of(t=float("nan")), "t: expected a number of seconds"),
        (entry_of(k=["run"]), "k: no kind of entry"),
        (entry_of(k="later"), "k: no kind of entry"),
        (b'{"t": 1, "k": "bytes", "data": ""}', "path: expected a text"),
        (b'{"t": 1, "k": "bytes", "path": "/x", "data": 3}', "data: expected a text"),
        (b'{"t": 1, "k": "dir", "path": "/x", "names": "abc"}', "names: expected a list of texts"),
        (b'{"t": 1, "k": "again", "of": 7, "dur": 0}', "of: expected the id of an earlier answer"),
        (entry_of(rc="0"), "rc: expected a whole number or null"),
        (entry_of(argv=[["x"]]), "argv: expected a list of texts"),
    ],
)
def test_a_crafted_line_is_one_error_that_names_it(session: Session, line: bytes, why: str) -> None:
    session.io.close()
    with gzip.open(session.file, "ab") as file:
        file.write(line + b"\n")
    with pytest.raises(UserError, match=r"line 2 of the recording is damaged: .*") as error:
        open_recording(session.file)
    assert why in error.value.message


def test_a_recording_that_unpacks_to_too_many_bytes_is_refused(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.world.write("/log", b"x" * 4000)
    session.io.read(Path("/log"), 0, 4000)
    session.io.close()
    assert len(open_recording(session.file).entries) == 1
    monkeypatch.setattr(recording, "MAX_BYTES", 3000)
    with pytest.raises(UserError, match="unpacks to more than"):
        open_recording(session.file)
