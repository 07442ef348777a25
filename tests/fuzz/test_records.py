"""JSON from any author: run directories, coach's own memory, a cohort's files, metrics of other programs.
Each file is read, counted as bad, or refused in words; every value read can be shown."""

from __future__ import annotations

import contextlib
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from coach import runs
from coach.lookback.history import History
from coach.model.errors import UserError
from coach.node.rank_ends import parse_failures
from coach.node.stacks import parse_faulthandler, parse_flight, parse_py_spy
from coach.sources.metrics import run_metrics, telemetry_files
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource, parse_rows, parse_trainer_state
from coach.sources.metrics.stack_dumps import parse_stacks
from coach.sources.metrics.stack_samples import parse_burst
from coach.sources.runs.cohort_directory import parse_summary, read_roster
from coach.sources.runs.run_files import (
    parse_answer,
    parse_checkpoint_names,
    parse_exit,
    parse_json,
    parse_run,
)
from coach.sources.runs.run_index import RunIndex
from coach.sources.runs.seen_jobs import SeenJobs
from coach.sources.runs.verdict_files import read_verdict
from coach.sources.runs.verdicts import Verdicts
from coach.workflows.judging.pasted import recognise
from coach.workflows.watching.table_views import ViewStore
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import (
    RECORDINGS,
    all_of,
    as_json,
    damaged_bytes,
    damaged_text,
    damaged_value,
    read,
)
from tests.sources.fake_io import FakeIo
from tests.workflows.judging import test_pasted as pasted

HUGE = 10**400


def lines_of(pattern: str, most: int = 40) -> list[Any]:
    return [json.loads(line) for data in all_of(pattern, RECORDINGS) for line in data.splitlines()[:most]]


METRICS = all_of("ranks/*/metrics/rank-0.jsonl", RECORDINGS)
TELEMETRY = all_of("*/telemetry/*.jsonl", RECORDINGS)
RUNS = [json.loads(data) for data in all_of("*/run.json", RECORDINGS)]
EXITS = [json.loads(data) for data in all_of("*/exit.json", RECORDINGS)]
STEPS = lines_of("healthy/metrics/rank-0.jsonl", 5)
SAMPLES = lines_of("gpu-*/telemetry/*.jsonl", 10) + lines_of("host-oom/telemetry/*.jsonl", 5)
EVENT = {"event": "epoch_end", "time_s": 1.8e9, "step": 3, "epoch": 1}


@fuzzed(damaged_bytes(*METRICS), damaged_bytes(*TELEMETRY))
def test_damaged_lines_of_metrics_and_telemetry_are_counted(metrics: bytes, telemetry: bytes) -> None:
    for data in (metrics, telemetry):
        records, num_bad, used = runs.decode_records(data)
        assert 0 <= used <= len(data)
        assert num_bad >= 0
        run_metrics.parse_records(records, 0)
        telemetry_files.parse_records(records)


@fuzzed(
    damaged_value([*STEPS, EVENT]),
    damaged_value(SAMPLES),
    cases=(([{"step": 1, "loss": HUGE, "time_s": HUGE}], [{"kind": "host", "time_s": HUGE}]),),
)
def test_records_with_values_of_other_types_are_kept_or_counted(steps: Any, samples: Any) -> None:
    said = [each for each in steps if isinstance(each, dict)] if isinstance(steps, list) else []
    taken, events, _ = run_metrics.parse_records(said, 0)
    json.dumps([repr(event) for event in events])
    history = History()
    history.add_steps(taken)
    told = [each for each in samples if isinstance(each, dict)] if isinstance(samples, list) else []
    history.add_samples(telemetry_files.parse_records(told)[0])
    for each in taken:
        json.dumps(asdict(each))


@fuzzed(damaged_value(*RUNS), damaged_value(*EXITS), cases=(({"job_id": HUGE}, {}),))
def test_a_damaged_run_is_read(run: Any, ended: Any) -> None:
    if isinstance(run, dict):
        repr(parse_run(run, "/r/20261121-142233-ddp-4f2a"))
        parse_answer(run)
    if isinstance(ended, dict):
        repr(parse_exit(ended))


