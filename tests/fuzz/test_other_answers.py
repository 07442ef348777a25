"""Other damaged input: wandb's and MLflow's files, checkpoints, stored answers, refusals of
sbatch, command lines, programs, and bytes of a terminal."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import struct
import tempfile
import zlib
from functools import cache
from pathlib import Path

from hypothesis import strategies as st

from coach import runs
from coach.config import keys
from coach.launch import long_job
from coach.launch.refusal import (
    explain,
    field_named,
    fields_in_question,
    is_unanswered,
    sentence,
    slurms_words,
)
from coach.launch.trainer_arguments import TrainerArguments, declares_options
from coach.model.errors import UserError
from coach.model.launching.launch import LaunchRequest
from coach.model.toml_schema import WrongValueError
from coach.node import share
from coach.rules.from_logs.quoted_evidence import parse_mib
from coach.sources.io import CommandResult, Query
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.metrics.mlflow_database import MlflowDatabase, read_runs
from coach.sources.metrics.mlflow_folder import scalar_of
from coach.sources.metrics.quantities import Course
from coach.sources.metrics.wandb_file import WandbDecoder
from coach.sources.polite import shared_cache
from coach.sources.runs.checkpoint_files import groups, newest_saved, step_of, why_torn
from coach.sources.slurm.job_summaries import parse_summaries
from coach.sources.slurm.jobstats import packed
from coach.tui.render.plan import edited
from coach.tui.terminal_input import PatientParser, WholeSequences
from coach.workflows.jobs import leftovers
from coach.workflows.launching import proposal
from tests.fuzz.harness import fuzzed
from tests.fuzz.mutation import as_json, damaged_bytes, damaged_text, damaged_value, read, words
from tests.sources.fake_io import FakeIo
from tests.tui.fake_session import make_plan

SEPARATOR, END = "|SEPARATOR", "|RECORDEND"
MANY_DIGITS = "9" * 5000
WANDB = read("foreign_metrics/wandb/run-0a1b2c3d.wandb")
METRIC = b"1800000000000 0.5 1\n1800000001000 nan 2\n1800000002000 0.25\n"


def followed(name: str, files: dict[str, bytes]) -> None:
    """The metrics of a program are read from one of these files, and once more."""
    world = FakeIo()
    for path, data in files.items():
        world.write(path, data)
    source = ForeignMetricsSource(world, "17", lambda: (Path(name),))
    for _ in range(2):
        for reading in source.poll():
            repr(reading)


@fuzzed(damaged_bytes(WANDB, whole=True), st.floats(0, 1))
def test_a_damaged_file_of_wandb_is_read_in_any_pieces(data: bytes, end: float) -> None:
    whole, pieces, at = WandbDecoder(), WandbDecoder(), int(end * len(data))
    told = whole.feed(data)
    assert repr(pieces.feed(data[:at]) + pieces.feed(data[at:])) == repr(told)
    for record in told:
        json.dumps(record)
    followed("/w/run-1.wandb", {"/w/run-1.wandb": data})


@st.composite
def record_of_wandb(draw: st.DrawFn) -> bytes:
    """A record with a right checksum around damaged words."""
    item = b"\x0a\x04loss\x82\x01\x040.25"
    history = bytes((0x0A, len(item))) + item + b"\x12\x02\x08\x03"
    record = draw(damaged_bytes(bytes((0x12, len(history))) + history, whole=True))[:30_000]
    head = struct.pack("<IHB", zlib.crc32(record, zlib.crc32(b"\x01")), len(record), 1)
    return b":W&B\xe1\xbe\0" + head + record


@fuzzed(record_of_wandb())
def test_a_damaged_record_of_wandb_is_read_or_counted(data: bytes) -> None:
    decoder, course = WandbDecoder(), Course()
    for record in decoder.feed(data):
        json.dumps([repr(each) for each in course.take(record)])


@fuzzed(
    damaged_bytes(METRIC, whole=True),
    words("loss", "train/loss", "../x"),
    cases=((f"1 1 {MANY_DIGITS}".encode(), "loss"), (b"9" * 4299 + b" 1 " + b"9" * 4299, "loss")),
)
def test_a_damaged_metric_of_mlflow_is_read(data: bytes, name: str) -> None:
    for line in data.splitlines():
        scalar_of(name, line)
    followed("/m/0/1/meta.yaml", {"/m/0/1/meta.yaml": b"", "/m/0/1/metrics/train/loss": data})


@cache
def database() -> bytes:
    """MLflow's own tables with some rows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "mlflow.db")
        connection = sqlite3.connect(path)
        script = read("foreign_metrics/mlflow/mlflow.sql").decode()
        connection.executescript(f"PRAGMA synchronous = OFF; PRAGMA page_size = 512; BEGIN; {script} COMMIT")
        connection.close()
        return path.read_bytes()


