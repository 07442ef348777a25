"""Records are thinned as a whole or not at all; logs, checkpoints, and runs that are alive or somebody else's
stay."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from coach import runs
from coach.config import Settings
from coach.model.errors import UserError
from coach.model.reading import MetricsChunk, TelemetryChunk
from coach.model.training.metrics import THINNED_EVENT, Step
from coach.model.training.records import Part, RunRecords, Volume
from coach.model.training.telemetry import GpuSample, SensorGap
from coach.sources.metrics.run_metrics import MetricsSource
from coach.sources.metrics.telemetry_files import TelemetrySource
from coach.sources.runs.record_sizes import RecordSizes
from coach.workflows.jobs.thin_records import RecordsPlan, perform, plan_records, recover, thin_part
from tests.workflows.known import DAY_S, NOW_S, World

OLD, NEW = "20261101-142230-ddp-0001", "20261121-142230-ddp-0002"
LATER = "2026-11-30T12:00:00"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def samples(node: str, start: int, count: int) -> bytes:
    return b"".join(
        runs.encode_record(
            {"kind": "gpu", "time_s": NOW_S - 10**6 + number, "node": node, "gpu": 0, "utilization_pct": 50.0}
            | {"name": "x" * 300}
        )
        for number in range(start, start + count)
    )


def with_telemetry(run_dir: Path, nodes: int = 2, num_samples: int = 3000) -> None:
    old = run_dir / "telemetry" / "old"
    old.mkdir(parents=True)
    for index in range(nodes):
        (old / f"node{index}-9.jsonl").write_bytes(samples(f"node{index}", 0, num_samples))
        (old / f"node{index}-10.jsonl").write_bytes(samples(f"node{index}", num_samples, num_samples))
        (run_dir / "telemetry" / f"node{index}.jsonl").write_bytes(
            samples(f"node{index}", 2 * num_samples, 100)
        )
        (run_dir / "telemetry" / f".node{index}.lock").touch()
    age(run_dir / "telemetry")


def with_metrics(run_dir: Path, ranks: int, steps: int) -> None:
    folder = run_dir / "metrics"
    folder.mkdir()
    for rank in range(ranks):
        lines = [
            runs.encode_record({"step": step, "loss": 1.0, "time_s": NOW_S - 10**6}) for step in range(steps)
        ]
        lines.append(runs.encode_record({"event": "checkpoint", "step": steps, "time_s": NOW_S - 10**6}))
        (folder / f"rank-{rank}.jsonl").write_bytes(b"".join(lines))
    age(folder)


def age(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (NOW_S - 3 * DAY_S, NOW_S - 3 * DAY_S))


def plan(world: World, settings: Settings | None = None) -> RecordsPlan:
    return plan_records(look(world), settings or world.settings, world, "ada")


def look(world: World) -> tuple[RunRecords, ...]:
    found = RecordSizes(world.settings.runs_root, world.settings.cache_dir).look(10**9)
    assert found is not None
    return found


def gpu_samples(world: World, run_dir: Path) -> tuple[list[GpuSample], list[SensorGap]]:
    source, all_samples = TelemetrySource(world, "run", run_dir), []
    for _ in range(50):
        for reading in source.poll():
            assert isinstance(reading.payload, TelemetryChunk), reading.error
            all_samples += reading.payload.samples
    gpus = [sample for sample in all_samples if isinstance(sample, GpuSample)]
    return gpus, [sample for sample in all_samples if isinstance(sample, SensorGap)]


def test_a_tree_of_5200_files_fits_the_limit_and_nothing_else_is_touched(world: World) -> None:
    for number in range(26):
        run_dir = world.make(f"202611{number + 1:02}-142230-ddp-00{number:02x}", age_s=(30 - number) * DAY_S)
        with_metrics(run_dir, ranks=198, steps=2)
    settings = replace(world.settings, max_records_files=5000)
    before = untouchable(world)
    found = plan(world, settings)
    assert found.plan.now.num_files == 26 * 200
    problems: list[str] = []
    freed = sum((volume.num_files for volume in perform(found.plan.steps, settings, problems.append)), 0)
    assert problems == []
    assert 26 * 200 - freed <= 4500
    assert not plan(world, settings).plan.is_over
    assert untouchable(world) == before
    assert {step.run_id for step in found.plan.steps} == {
        f"2026110{n}-142230-ddp-000{n - 1}" for n in range(1, 5)
    }
    first = world.settings.runs_root / "20261101-142230-ddp-0000"
    (reading,) = MetricsSource(world, "run", first).poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert reading.num_bad_rows == 0
    assert len({step.rank for step in reading.payload.steps}) == 198
    assert len(reading.payload.steps) == 396


def untouchable(world: World) -> dict[str, bytes]:
    """Every file except metrics and telemetry, with its content."""
    return {
        str(path): path.read_bytes()
        for path in world.settings.runs_root.rglob("*")
        if path.is_file() and not {"metrics", "telemetry"} & set(path.parts)
    }


def test_thinned_telemetry_says_so_and_covers_the_whole_run(world: World) -> None:
    run_dir = world.make(OLD)
    with_telemetry(run_dir)
    thin_part(run_dir, Part.TELEMETRY)
    assert [path.name for path in (run_dir / "telemetry").iterdir()] == ["packed.jsonl"]
    assert (run_dir / "telemetry" / "packed.jsonl").stat().st_size < 1.5 * 2**20
    gpus, gaps = gpu_samples(world, run_dir)
    for node in ("node0", "node1"):
        times = [sample.time_s - NOW_S + 10**6 for sample in gpus if sample.node == node]
        assert times == sorted(times)
        assert (times[0], times[-1] > 6000) == (0, True)
    assert {gap.node for gap in gaps} == {"node0", "node1"}
    assert "one sample of 8" in gaps[0].because


@pytest.mark.parametrize("ranks", [1, 2])
def test_thinned_metrics_state_the_share_that_is_left_also_when_thinned_twice(
    world: World, ranks: int
) -> None:
    run_dir = world.make(OLD)
    with_metrics(run_dir, ranks, steps=40_000 // ranks)
    thin_part(run_dir, Part.METRICS)
    steps, notes = thinned_metrics(world, run_dir)
    (share,) = set(notes)
    assert share in (2, 4)
    assert len(steps) == pytest.approx(40_000 / share, abs=3)
    (file,) = (run_dir / "metrics").iterdir()
    file.write_bytes(file.read_bytes() * 3)  # imitates a longer record
    thin_part(run_dir, Part.METRICS)
    assert thinned_metrics(world, run_dir)[1][0] == 4 * share


def thinned_metrics(world: World, run_dir: Path) -> tuple[list[Step], list[object]]:
    source = MetricsSource(world, "run", run_dir)
    steps: list[Step] = []
    notes: list[object] = []
    for _ in range(20):
        for reading in source.poll():
            assert isinstance(reading.payload, MetricsChunk)
            assert reading.num_bad_rows == 0
            steps += reading.payload.steps
            notes += [each.fields["every"] for each in reading.payload.events if each.event == THINNED_EVENT]
    return steps, notes


def test_rotated_parts_alone_keep_the_newest_telemetry_as_it_is(world: World) -> None:
    run_dir = world.make(OLD)
    with_telemetry(run_dir)
    live = (run_dir / "telemetry" / "node1.jsonl").read_bytes()
    freed = thin_part(run_dir, Part.OLD)
    assert freed.num_files == 3
    assert freed.size_bytes > 2_000_000
    assert (run_dir / "telemetry" / "node1.jsonl").read_bytes() == live
    assert len(gpu_samples(world, run_dir)[0]) > 1000
    thin_part(run_dir, Part.TELEMETRY)
    times = [sample.time_s for sample in gpu_samples(world, run_dir)[0] if sample.node == "node0"]
    assert times == sorted(set(times))


@pytest.mark.parametrize(("num_live", "share"), [(100, 8), (3000, 32)])
def test_telemetry_that_is_thinned_twice_states_the_share_of_both_thinnings_for_each_node(
    world: World, num_live: int, share: int
) -> None:
    run_dir = world.make(OLD)
    with_telemetry(run_dir)
    thin_part(run_dir, Part.OLD)
    for node in ("node0", "node1"):
        (run_dir / "telemetry" / f"{node}.jsonl").write_bytes(samples(node, 6000, num_live))
    thin_part(run_dir, Part.TELEMETRY)
    told = {gap.node: gap.because for gap in reversed(gpu_samples(world, run_dir)[1])}
    assert told.keys() == {"node0", "node1"}
    assert all(because.endswith(f"one sample of {share} is left") for because in told.values())


def test_a_thinned_run_does_not_look_alive_again(world: World) -> None:
    run_dir = world.make(OLD, "RUNNING")
    with_telemetry(run_dir)
    thin_part(run_dir, Part.TELEMETRY)
    written_s = (run_dir / "telemetry" / "packed.jsonl").stat().st_mtime
    assert written_s == NOW_S - 3 * DAY_S


class KilledError(BaseException):
    """Imitates the end of the process at this place."""


@pytest.mark.parametrize("nth", range(3))
def test_a_process_killed_in_the_middle_leaves_the_old_part_or_the_new(
    world: World, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    run_dir = world.make(OLD)
    with_metrics(run_dir, ranks=4, steps=10)
    left = iter(range(nth))

    def killed(*_: object, **__: object) -> None:
        if next(left, None) is None:
            raise KilledError

    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        killed()
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", rename)
        patch.setattr("shutil.rmtree", killed)
        with pytest.raises(KilledError):
            thin_part(run_dir, Part.METRICS)
    recover(run_dir / "metrics")
    assert sorted(path.name for path in run_dir.iterdir() if path.name.startswith(".")) == []
    names = {path.name for path in (run_dir / "metrics").iterdir()}
    assert names == ({"packed.jsonl"} if nth == 2 else {f"rank-{rank}.jsonl" for rank in range(4)})
    (reading,) = MetricsSource(world, "run", run_dir).poll()
    assert isinstance(reading.payload, MetricsChunk)
    assert len(reading.payload.steps) == 40


def test_alive_runs_open_drills_and_runs_of_others_are_not_thinned(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive, drill = world.make(NEW, "RUNNING"), world.make(OLD, drill="slow_rank")
    for run_dir in (alive, drill):
        with_metrics(run_dir, ranks=3, steps=2)
    world.queue({"job_id": "17", "state": "RUNNING", "submit": LATER})
    found = plan(world, replace(world.settings, max_records_files=2))
    assert found.plan.steps == ()
    assert "job 17 is RUNNING" in found.kept[NEW]
    assert found.kept[OLD]
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="not a directory of yours"):
        thin_part(drill, Part.METRICS)
    assert look(world) == ()


def test_a_part_that_holds_a_foreign_file_or_a_link_stays(world: World, tmp_path: Path) -> None:
    run_dir = world.make(OLD)
    with_metrics(run_dir, ranks=2, steps=2)
    (run_dir / "metrics" / "notes.txt").write_text("mine")
    with pytest.raises(OSError, match=r"notes\.txt"):
        thin_part(run_dir, Part.METRICS)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "node0-1.jsonl").write_bytes(samples("node0", 0, 10))
    (run_dir / "telemetry").symlink_to(elsewhere)
    with pytest.raises(PermissionError):
        thin_part(run_dir, Part.TELEMETRY)
    assert len((elsewhere / "node0-1.jsonl").read_bytes().splitlines()) == 10


def test_torn_lines_are_left_out(world: World) -> None:
    run_dir = world.make(OLD)
    with_metrics(run_dir, ranks=2, steps=2)
    with (run_dir / "metrics" / "rank-1.jsonl").open("ab") as file:
        file.write(b'{"step":3,"lo')
    thin_part(run_dir, Part.METRICS)
    lines = (run_dir / "metrics" / "packed.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["rank"] for line in lines] == [0, 0, 0, 1, 1, 1]


def test_telemetry_that_begins_with_a_line_cut_by_a_full_disk_is_thinned(world: World) -> None:
    run_dir = world.make(OLD)
    with_telemetry(run_dir, nodes=1)
    first = run_dir / "telemetry" / "old" / "node0-9.jsonl"
    first.write_bytes(b'{"kind":"gpu","time_s":1.0,"node":"node0","gpu":7,"util\n' + first.read_bytes())
    thin_part(run_dir, Part.TELEMETRY)
    gpus, gaps = gpu_samples(world, run_dir)
    assert {sample.gpu for sample in gpus} == {0}
    assert len({gap.because for gap in gaps}) == 1


def test_a_look_goes_on_where_it_stopped_and_keeps_its_answers(world: World) -> None:
    for number in range(6):
        run_dir = world.make(f"2026110{number + 1}-142230-ddp-000{number}")
        with_metrics(run_dir, ranks=5, steps=2)
        (run_dir / "exit.json").write_text("{}")
    sizes = RecordSizes(world.settings.runs_root, world.settings.cache_dir)
    looks = [sizes.look(20)]
    while looks[-1] is None:
        looks.append(sizes.look(20))
    sizes.save()
    assert len(looks) > 3
    assert [one.metrics.num_files for one in looks[-1]] == [5] * 6
    assert looks[-1][0].other == Volume(3, looks[-1][0].other.size_bytes)
    again = RecordSizes(world.settings.runs_root, world.settings.cache_dir)
    assert again.look(30) == looks[-1]


def test_stacks_that_were_asked_for_count_as_records(world: World) -> None:
    run_dir = world.make(OLD)
    (before,) = look(world)
    taken = run_dir / "stacks" / "20261101-150000"
    taken.mkdir(parents=True)
    (taken / "node1.json").write_text("x" * 5000)
    (run_dir / "stacks" / "samples-node1.jsonl").write_text("x" * 100)
    (run_dir / "stacks" / "linked").symlink_to(taken)
    (after,) = look(world)
    assert after.other - before.other == Volume(2, 5100)


def test_a_file_that_vanishes_while_its_directory_is_read_hides_no_other(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_telemetry(world.make(OLD), num_samples=3)
    (before,) = look(world)
    scan = os.scandir

    def scan_late(folder: Path) -> contextlib.nullcontext[list[os.DirEntry[str]]]:
        entries = list(scan(folder))
        if folder.name == "telemetry":
            (folder / "node0.jsonl").unlink()
        return contextlib.nullcontext(entries)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", scan_late)
        (after,) = look(world)
    assert after.telemetry.num_files == before.telemetry.num_files - 1


def test_a_read_only_coach_thins_nothing(world: World) -> None:
    run_dir = world.make(OLD)
    with_metrics(run_dir, ranks=3, steps=2)
    settings = replace(world.settings, max_records_files=2, is_readonly=True)
    with pytest.raises(UserError, match="read-only"):
        list(perform(plan(world, settings).plan.steps, settings, print))
    assert len(list((run_dir / "metrics").iterdir())) == 3


def test_two_coaches_do_not_thin_at_once(world: World) -> None:
    run_dir = world.make(OLD)
    with_metrics(run_dir, ranks=3, steps=2)
    steps = plan(world, replace(world.settings, max_records_files=2)).plan.steps
    first = perform(steps, world.settings, print)
    assert next(first).num_files == 2
    with pytest.raises(UserError, match="another coach"):
        list(perform(steps, world.settings, print))
    assert list(first) == []
    assert list(perform(steps, world.settings, print)) == [Volume()]
