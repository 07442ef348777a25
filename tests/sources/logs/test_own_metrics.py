"""The source of a run's numbers: coach's trainers, `coach_report`, printed lines, or a framework's files;
exactly one of them, and never another run's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from coach.model.reading import MetricsChunk
from coach.model.training.run import Run
from coach.sources.logs.job_outputs import OutputPaths
from coach.sources.logs.own_metrics import RunMetricsSource
from coach.sources.logs.run_outputs import RunLogs
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.runs.run_files import parse_run
from coach.workflows.judging.directory_files import Kind
from coach.workflows.judging.program_files import run_dumps, run_metrics
from tests.sources.fake_io import FakeIo

START_S = 1_800_000_000.0
CSV = b"step,loss\n1,2.0\n2,1.0\n"


def own_run(name: str = "x", words: Sequence[str] = ("train.py",), **more: object) -> dict[str, object]:
    own = {"kind": "script", "words": list(words), "directory": "/srv/code"}
    return {"run_id": name, "launch": {"own": own}, "started_time_s": START_S, "state": "RUNNING", **more}


def source_of(
    io: FakeIo, run_json: dict[str, object], *others: dict[str, object]
) -> RunMetricsSource | ForeignMetricsSource:
    run_dir = Path("/runs/x")
    io.write(str(run_dir / "run.json"), json.dumps(run_json).encode())
    logs = RunLogs(io, run_dir)

    def runs() -> list[Run]:
        return [parse_run(each, f"/runs/{each['run_id']}") for each in (run_json, *others)]

    return run_metrics(io, "x", run_dir, logs, runs)


def losses(source: RunMetricsSource | ForeignMetricsSource) -> list[tuple[int, float | None]]:
    """All readings of one look, joined."""
    found: list[tuple[int, float | None]] = []
    for reading in source.poll():
        assert isinstance(reading.payload, MetricsChunk), reading.error
        found += [(step.step, step.loss) for step in reading.payload.steps]
    return found


def io_at(now_s: float = START_S + 60) -> FakeIo:
    return FakeIo(now_s)


def test_of_two_streams_with_a_loss_the_first_is_followed_as_it_grows() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"step 1 loss 1.0\nstep 2 lo")
    io.write("/runs/x/stderr.log", b"\r 1/9 loss=1.0\r 2/9 loss=0.9\r")
    first = losses(source)
    io.append("/runs/x/stdout.log", b"ss 0.5\n")
    io.append("/runs/x/stderr.log", b" 3/9 loss=0.8\r")
    assert (first, losses(source)) == ([(1, 1.0)], [(2, 0.5)])


def test_lines_that_name_their_rank_make_one_curve_for_each_rank() -> None:
    io = io_at()
    source = source_of(io, own_run())

    def read() -> list[tuple[int, int, float | None, float | None]]:
        (reading,) = source.poll()
        assert isinstance(reading.payload, MetricsChunk)
        return [(step.rank, step.step, step.loss, step.data_time_s) for step in reading.payload.steps]

    io.write(
        "/runs/x/stdout.log",
        b"[rank2] step 10 loss 0.3 data_time 0.500 step_time 0.506\n"
        b"step 10 loss 0.1 data_time 0.030 step_time 0.506\n"
        b"2026-11-26 10:00:00,123 INFO (Rank 1/3) step 10 loss 0.2 data_time 0.031 step_time 0.506\n"
        b"Rank 1, step: 20, loss: 0.1\n",
    )
    assert read() == [(0, 10, 0.1, 0.03), (1, 10, 0.2, 0.031), (1, 20, 0.1, None), (2, 10, 0.3, 0.5)]
    io.append("/runs/x/stdout.log", b"[rank2] step 20 loss 0.2\nLoRA rank 8, step 30, loss 0.05\n")
    assert read() == [(0, 30, 0.05, None), (2, 20, 0.2, None)]


def test_the_evaluation_that_each_rank_prints_counts_once() -> None:
    io = io_at()
    source = source_of(io, own_run())
    lines = (f"[rank{rank}] epoch 1 train loss 0.5 val loss 0.7\n".encode() for rank in (1, 0))
    io.write("/runs/x/stdout.log", b"".join(lines))
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    evaluated = [event for event in reading.payload.events if event.event == "eval"]
    assert [(event.rank, dict(event.fields)) for event in evaluated] == [(0, {"loss": 0.7})]


def test_a_part_of_the_loss_is_forgotten_once_the_whole_loss_is_printed() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"step 1 kl loss 7\n")
    assert losses(source) == [(1, 7.0)]
    io.append("/runs/x/stdout.log", b"step 2 kl loss 6\nstep 2 total loss 3\n")
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.payload.is_restart
    assert [(step.step, step.loss) for step in reading.payload.steps] == [(2, 3.0)]


def test_a_log_that_slurm_emptied_for_a_requeued_job_begins_another_curve() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"step 1 loss 3.0\nstep 2 loss nan\n")
    assert len(losses(source)) == 2
    io.write("/runs/x/stdout.log", b"on node2 now\nstep 1 loss 2.9\nstep 2 loss 2.8\n")
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.payload.is_restart
    assert [(step.step, step.loss) for step in reading.payload.steps] == [(1, 2.9), (2, 2.8)]


def test_the_output_of_coachs_trainers_is_not_read_in_addition_to_their_metrics() -> None:
    io = io_at()
    source = source_of(io, {"run_id": "x", "launch": {"recipe": "ddp"}})
    io.write("/runs/x/stdout.log", b"step 1 loss 1.0\n")
    io.write("/runs/x/metrics/rank-0.jsonl", b'{"step": 7, "loss": 0.5, "time_s": 1.0}\n')
    assert losses(source) == [(7, 0.5)]


def test_reported_metrics_of_an_own_program_are_preferred_to_its_output() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"step 1 loss 1.0\n")
    io.write("/runs/x/metrics/rank-0.jsonl", b'{"step": 7, "loss": 0.5, "time_s": 1.0}\n')
    assert losses(source) == [(7, 0.5)]


def test_a_program_that_prints_no_loss_is_measured_by_the_file_of_its_framework() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"training\n")
    io.write("/srv/code/lightning_logs/version_0/metrics.csv", CSV)
    first = losses(source)
    io.now_s += 11
    io.append("/srv/code/lightning_logs/version_0/metrics.csv", b"3,0.5\n")
    io.append("/runs/x/stdout.log", b"test loss 9.0, loss 8.0\n")
    assert (first, losses(source)) == ([(1, 2.0), (2, 1.0)], [(3, 0.5)])


def test_the_file_of_a_framework_is_asked_less_often_than_a_log() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/srv/code/metrics.csv", CSV)
    losses(source)
    num_reads = len(io.reads)
    io.now_s += 2
    assert losses(source) == []
    assert len(io.reads) == num_reads


def test_a_printed_loss_is_followed_without_walking_the_directory() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"".join(b"step %d loss 1.5\n" % step for step in range(1, 6)))
    io.write("/srv/code/metrics.csv", CSV)
    assert losses(source) == [(step, 1.5) for step in range(1, 6)]
    assert not [path for path, _, _ in io.reads if path.startswith("/srv/code")]


def test_the_remains_of_a_progress_bar_are_replaced_by_the_frameworks_file() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/runs/x/stdout.log", b"Epoch 9/9 16/16 train_loss: 0.900\n")
    assert losses(source) == [(9, 0.9)]
    io.write("/srv/code/lightning_logs/version_0/metrics.csv", CSV)
    io.now_s += 121
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.payload.is_restart
    assert [step.loss for step in reading.payload.steps] == [2.0, 1.0]


def test_a_file_from_before_the_run_is_an_earlier_training_s() -> None:
    io = io_at()
    source = source_of(io, own_run())
    io.write("/srv/code/metrics.csv", CSV)
    io.modified["/srv/code/metrics.csv"] = START_S - 3600
    assert losses(source) == []


def test_beside_another_run_of_the_same_directory_no_file_is_taken() -> None:
    io = io_at()
    source = source_of(io, own_run(), own_run("y"))
    io.write("/srv/code/metrics.csv", CSV)
    (reading,) = source.poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.payload.steps == ()
    assert reading.payload.left_aside == (
        "metrics.csv in /srv/code may be of run y, which wrote there at the same time: not read"
    )


def test_two_runs_with_their_own_directories_get_their_own_metrics() -> None:
    io = io_at()
    mine, other = (("train.py", "--output_dir", f"out/{name}") for name in "xy")
    source = source_of(io, own_run(words=mine), own_run("y", other))
    io.write("/srv/code/out/x/metrics.csv", CSV)
    io.write("/srv/code/out/y/metrics.csv", b"step,loss\n5,9.0\n")
    assert losses(source) == [(1, 2.0), (2, 1.0)]


def test_a_run_that_ended_before_is_no_rival_but_its_files_are_its_own() -> None:
    io = io_at()
    before = own_run("y", started_time_s=START_S - 500, ended_time_s=START_S - 100, state="COMPLETED")
    source = source_of(io, own_run(), before)
    io.write("/srv/code/old/metrics.csv", b"step,loss\n5,9.0\n")
    io.modified["/srv/code/old/metrics.csv"] = START_S - 110
    io.write("/srv/code/metrics.csv", CSV)
    assert losses(source) == [(1, 2.0), (2, 1.0)]


def test_files_in_the_run_directory_belong_to_the_run_despite_others_beside_it() -> None:
    io = io_at()
    source = source_of(io, own_run(), own_run("y"))
    io.write("/runs/x/out/trainer_state.json", b'{"log_history": [{"step": 4, "loss": 3.0}]}')
    assert losses(source) == [(4, 3.0)]


def test_the_dumps_of_a_run_lie_in_its_directory_or_in_the_cache_if_no_other_run_was_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    io = io_at()
    cached, inside = "/cache/torch/comm_lib_trace_rank_0", "/runs/x/comm_traces/rank_1"
    for path in ("/runs/x/metrics/rank-0.jsonl", cached, inside):
        io.write(path, b"x")

    def dumps(run: dict[str, object], *others: dict[str, object]) -> list[str]:
        io.write("/runs/x/run.json", json.dumps(run).encode())
        known = [parse_run(each, f"/runs/{each['run_id']}") for each in (run, *others)]
        found = run_dumps(io, Path("/runs/x"), OutputPaths(io), lambda: known)
        return [str(path) for path in found.of(Kind.DUMP)]

    elsewhere = {"started_time_s": START_S - 500, "launch": {}}
    before = own_run("y", ended_time_s=START_S - 100, state="FAILED", **elsewhere)
    assert dumps(own_run(), before) == [inside, cached]
    assert dumps(own_run(), own_run("y", **elsewhere)) == [inside]
    # Slurm does not tell which other jobs ran, so the dump may be another job's.
    assert dumps(own_run(backend="slurm", job_id="17")) == [inside]
