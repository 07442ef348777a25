from __future__ import annotations

import contextlib
import io as standard_io
import json
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import pytest

from coach.analysis.jobs.belonging import Parts
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.reading import JobList
from coach.model.training.log import LogFile, Signature
from coach.rules.engine import Engine
from coach.rules.registry import build
from coach.sources.io import SystemIo
from coach.sources.machine.user import user_name
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.slurm.client import JobsSource
from coach.trusted import UNKNOWN_USER
from coach.workflows.judging.check import Checked, Checker
from coach.workflows.judging.kept_verdicts import keep
from coach.workflows.judging.one_reading import read_once
from coach.workflows.judging.targets import Target, TargetKind, locate_target, resolve_target
from tests.sources.fake_io import FakeIo
from tests.sources.squeue import own_squeue, squeue

RUN = "20261121-142233-ddp-4f2a"
KILLED = Signature("MEM007", "killed", ("Killed",), r"^Killed$")


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(runs_root=tmp_path / "runs", cache_dir=tmp_path / "cache", config_dir=tmp_path / "config")


@pytest.fixture
def run_dir(settings: Settings) -> Path:
    path = settings.runs_root / RUN
    (path / "metrics").mkdir(parents=True)
    (path / "run.json").write_text(
        json.dumps({"run_id": RUN, "backend": "slurm", "job_id": "17", "state": "RUNNING"})
    )
    (path / "stdout.log").write_text("step 1\nKilled")
    lines = [json.dumps({"step": number, "loss": 1.0, "time_s": 900.0 + number}) for number in range(3)]
    (path / "metrics" / "rank-0.jsonl").write_text("\n".join(lines) + "\n")
    return path


def resolve(text: str, settings: Settings, backend: str = "local") -> Target:
    return resolve_target(text, settings, SystemIo({}), backend, "me")


def test_a_run_is_found_by_its_id_its_job_and_its_directory(settings: Settings, run_dir: Path) -> None:
    for text in (RUN, "17", str(run_dir)):
        target = resolve(text, settings)
        assert (target.kind, target.path) == (TargetKind.RUN, run_dir)


def test_a_run_is_found_by_the_short_name_of_the_screens_while_it_is_unique(
    settings: Settings, run_dir: Path
) -> None:
    assert resolve("ddp-4f2a", settings).path == run_dir
    later = run_dir.with_name("20261122-090000-ddp-4f2a")
    later.mkdir()
    (later / "run.json").write_text(json.dumps({"run_id": later.name, "backend": "slurm"}))
    with pytest.raises(UserError) as caught:
        resolve("ddp-4f2a", settings)
    assert "2 runs" in caught.value.message
    assert caught.value.hint is not None
    assert RUN in caught.value.hint