@fuzzed(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 255)), max_size=12),
    st.floats(0, 1, width=32),
)
def test_a_damaged_database_of_mlflow_is_read_or_counted(bytes_: list[tuple[float, int]], end: float) -> None:
    data = bytearray(database())
    for share_, value in bytes_:
        data[16 + int(share_ * (len(data) - 17))] = value
    world = FakeIo()
    world.write("/w/mlflow.db", bytes(data[: len(data) if end < 0.7 else int(end * len(data))]))
    for run in read_runs(world, Path("/w/mlflow.db")):
        repr(run)
    reader = MlflowDatabase(world, Path("/w/mlflow.db"))
    repr((reader.read(), reader.num_bad))


HEADER = {"__metadata__": {"a": "b"}, "w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}


@fuzzed(
    damaged_value(HEADER).map(as_json),
    damaged_bytes(as_json(HEADER), whole=True),
    words(
        "step-12.pt", "checkpoint-30/optimizer.pt", "a/global_step5/mp_rank_00_model_states.pt", "last.ckpt"
    ),
    cases=(
        (f'{{"w": {{"data_offsets": [0, {"9" * 4300}]}}}}'.encode(), b"{}", "epoch=1-step=2.ckpt"),
        (b'{"w": {"data_offsets": [0, Infinity]}}', b"{}", "step" + MANY_DIGITS),
    ),
)
def test_any_checkpoint_is_whole_or_torn(header: bytes, torn: bytes, name: str) -> None:
    world, found = FakeIo(), []
    for number, each in enumerate((header, torn)):
        file = f"checkpoint-{number}/model.safetensors"
        world.write(f"/c/{file}", len(each).to_bytes(8, "little") + each + bytes(8))
        found.append(file)
    for file in (*found, "odd.safetensors", "odd.pt"):
        world.files.setdefault(f"/c/{file}", torn)
        why_torn(world, Path("/c", file))
    repr(newest_saved(world, Path("/c"), [*found, "odd.safetensors", "odd.pt"], 0.0))
    groups([name, *found])
    step_of(name)


REFUSALS = (
    "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    "sbatch: error: your accounts: lab, teaching or other.\nsbatch: error: use --account=NAME, not -A x",
    "sbatch: error: QOSMaxSubmitJobPerUserLimit\nAccountingPolicy: allows lab,b not c --gres=gpu:a100:2",
)
PLAN = make_plan(LaunchRequest("ddp", "slurm"))
FIELDS = ("account", "partition", "qos", "reservation", "gpu_type", "time_limit_s", "mem", "constraint")


@fuzzed(words(*REFUSALS), st.lists(st.text(max_size=8), max_size=4))
def test_any_refusal_is_shown_with_the_choices(stderr: str, known: list[str]) -> None:
    lines = slurms_words(stderr)
    is_unanswered(lines)
    fields_in_question(lines, PLAN)
    for field in FIELDS:
        for names in ({field: known}, {}):
            refused = explain(lines, PLAN, (field,), names)
            assert len(refused.choices) <= 9
            field_named(refused)
    sentence(stderr)


SUMMARY = packed(json.dumps({"nodes": {"n1": {"cpus": 4, "gpu_utilization": {"0": 5}}}, "total_time": 9}))


@fuzzed(damaged_text(f"17{SEPARATOR}{SUMMARY}{SEPARATOR}\n18{SEPARATOR}JS1:None{SEPARATOR}\n"))
def test_summaries_of_several_jobs_are_read(text: str) -> None:
    repr(parse_summaries(text, SEPARATOR))


@fuzzed(
    words("python train.py --lr '0.1'", "--resume {path}", "comment='a b' mail-type=END", "12.5 GiB", "\x1b"),
    cases=("'", "\\", '"a', "\0", MANY_DIGITS, "''", f"{MANY_DIGITS} MiB", "²GiB"),
)
def test_any_words_are_a_size_or_none(text: str) -> None:
    parse_mib(text)
    with contextlib.suppress(WrongValueError):
        keys.COMMAND(text)
    with contextlib.suppress(UserError):
        long_job._checked(text)
    with contextlib.suppress(UserError):
        edited(LaunchRequest("ddp", "slurm"), "sbatch", text)


TRAINERS = tuple(
    (Path(__file__).parents[2] / "trainers" / f"{name}.py").read_bytes() for name in ("baseline", "amp")
)


@fuzzed(
    damaged_text(*TRAINERS, whole=True),
    cases=("def parse_arguments(\0", "def parse_arguments():\n" + "(" * 500),
)
def test_options_of_any_trainer_are_read_or_refused(source: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "own.py")
        path.write_bytes(source.encode("utf-8", "surrogateescape"))
        declares_options(path)
        with contextlib.suppress(UserError):
            repr(TrainerArguments(Path(__file__).parents[2] / "trainers").of(path))
        proposal._is_training(path)
        Path(folder, "job.sh").write_bytes(path.read_bytes() + b"\nCODE='" + path.read_bytes()[:40])
        leftovers._code_of(Path(folder))


QUERY = Query("jobs", ("squeue",), "|S", "|E")
HEAD = shared_cache._head_of(CommandResult(QUERY, 0, b"abc", "", 1.8e9, 0.5), [b"abc"])


@fuzzed(
    damaged_value(json.loads(HEAD)).map(as_json),
    damaged_bytes(HEAD, whole=True),
    cases=((b'{"schema": 1, "argv": [], "returncode": Infinity}', b"[" * 5000),),
)
def test_a_kept_answer_of_any_bytes_is_one_or_none(value: bytes, torn: bytes) -> None:
    for head in (value + b"\n", torn):
        repr(shared_cache._decode_head(head, QUERY))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "a.json").write_bytes(torn)
        runs.read_json_if_any(Path(folder, "a.json"))
        opened = os.open(folder, os.O_RDONLY)
        share._own(opened, "a.json")
        os.close(opened)


KEYS = (
    "\x1b[A",
    "\x1b[<0;12;30M",
    "\x1b[200~text\x1b[201~",
    "\x1bOP",
    "q",
    "\x1b[[A",
    "\x1b[M !!",
    "\x1b[12;5R",
    "\x1b[?2026;2$y",
)


@fuzzed(
    st.lists(words(*KEYS), max_size=4),
    cases=(
        [f"\x1b[{MANY_DIGITS}~"],
        [f"\x1b[<{MANY_DIGITS};1;1M"],
        [f"\x1b[{MANY_DIGITS};{MANY_DIGITS}R"],
        ["\x1b[27;²;13~"],
    ),
)
def test_any_bytes_of_a_terminal_become_keys_or_are_dropped(sent: list[str]) -> None:
    sequences, parser = WholeSequences(), PatientParser()
    taken = "".join(part for text in sent for part in sequences.add(text, 0.0))
    assert len(taken) <= sum(map(len, sent))
    for text in sent:
        for message in parser.feed(text):
            repr(message)
    list(parser.tick())
