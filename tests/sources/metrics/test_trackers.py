"""Local files of wandb and MLflow give curves, in every state of the files."""

from __future__ import annotations

import math
import random
import shutil
import sqlite3
import struct
import zlib
from pathlib import Path

import pytest

from coach.model.reading import MetricsChunk, Reading
from coach.model.training.metrics import MetricEvent, Step
from coach.sources.io import SystemIo
from coach.sources.metrics import mlflow_database
from coach.sources.metrics.foreign_metrics import ForeignMetricsSource
from coach.sources.metrics.mlflow_database import MlflowDatabase, read_runs
from coach.sources.metrics.quantities import bare_name
from coach.sources.metrics.wandb_file import MAX_RECORD_BYTES, WandbDecoder
from tests.sources.fake_io import FakeIo

FIXTURES = Path(__file__).parents[2] / "fixtures" / "foreign_metrics"
WANDB = FIXTURES / "wandb" / "run-0a1b2c3d.wandb"
FOLDER = FIXTURES / "mlflow" / ("0123456789abcdef" * 2)
BLOCK = 32 << 10


def read(*paths: Path) -> tuple[list[Step], list[MetricEvent]]:
    reading = look(ForeignMetricsSource(SystemIo({}), "17", lambda: paths))
    assert isinstance(reading.payload, MetricsChunk)
    return list(reading.payload.steps), list(reading.payload.events)


def look(source: ForeignMetricsSource) -> Reading:
    (reading,) = source.poll()
    return reading


def evaluations(events: list[MetricEvent]) -> list[tuple[int | None, object]]:
    return [(event.step, event.fields.get("loss")) for event in events if event.event == "eval"]


def database(path: Path, *statements: str) -> Path:
    """MLflow's own tables and rows, as version 3.17 wrote them."""
    with sqlite3.connect(path) as connection:
        script = (FIXTURES / "mlflow" / "mlflow.sql").read_text()
        connection.executescript(f"PRAGMA synchronous = OFF; BEGIN; {script} COMMIT")
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


def framed(records: list[bytes]) -> bytes:
    """A file in wandb's format: a record that does not fit into a block continues in the next one."""
    out = bytearray(b":W&B\xe1\xbe\0")
    for record in records:
        is_first = True
        while is_first or record:
            left = BLOCK - len(out) % BLOCK
            if left < 7:
                out += bytes(left)
                continue
            part, record = record[: left - 7], record[left - 7 :]
            kind = (1 if not record else 2) if is_first else (3 if record else 4)
            out += struct.pack("<IHB", zlib.crc32(bytes((kind,)) + part), len(part), kind) + part
            is_first = False
    return bytes(out)


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def history(**values: str) -> bytes:
    items = (field(1, field(1, name.encode()) + field(16, value.encode())) for name, value in values.items())
    return field(2, b"".join(items))


def test_an_offline_run_of_wandb_is_read_past_its_histograms() -> None:
    steps, events = read(WANDB)
    assert [step.step for step in steps] == list(range(40))
    assert steps[0].loss == 2.0
    assert math.isnan(steps[39].loss or 0.0)
    assert {step.lr for step in steps} == {0.1}
    assert {step.grad_norm for step in steps} == {0.5}
    assert (steps[0].time_s or 0) > 1.7e9
    assert evaluations(events) == [(9, 0.25), (19, 0.125), (29, 2.5 / 30), (39, 2.5 / 40)]


@pytest.mark.parametrize("size", [1, 7, 1000, BLOCK - 1])
def test_the_history_is_the_same_in_whatever_pieces_it_is_read(size: int) -> None:
    data = WANDB.read_bytes()
    whole, pieces = WandbDecoder(), WandbDecoder()
    # As text: NaN does not equal itself.
    one = str(whole.feed(data))
    many = str([each for at in range(0, len(data), size) for each in pieces.feed(data[at : at + size])])
    assert one == many
    assert (whole.num_bad, pieces.num_bad) == (0, 0)


def test_records_go_on_over_the_ends_of_blocks() -> None:
    records = [history(loss=str(n), note=f'"{"x" * (n * 97 % 9000)}"') for n in range(60)]
    decoder = WandbDecoder()
    assert [each["loss"] for each in decoder.feed(framed(records))] == list(range(60))
    assert decoder.num_bad == 0