@fuzzed(damaged_bytes(*map(as_json, RUNS)), st.lists(st.text(max_size=20), max_size=5))
def test_a_torn_file_of_a_run_is_refused_in_one_line(data: bytes, names: list[str]) -> None:
    with contextlib.suppress(UserError):
        parse_json(data, Path("run.json"))
    parse_checkpoint_names([*names, "step-000000012.pt", f"step-{'9' * 5000}.pt"])


STACKS = {
    "node": "n1",
    "ranks": [
        {
            "pid": 12,
            "rank": 0,
            "world_size": 2,
            "rung": "py-spy",
            "missed": [{"rung": "flight", "because": "none"}],
            "threads": [{"is_main": True, "frames": [{"function": "f", "file": "a.py", "line": 3}]}],
            "flight": {"operation": "all_reduce", "number": 4, "is_done": False},
            "state": "S",
            "wait_channel": "futex",
            "cpu_pct": 1.5,
            "num_sockets": 2,
        }
    ],
}
BURST = {
    "node": "n1",
    "pid": 12,
    "rank": 0,
    "time_s": 1.8e9,
    "why": "stalled",
    "has_steps": True,
    "silent_s": 3.0,
    "num_samples": 20,
    "categories": {"data": 20},
    "places": [["a.py:3", 20]],
    "cpu_pct": 2,
}


@fuzzed(
    damaged_value(STACKS),
    damaged_value(BURST),
    cases=(({"node": "n1", "ranks": [{"pid": 1, "cpu_pct": HUGE}]}, {"cpu_pct": HUGE}),),
)
def test_damaged_stacks_are_read(stacks: Any, burst: Any) -> None:
    if isinstance(stacks, dict):
        for rank in parse_stacks(stacks):
            json.dumps(asdict(rank))
    if isinstance(burst, dict) and (parsed := parse_burst(burst)) is not None:
        json.dumps(asdict(parsed))


@fuzzed(
    damaged_bytes(read("stacks/py-spy.json")),
    damaged_value(json.loads(read("stacks/flight-recorder.json"))),
    damaged_text(read("stacks/faulthandler.txt")),
    cases=(
        (b"[" * 5000, {"entries": [{"process_group": [""]}]}, 'File "a", line ² in f'),
        (b"[]", {"entries": [{"process_group": ["", ""], "record_id": float("inf")}]}, "Thread 0x1:\n"),
    ),
)
def test_any_stack_or_flight_dump_of_a_rank_is_read_or_refused(spy: bytes, flight: Any, dump: str) -> None:
    with contextlib.suppress(ValueError):
        parse_py_spy(spy)
    with contextlib.suppress(ValueError):
        parse_flight(flight)
    parse_faulthandler(dump)
    parse_failures(dump)


SUMMARY = {
    "schema": 1,
    "run_id": "r1",
    "recipe": "ddp",
    "state": "RUNNING",
    "samples_per_s": 12.0,
    "is_judged": True,
    "is_solved": None,
    "finding": {"code": "MEM001", "severity": "critical"},
    "created_time_s": 1.8e9,
    "started_time_s": 1.8e9,
    "ended_time_s": None,
    "updated_time_s": 1.8e9,
}


