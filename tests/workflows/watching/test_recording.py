from __future__ import annotations

import getpass
import gzip
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from coach.config import Settings
from coach.model.errors import UserError
from coach.model.snapshot import Snapshot, Watch
from coach.recorder import open_recording
from coach.sources.io import SystemIo
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import resolve_target
from coach.workflows.watching.live_session import WatchSession
from coach.workflows.watching.recording import Kept, open_replay, record
from tests.waiting import wait_until

RUN = "20261121-142233-ddp-4f2a"


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Recorder:
    """Records in a thread of its own, as the command does in its process."""

    def __init__(self, file: Path, settings: Settings, **options: object) -> None:
        self.stop = threading.Event()
        self.kept: list[Kept] = []
        self.thread = threading.Thread(target=self._run, args=(file, settings, options))
        self.thread.start()

    def _run(self, file: Path, settings: Settings, options: dict[str, object]) -> None:
        self.kept.append(record(file, settings, "local", os.environ, wait=self.stop.wait, **options))  # type: ignore[arg-type]

    def end(self) -> Kept:
        self.stop.set()
        self.thread.join(timeout=20)
        return self.kept[0]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path / "config")


@pytest.fixture
def run_dir(settings: Settings) -> Path:
    path = settings.runs_root / RUN
    (path / "metrics").mkdir(parents=True)
    value = {"run_id": RUN, "recipe": "ddp", "backend": "local", "job_id": RUN, "state": "RUNNING"}
    (path / "run.json").write_text(
        json.dumps({**value, "created_time_s": time.time(), "user": getpass.getuser()})
    )
    # As for Slurm runs: a link to the scheduler's output file.
    (settings.runs_root / ".logs").mkdir()
    (settings.runs_root / ".logs" / f"{RUN}.out").write_text("step 1\n")
    (path / "stdout.log").symlink_to(f"../.logs/{RUN}.out")
    return path


@pytest.fixture
def replays() -> Iterator[list[WatchSession]]:
    made: list[WatchSession] = []
    yield made
    for session in made:
        session.stop()


def write_steps(run_dir: Path) -> None:
    with open(run_dir / "metrics" / "rank-0.jsonl", "a") as out:
        for number in range(5):
            out.write(json.dumps({"step": number, "loss": 2.0 - number / 10, "time_s": time.time()}) + "\n")


def end_run(run_dir: Path) -> None:
    value = {"state": "COMPLETED", "exit_code": 0, "ended_time_s": time.time()}
    (run_dir / "exit.json").write_text(json.dumps(value))


def test_a_recorded_run_is_replayed_to_the_same_end_by_an_unchanged_session(
    tmp_path: Path, settings: Settings, run_dir: Path, replays: list[WatchSession]
) -> None:
    file = tmp_path / "recording.gz"
    recorder = Recorder(file, settings, run_ids=(RUN,), duration_s=4.0)
    write_steps(run_dir)
    end_run(run_dir)
    recorder.thread.join(timeout=30)
    kept = recorder.end()
    assert kept.size_bytes == file.stat().st_size
    target = resolve_target(RUN, settings, SystemIo({}), "local", "me")
    live, _ = read_once(target, settings, SystemIo({}), "local", "me", ())
    for path in sorted(run_dir.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    clock, told = Clock(), list[Snapshot]()
    elsewhere = Settings(runs_root=tmp_path / "other", cache_dir=tmp_path, config_dir=tmp_path)
    session = open_replay(file, elsewhere, clock=clock)
    replays.append(session)
    session.watch(Watch(targets=(RUN,)))
    session.start(told.append)
    clock.now_s = 1000.0
    session.refresh_soon()
    wait_until(lambda: told and RUN in told[-1].diagnoses, 20, "the replayed run is judged")
    wait_until(lambda: told[-1].targets[RUN].exit is not None, 20, "it ends as it ended")
    wait_until(lambda: told[-1].targets[RUN].state != "RUNNING", 20, "its state follows")
    target = told[-1].targets[RUN]
    assert (target.state, target.exit) == ("COMPLETED", live.exit)
    assert [(Path(tail.file).name, tail.lines) for tail in target.log_tails] == [("stdout.log", ("step 1",))]
    assert [step.step for step in session.history(RUN).steps(0)] == list(range(5))
    assert [node.name for node in told[-1].nodes] == [os.uname().nodename.split(".")[0]]
    wait_until(lambda: [job.job_id for job in told[-1].jobs] == [RUN], 10, "the queue shows it")


def test_an_anonymized_recording_of_all_active_runs_has_no_name_of_this_machine_or_user_and_leaves_no_raw_file(
    tmp_path: Path, settings: Settings, run_dir: Path
) -> None:
    file = tmp_path / "clean.gz"
    value = json.loads((run_dir / "run.json").read_text())
    (run_dir / "run.json").write_text(json.dumps({**value, "user": "alice.smith"}))
    host = os.uname().nodename.split(".")[0]
    (run_dir / "stdout.log").write_text("loss 2.0 of alice.smith\nsee /home/alice.smith/x\n")
    recorder = Recorder(file, settings, duration_s=3.0, is_anonymized=True)
    recorder.thread.join(timeout=30)
    assert recorder.end().followed == (RUN,)
    text = gzip.decompress(file.read_bytes()).decode()
    assert "alice.smith" not in text
    assert f'"name":"{host}"' not in text
    assert '"k":"bytes"' in text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_recording_is_not_written_over(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "x.gz"
    file.write_bytes(b"precious")
    with pytest.raises(UserError, match="exists already"):
        record(file, settings, "local", os.environ, wait=threading.Event().wait)
    assert file.read_bytes() == b"precious"


def test_an_unknown_run_is_refused_before_anything_is_written(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "x.gz"
    with pytest.raises(UserError, match="no run, job or file"):
        record(file, settings, "local", os.environ, run_ids=("nothing",), wait=threading.Event().wait)
    assert not file.exists()


def test_a_run_is_followed_by_its_id_however_the_user_named_it(
    tmp_path: Path, settings: Settings, run_dir: Path
) -> None:
    for index, text in enumerate(("ddp-4f2a", str(run_dir))):
        file = tmp_path / f"{index}.gz"
        kept = record(file, settings, "local", os.environ, run_ids=(text,), wait=lambda seconds: None)
        assert kept.followed == open_recording(file).header.targets == (RUN,)


def test_a_log_is_no_replay(tmp_path: Path, settings: Settings) -> None:
    file = tmp_path / "stdout.log"
    file.write_text("step 1\n")
    with pytest.raises(UserError, match="not a recording"):
        open_replay(file, settings)