def test_a_broken_block_costs_its_own_records_and_no_others() -> None:
    records = [history(loss=str(n), note=f'"{"x" * 3000}"') for n in range(60)]
    data = bytearray(framed(records))
    data[BLOCK + 5000] ^= 0xFF
    decoder = WandbDecoder()
    told = [each["loss"] for each in decoder.feed(bytes(data))]
    assert decoder.num_bad == 1
    assert told[:5] == [0, 1, 2, 3, 4]
    assert told[-20:] == list(range(40, 60))


def test_a_broken_block_is_counted_once_in_many_looks_at_the_file(tmp_path: Path) -> None:
    records = [history(loss=str(n), note=f'"{"x" * 3000}"') for n in range(60)]
    data, path = bytearray(framed(records)), tmp_path / "run-1.wandb"
    data[BLOCK + 5000] ^= 0xFF
    path.write_bytes(bytes(data[:-20]))
    source = ForeignMetricsSource(SystemIo({}), "17", lambda: [path])
    first = look(source)
    path.write_bytes(bytes(data))
    assert (first.num_bad_rows, look(source).num_bad_rows) == (1, 0)


def test_a_torn_end_waits_and_is_read_when_it_is_there(tmp_path: Path) -> None:
    data, path = WANDB.read_bytes(), tmp_path / "run-1.wandb"
    path.write_bytes(data[: len(data) // 2])
    source = ForeignMetricsSource(SystemIo({}), "17", lambda: [path])
    first = look(source)
    path.write_bytes(data)
    second = look(source)
    assert (first.num_bad_rows, second.num_bad_rows) == (0, 0)
    assert isinstance(first.payload, MetricsChunk)
    assert isinstance(second.payload, MetricsChunk)
    steps = [step.step for step in (*first.payload.steps, *second.payload.steps)]
    assert steps == list(range(40))
    assert first.payload.steps


def test_a_record_that_is_huge_is_passed_over() -> None:
    huge = history(loss="1", table=f'"{"x" * (MAX_RECORD_BYTES + 1)}"')
    decoder = WandbDecoder()
    assert [each["loss"] for each in decoder.feed(framed([huge, history(loss="2")]))] == [2]


@pytest.mark.parametrize("data", [b":W&B\xe1\xbe\x01rest", b"#!/bin/sh\nls\n", b"\0" * 100])
def test_another_version_and_another_file_are_counted_as_bad(data: bytes) -> None:
    decoder = WandbDecoder()
    assert decoder.feed(data) == []
    assert decoder.feed(b"more") == []
    assert decoder.num_bad == 1


def test_no_damage_breaks_the_reader() -> None:
    chance, data = random.Random(1), WANDB.read_bytes()
    for _ in range(100):
        damaged = bytearray(data[: chance.randrange(8, len(data))])
        for _ in range(3):
            damaged[chance.randrange(7, len(damaged))] = chance.randrange(256)
        WandbDecoder().feed(bytes(damaged))


@pytest.mark.parametrize("record", [b"\x12\xff\xff\xff\xff\xff", b"\xff" * 20, history(loss="[" * 60)])
def test_a_malformed_message_gives_no_loss(record: bytes) -> None:
    told = WandbDecoder().feed(framed([record]))
    assert [each for each in told if each.get("loss") is not None] == []


def test_a_run_of_mlflows_file_store_is_read(tmp_path: Path) -> None:
    steps, events = read(FOLDER / "meta.yaml")
    assert [step.step for step in steps] == list(range(20))
    assert (steps[0].loss, steps[19].loss) == (2.0, math.inf)
    assert {(step.lr, step.samples_per_s) for step in steps} == {(0.1, 320.0)}
    assert (steps[0].time_s or 0) > 1.7e9
    assert evaluations(events) == [(9, 0.25), (19, 0.125)]


def test_a_metric_of_the_file_store_that_comes_later_is_followed_too(tmp_path: Path) -> None:
    folder = tmp_path / FOLDER.name
    shutil.copytree(FOLDER, folder)
    (folder / "metrics" / "train" / "loss").write_text("1700000000000 3.0 1\n1700000001000 2.")
    shutil.rmtree(folder / "metrics" / "val")
    source = ForeignMetricsSource(SystemIo({}), "17", lambda: [folder / "meta.yaml"])
    look(source)
    with (folder / "metrics" / "train" / "loss").open("a") as file:
        file.write("5 2\nno line\n")
    (folder / "metrics" / "eval_loss").write_text("1700000001000 2.7 2\n")
    reading = look(source)
    assert isinstance(reading.payload, MetricsChunk)
    assert [(step.step, step.loss) for step in reading.payload.steps] == [(2, 2.5)]
    assert evaluations(list(reading.payload.events)) == [(2, 2.7)]
    assert reading.num_bad_rows == 1


def test_mlflows_database_is_read_and_neither_locked_nor_written(tmp_path: Path) -> None:
    path = database(tmp_path / "mlflow.db")
    before = path.read_bytes()
    with sqlite3.connect(path) as training:
        training.execute("PRAGMA locking_mode = EXCLUSIVE")
        training.execute("BEGIN EXCLUSIVE")
        steps, events = read(path)
    training.close()
    assert [step.step for step in steps] == list(range(20))
    assert (steps[0].loss, steps[19].loss) == (2.0, math.inf)
    assert {(step.lr, step.samples_per_s) for step in steps} == {(0.1, 320.0)}
    assert evaluations(events) == [(9, 0.25), (19, 0.125)]
    assert [each.name for each in tmp_path.iterdir()] == ["mlflow.db"]
    assert path.read_bytes() == before


def test_of_a_database_the_named_run_is_read_and_a_later_attempt_of_the_training_is_followed(
    tmp_path: Path,
) -> None:
    path = database(
        tmp_path / "mlflow.db",
        "INSERT INTO runs (run_uuid, start_time) VALUES ('later', 1999999999000)",
        "INSERT INTO latest_metrics VALUES ('loss', 7.0, 1999999999500, 3, 0, 'later')",
        "INSERT INTO metrics VALUES ('train/loss', 7.0, 1999999999500, 'later', 3, 0)",
    )
    first, later = (mlflow_database.path_of(path, run.run_id) for run in read_runs(SystemIo({}), path))
    paths = [first]
    source = ForeignMetricsSource(SystemIo({}), "17", lambda: paths)
    reading = look(source)
    assert isinstance(reading.payload, MetricsChunk)
    assert len(reading.payload.steps) == 20
    paths[:] = [later]
    reading = look(source)
    assert isinstance(reading.payload, MetricsChunk)
    assert [(step.step, step.loss) for step in reading.payload.steps] == [(3, 7.0)]
    assert reading.payload.is_restart


def test_only_new_rows_are_returned_and_a_large_file_is_read_rarely(tmp_path: Path) -> None:
    io, path = FakeIo(), Path("/w/mlflow.db")
    new = "INSERT INTO metrics SELECT key, 9.0, timestamp + 1, run_uuid, 20, 0 FROM latest_metrics"
    io.files[str(path)] = database(tmp_path / "one.db").read_bytes()
    after = database(tmp_path / "two.db", new).read_bytes()
    io.modified[str(path)] = 1.0
    reader = MlflowDatabase(io, path)
    assert len(reader.read()) == 20 * 3 + 4
    assert reader.read() == []
    io.files[str(path)], io.modified[str(path)] = after, 2.0
    assert reader.read() == []  # it was read a moment ago
    io.now_s += len(after) / mlflow_database._BYTES_PER_S + 1
    assert {scalar.step for scalar in reader.read()} == {20}


@pytest.mark.parametrize("cut", [3, 200, 5000])
def test_a_torn_copy_of_a_database_gives_nothing_and_is_counted(tmp_path: Path, cut: int) -> None:
    path = database(tmp_path / "mlflow.db")
    path.write_bytes(path.read_bytes()[:cut])
    reading = look(ForeignMetricsSource(SystemIo({}), "17", lambda: [path]))
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.payload.steps == ()


def test_a_hostile_database_ends_within_its_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_database, "_NUM_STEPS", 200_000)
    endless = (
        "CREATE VIEW runs AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT 'x' AS run_uuid, i AS start_time, i AS end_time FROM n"
    )
    path = database(tmp_path / "mlflow.db", "DROP TABLE runs", endless)
    assert read_runs(SystemIo({}), path) == []


def test_a_database_that_is_too_large_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_database, "MAX_BYTES", 1 << 12)
    reading = look(ForeignMetricsSource(SystemIo({}), "17", lambda: [database(tmp_path / "mlflow.db")]))
    assert reading.error is not None
    assert "larger than" in reading.error


def test_a_rate_is_known_in_the_group_that_a_program_gives_it() -> None:
    assert bare_name("train/samples_per_s") == bare_name("perf.samples_per_s") == "samples_per_s"
    assert bare_name("eval/samples_per_s") == "eval/samples_per_s"