@fuzzed(damaged_value(SUMMARY), damaged_bytes(as_json(SUMMARY)), st.binary(max_size=40))
def test_a_hostile_file_of_a_cohort_is_read_or_named(value: Any, data: bytes, roster: bytes) -> None:
    for each in (as_json(value), data):
        with contextlib.suppress(ValueError, RecursionError):
            json.dumps(asdict(parse_summary(each, "1000-r1.json", 1000)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "roster")
        path.write_bytes(roster)
        with contextlib.suppress(UserError):
            read_roster(path)


JOB = {
    "job_id": "17",
    "state": "COMPLETED",
    "name": "a",
    "user": "root",
    "partition": "gpu",
    "nodes": "n1",
    "num_nodes": 1,
    "submit_time_s": 1.8e9,
    "start_time_s": 1.8e9,
    "end_time_s": 1.8e9,
    "seen_s": 1.8e9,
}
PAST = {
    "target": "17",
    "work": "a",
    "state": "FAILED",
    "rule": "MEM001",
    "cause": "cuda_oom",
    "summary": "x",
    "submitted_s": 1.8e9,
    "parameters": {"lr": 0.1},
    "is_judged": True,
    "nodes": ["n1"],
}
VERDICT = {"schema": 1, "target": "17", "state": "FAILED", "findings": [], "not_measured": []}
VIEWS = {"schema": 1, "tables": {"jobs": {"filter": "gpu:>0", "sort": "-gpu", "columns": "id,gpu"}}}
INDEX = [{"schema": 1, "root": "/r"}, {"name": "a", "modified_s": 1.8e9, "run": RUNS[0]}]


@fuzzed(
    damaged_value([JOB, JOB]),
    damaged_value([PAST, PAST]),
    damaged_value(VERDICT),
    damaged_value(VIEWS),
    damaged_value(INDEX),
    cases=(([{**JOB, "start_time_s": -1e308, "end_time_s": 1e308}], [PAST], VERDICT, VIEWS, INDEX),),
)
def test_any_damaged_memory_of_coach_is_read_without_an_error(
    jobs: Any, past: Any, verdict: Any, views: Any, index: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, value in (("seen-jobs.jsonl", jobs), ("verdicts.jsonl", past)):
            lines = value if isinstance(value, list) else [value]
            folder.joinpath(file).write_bytes(b"".join(as_json(each) + b"\n" for each in lines))
        for job in SeenJobs(folder).read()[0]:
            json.dumps(asdict(job))
        Verdicts(folder).read()
        path = folder / "verdict.json"
        path.write_bytes(as_json(verdict))
        read_verdict(path)
        folder.joinpath("views.json").write_bytes(as_json(views))
        ViewStore(folder).read()
        kept = RunIndex(folder, Path("/r"))
        lines = index if isinstance(index, list) else [index]
        kept._file.write_bytes(b"".join(as_json(each) + b"\n" for each in lines))
        kept.load()


FOREIGN = {
    "/w/events.out.tfevents.1.n.1": all_of("foreign_metrics/*/events.out.tfevents.*"),
    "/w/metrics.csv": all_of("foreign_metrics/lightning/metrics.csv"),
    "/w/scalars.json": (b'{"step": 1, "loss": 0.5, "time": 1800000000}\n' * 4,),
    "/w/trainer_state.json": all_of("foreign_metrics/transformers/*/trainer_state.json"),
}


@fuzzed(
    st.sampled_from(sorted(FOREIGN)).flatmap(
        lambda name: st.tuples(st.just(name), damaged_bytes(*FOREIGN[name], whole=True))
    ),
    cases=(
        ("/w/scalars.json", b'{"step": 1, "loss": 1, "samples_per_s": 1e308, "step_time_s": 1e308}\n'),
        ("/w/scalars.json", b'{"step": 1, "loss": 1, "epoch": 1e308}\n'),
    ),
)
def test_metrics_of_another_program_are_followed_however_damaged(found: tuple[str, bytes]) -> None:
    name, data = found
    world = FakeIo()
    world.write(name, data)
    source = ForeignMetricsSource(world, "17", lambda: (Path(name),))
    for _ in range(2):
        for reading in source.poll():
            repr(reading)


@fuzzed(
    damaged_bytes(
        *(pasted.SMI.encode(), pasted.OLD_SMI.encode(), pasted.PY_SPY.encode(), pasted.JOB.encode()),
        *all_of("slurm/allocations-*.txt"),
    )
)
def test_any_damaged_paste_is_recognised_or_is_a_log(data: bytes) -> None:
    found = recognise(data, "-", 5.0)
    assert found is None or found.words.startswith("taken for ")
    if found is not None and found.payload is not None:
        json.dumps(asdict(found.payload))


@fuzzed(damaged_text(*FOREIGN["/w/metrics.csv"]), damaged_bytes(*FOREIGN["/w/trainer_state.json"]))
def test_rows_and_states_are_read(text: str, state: bytes) -> None:
    parse_rows(text)
    parse_trainer_state(state)