def test_a_file_is_a_log_and_a_dash_is_standard_input(
    settings: Settings, run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert resolve(str(run_dir / "stdout.log"), settings).kind is TargetKind.LOG
    monkeypatch.chdir(run_dir)
    assert resolve("stdout.log", settings).path == run_dir / "stdout.log"
    assert resolve("-", settings).kind is TargetKind.STDIN


@pytest.mark.parametrize(
    "text", ["", "nothing", "999", "a\0b", "~nobody-here/x", "/no/such/file", "x" * 5000]
)
def test_a_name_that_matches_nothing_is_refused_in_one_line(settings: Settings, text: str) -> None:
    with pytest.raises(UserError) as caught:
        resolve(text, settings)
    assert "no run, job or file of that name" in caught.value.message
    assert caught.value.exit_status == 2


def test_a_misspelt_run_gets_the_nearest_one_as_a_hint(settings: Settings, run_dir: Path) -> None:
    with pytest.raises(UserError) as caught:
        resolve(RUN[:-1] + "b", settings)
    assert caught.value.hint == f"did you mean {RUN}?"


def test_a_directory_that_is_no_run_is_refused(settings: Settings, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a directory without run"):
        resolve(str(tmp_path), settings)


def test_a_directory_of_checkpoints_hides_no_job_of_its_name(
    settings: Settings, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mkdir $SLURM_JOB_ID` in a script."""
    for name in ("17", "18"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.pt").touch()
    monkeypatch.chdir(tmp_path)
    assert resolve("17", settings).path == run_dir
    for text in ("18", "./17"):
        with pytest.raises(UserError, match=r"a directory without run\.json"):
            resolve(text, settings)


def test_a_foreign_job_is_read_from_the_queue_and_its_output_where_slurm_says(settings: Settings) -> None:
    fake = FakeIo()
    row = {"job_id": "42", "user": "you", "name": "theirs", "work_dir": "/home/you", "stdout": "%x-%j.out"}
    fake.answer("jobs", own_squeue(row))
    fake.write("/home/you/theirs-42.out", b"Killed\n")
    target = resolve_target("42", settings, fake, "slurm", "you")
    assert target.kind is TargetKind.JOB
    snapshot, _ = read_once(target, settings, fake, "slurm", "you", (KILLED,))
    assert snapshot.job is not None
    assert (snapshot.job.name, snapshot.state) == ("theirs", "RUNNING")
    assert [hit.file for hit in snapshot.log_hits] == ["/home/you/theirs-42.out"]
    assert snapshot.log_files == (LogFile("/home/you/theirs-42.out", is_found=True, owner=UNKNOWN_USER),)


def test_a_foreign_job_is_followed_by_the_numbers_that_it_prints(settings: Settings) -> None:
    fake = FakeIo()
    row = {"job_id": "42", "user": "you", "name": "theirs", "work_dir": "/home/you", "stdout": "o"}
    fake.answer("jobs", own_squeue(row))
    lines = [f"step {step} loss {2 / step:.3f} time: 0.67 data_time: 0.58" for step in range(1, 201)]
    fake.write("/home/you/o", "\n".join([*lines, ""]).encode())
    target = resolve_target("42", settings, fake, "slurm", "you")
    snapshot, history = read_once(target, settings, fake, "slurm", "you", ())
    (newest,) = (point for point in history.curve[-1:])
    assert (newest.step, newest.loss, newest.data_time_s) == (200, 0.01, 0.58)
    (finding,) = Engine(build()).diagnose(snapshot, history).findings
    assert (finding.rule, finding.summary) == ("GPU005", "Input-bound: 87% of each step waits for data")


def test_a_job_that_slurm_has_forgotten_is_found_with_its_log_and_its_end(settings: Settings) -> None:
    fake = FakeIo()
    ended = {"job_id": "42", "user": "you", "state": "FAILED", "work_dir": "/home/you", "stdout": "o-%N"}
    fake.answer("jobs", own_squeue(ended))
    seen = SeenJobs(settings.cache_dir)
    for reading in JobsSource(fake, "you", 0.0, is_all=False).poll():
        assert isinstance(reading.payload, JobList)
        seen.remember(reading.payload.jobs, "you", 1000.0)
    fake.answer("jobs", own_squeue())
    fake.write("/home/you/o-node1", b"Killed\n")
    target = resolve_target("42", settings, fake, "slurm", "you")
    snapshot, _ = read_once(target, settings, fake, "slurm", "you", (KILLED,))
    assert snapshot.state == "FAILED"
    assert [hit.file for hit in snapshot.log_hits] == ["/home/you/o-node1"]


def array_seen_as(settings: Settings, *answers: Sequence[dict[str, str]]) -> tuple[Parts, Checked]:
    """The parts of the whole array 17 after these answers of squeue, the last of them now."""
    fake = FakeIo()
    common = {"user": user_name(), "work_dir": "/w", "stdout": "o"}
    for rows in answers:
        fake.answer("jobs", own_squeue(*({**common, **row} for row in rows)))
        with contextlib.suppress(UserError):
            target = resolve_target("17", settings, fake, "slurm", user_name())
    assert target.parts is not None
    return target.parts, Checker(settings, fake, "slurm", rules=build()).target("17")


def waiting(job_id: str) -> dict[str, str]:
    return {"job_id": job_id, "state": "PENDING", "nodes": "", "end": "N/A"}


def ended(first: int, last: int, state: str = "COMPLETED") -> list[dict[str, str]]:
    return [{"job_id": f"17_{task}", "state": state} for task in range(first, last + 1)]


def test_tasks_that_were_seen_waiting_together_count_once_after_their_start(settings: Settings) -> None:
    looks = [waiting("17_[5-30%4]")], [*ended(1, 8), waiting("17_[9-30%4]")], [*ended(1, 30)]
    parts, checked = array_seen_as(settings, *looks)
    assert [job.job_id for job in parts.rows] == [f"17_{task}" for task in range(1, 31)]
    assert (parts.number, checked.diagnosis.state) == (30, "COMPLETED")
    assert checked.waiting is None


def test_an_array_that_goes_on_has_the_size_of_all_its_tasks(settings: Settings) -> None:
    now = [*ended(9, 12, "RUNNING"), waiting("17_[13-30%4]")]
    parts, checked = array_seen_as(settings, [waiting("17_[1-30%4]")], now)
    assert [job.job_id for job in parts.rows] == ["17_9", "17_10", "17_11", "17_12", "17_[13-30%4]"]
    assert (parts.number, checked.diagnosis.state) == (30, "RUNNING")


def test_an_array_that_slurm_has_forgotten_neither_waits_nor_runs(settings: Settings) -> None:
    last = [*ended(1, 2, "FAILED"), *ended(3, 4, "RUNNING"), waiting("17_[5-9]")]
    parts, checked = array_seen_as(settings, [waiting("17_[1-9]")], last, [])
    assert [job.job_id for job in parts.rows] == ["17_1", "17_2", "17_3", "17_4"]
    assert (parts.number, checked.diagnosis.state) == (9, "FAILED")
    assert [part.snapshot.state for part in checked.parts].count(None) == 2


def test_the_kept_verdict_of_a_whole_array_adds_no_row_to_it(settings: Settings) -> None:
    _, checked = array_seen_as(settings, ended(1, 4, "FAILED"))
    before = SeenJobs(settings.cache_dir).read()
    keep(settings, FakeIo(), checked.snapshot, checked.as_json())
    assert SeenJobs(settings.cache_dir).read() == before


def sweep_of_runs(fake: FakeIo, settings: Settings, states: Sequence[str | None], made_s: float) -> None:
    """An array of coach, job 17: one run for each state, whose log is in its directory."""
    group = "20261121-120000-own-0000"
    for task, state in enumerate(states):
        sweep = {"group_id": group, "parameter": "lr", "value": 0.1, "index": task, "size": len(states)}
        run = {"backend": "slurm", "job_id": f"17_{task}", "user": user_name(), "sweep": sweep}
        ended = {} if state is None else {"state": state, "ended_time_s": made_s + 60}
        name = f"20261121-120000-own-000{task}"
        write_run(fake, settings, name, {**run, "created_time_s": made_s, **ended})
        log = b"ValueError: no such class\n" if state == "FAILED" else b"step 1 loss 0.5\nstep 2 loss 0.4\n"
        trace = b'Traceback (most recent call last):\n  File "/w/t.py", line 16, in <module>\n    f()\n'
        fake.write(str(settings.runs_root / name / "stderr.log"), (trace if state == "FAILED" else b"") + log)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_the_number_of_a_sweep_is_judged_by_the_directories_of_its_runs(
    settings: Settings, is_forgotten: bool
) -> None:
    fake = FakeIo()
    made_s = datetime(2026, 11, 21, 12, 0).timestamp()  # noqa: DTZ001 (squeue's is local time)
    sweep_of_runs(fake, settings, ["COMPLETED", "FAILED", None, None], made_s)
    common = {"user": user_name(), "work_dir": "/w", "stdout": "o"}
    rows = [{"job_id": "17_0", "state": "COMPLETED"}, {"job_id": "17_1", "state": "FAILED"}]
    waits = [waiting("17_[2-3%1]")]
    fake.answer("jobs", own_squeue(*({**common, **row} for row in ([] if is_forgotten else rows) + waits)))
    checked = Checker(settings, fake, "slurm", rules=build()).target("17")
    (found,) = (each for each in checked.diagnosis.findings if each.is_primary)
    assert (found.rule, found.summary) == ("COD001", "1 of 4 (17_1): ValueError: no such class")
    assert "log" not in {each.what for each in checked.diagnosis.not_measured}
    assert {part.snapshot.target for part in checked.parts} == {"17_0", "17_1", "17_[2-3%1]"}
    assert not any(part.is_blind for part in checked.parts)


def test_the_number_of_a_cancelled_sweep_means_its_tasks_and_not_the_row_of_those_that_waited(
    settings: Settings,
) -> None:
    fake = FakeIo()
    made_s = datetime(2026, 11, 21, 12, 0).timestamp()  # noqa: DTZ001 (squeue's is local time)
    sweep_of_runs(fake, settings, ["CANCELLED", None, None], made_s)
    common = {"user": user_name(), "work_dir": "/w", "stdout": "o", "state": "CANCELLED"}
    fake.answer("jobs", own_squeue({**common, "job_id": "17"}, {**common, "job_id": "17_0"}))
    target = resolve_target("17", settings, fake, "slurm", user_name())
    assert target.parts is not None
    told = [(row.job_id, row.state) for row in target.parts.rows]
    assert told == [("17_0", "CANCELLED"), ("17_1", "CANCELLED"), ("17_2", "CANCELLED")]
    assert (target.parts.number, target.parts.with_unknown_end) == (3, frozenset())


def test_a_job_with_the_number_of_an_old_sweep_is_a_job(settings: Settings) -> None:
    fake = FakeIo()
    sweep_of_runs(fake, settings, ["FAILED"], 1000.0)
    fake.answer("jobs", own_squeue({"job_id": "17", "user": user_name(), "work_dir": "/w", "stdout": "o"}))
    assert resolve_target("17", settings, fake, "slurm", user_name()).kind is TargetKind.JOB


def test_a_later_array_with_the_number_of_an_old_sweep_is_not_judged_by_its_runs(settings: Settings) -> None:
    fake = FakeIo()
    sweep_of_runs(fake, settings, ["FAILED"], 1000.0)
    fake.answer("jobs", own_squeue({"job_id": "17_4", "user": user_name(), "work_dir": "/w", "stdout": "o"}))
    target = resolve_target("17", settings, fake, "slurm", user_name())
    assert target.parts is not None
    assert [row.job_id for row in target.parts.rows] == ["17_4"]


def test_a_job_id_means_the_run_whose_job_it_is_and_not_an_old_one_of_the_same_number(
    settings: Settings,
) -> None:
    fake = FakeIo()
    submitted_s = datetime(2026, 11, 21, 12, 0).timestamp()  # noqa: DTZ001 (squeue's is local time)
    base = {"backend": "slurm", "job_id": "17", "user": "me"}
    ended = {**base, "state": "COMPLETED", "created_time_s": 100.0, "ended_time_s": 200.0}
    write_run(fake, settings, "20200101-000000-ddp-0001", ended)
    fake.answer("jobs", squeue({"job_id": "17", "user": "me", "name": "theirs"}))
    assert resolve_target("17", settings, fake, "slurm", "me").kind is TargetKind.JOB
    write_run(fake, settings, "20261121-120000-ddp-0002", {**base, "created_time_s": submitted_s - 1})
    target = resolve_target("17", settings, fake, "slurm", "me")
    assert (target.kind, str(target.path)[-4:]) == (TargetKind.RUN, "0002")
    fake.answer("jobs", squeue())
    assert str(resolve_target("17", settings, fake, "slurm", "me").path)[-4:] == "0002"


def test_slurm_that_does_not_answer_costs_no_run_its_name(settings: Settings, run_dir: Path) -> None:
    assert resolve("17", settings, "slurm").path == run_dir


def write_run(fake: FakeIo, settings: Settings, run_id: str, record: dict[str, object]) -> None:
    fake.write(f"{settings.runs_root}/{run_id}/run.json", json.dumps(record).encode())


def test_a_slurm_that_does_not_answer_is_reported_in_its_own_words(settings: Settings) -> None:
    with pytest.raises(UserError, match="Slurm does not answer: squeue: command not found"):
        resolve_target("42", settings, FakeIo(), "slurm", "me")


def test_a_run_is_read_whole_with_metrics_logs_and_its_unfinished_last_line(
    settings: Settings, run_dir: Path
) -> None:
    target = resolve(RUN, settings)
    snapshot, history = read_once(target, settings, SystemIo({}), "local", "me", (KILLED,))
    assert snapshot.run is not None
    assert (snapshot.run.run_id, history.num_steps(0)) == (RUN, 3)
    assert [(hit.file, hit.line) for hit in snapshot.log_hits] == [(str(run_dir / "stdout.log"), 2)]


def test_a_run_is_read_although_slurm_does_not_answer(settings: Settings) -> None:
    fake = FakeIo()
    fake.write("/runs/x/run.json", b'{"backend": "slurm", "job_id": "17", "state": "RUNNING"}')
    target = Target("x", TargetKind.RUN, Path("/runs/x"))
    snapshot, _ = read_once(target, settings, fake, "slurm", "me", ())
    assert (snapshot.job, snapshot.state) == (None, "RUNNING")


def test_a_torn_run_json_is_one_clear_line(settings: Settings, run_dir: Path) -> None:
    (run_dir / "run.json").write_text('{"run_id": "2026')
    with pytest.raises(UserError) as caught:
        read_once(resolve(str(run_dir), settings), settings, SystemIo({}), "local", "me", ())
    assert caught.value.message.startswith(f"{run_dir}/run.json: not valid JSON")
    assert "\n" not in caught.value.message


def test_standard_input_is_read_to_its_end(settings: Settings) -> None:
    stdin = standard_io.BytesIO(b"step 1\n" * 100_000 + b"Killed")
    target = Target("-", TargetKind.STDIN)
    snapshot, _ = read_once(target, settings, FakeIo(), "local", "me", (KILLED,), stdin=stdin)
    assert [hit.line for hit in snapshot.log_hits] == [100_001]
    assert snapshot.state is None


def test_the_screens_locate_targets_without_ever_failing(settings: Settings, run_dir: Path) -> None:
    located = {
        text: locate_target(text, settings, SystemIo({}), ())
        for text in (
            RUN,
            "17",
            str(run_dir),
            str(run_dir / "stdout.log"),
            "/no/such",
            "20261121-000000-x-0000",
        )
    }
    assert [target.kind.value for target in located.values()] == ["run", "job", "run", "log", "log", "run"]


@pytest.mark.parametrize("listed", ["17_[0,2,4,6,8]", "17_[0-8:2]", "17_[0-8:2%1]", "17_[4%2]"])
def test_an_array_task_that_waits_in_one_row_with_others_is_found(settings: Settings, listed: str) -> None:
    io = FakeIo()
    io.answer("jobs", own_squeue({"job_id": listed, "state": "PENDING", "user": "me", "nodes": ""}))
    target = resolve_target("17_4", settings, io, "slurm", "me")
    assert target.kind is TargetKind.JOB
    snapshot, _ = read_once(target, settings, io, "slurm", "me", ())
    assert snapshot.job is not None
    assert (snapshot.job.job_id, snapshot.state) == ("17_4", "PENDING")
    with pytest.raises(UserError):
        resolve_target("17_3", settings, io, "slurm", "me")
